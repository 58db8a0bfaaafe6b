"""torch.export with the messages of this project: a module as ATen operators, decomposed no further than necessary."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchlab.errors import GraphError
from searchlab.graph.torch_import.torch_sizes import declared_axes

# Computes nothing: a check of what exporting has specialised on, which annotations check as well.
ASSERTION = "aten._assert_tensor_metadata.default"
_LINE = re.compile(r'File "([^"]*)", line (\d+), in \S+\n\s*(.*)')


@dataclass(frozen=True)
class ExportedModule:
    """An exported program, and what was declared of the sizes of its inputs."""

    program: Any
    declared: list[dict[int, Any]]
    title: str


def export(module: Any, args: tuple[Any, ...], dynamic_shapes: Any, covered: Collection[str]) -> ExportedModule:
    """The program of a module in operators that are covered, as far as torch can decompose into such."""
    torch = _torch()
    title = type(module).__name__
    _check(torch, module, args)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch warns of itself
        try:
            program = torch.export.export(module, args, dynamic_shapes=dynamic_shapes)
            if uncovered(program.graph, covered):
                table = torch.export.default_decompositions()
                for overload in [overload for overload in table if str(overload) in covered]:
                    del table[overload]
                program = program.run_decompositions(table)
        except Exception as e:  # torch raises errors of many kinds, most of them not public
            raise GraphError(f"{title}: torch.export refuses the module: {_first_lines(e)}") from e
    refuse_uncovered(title, program.graph, covered, hint="is in training mode; call eval() first" * module.training)
    return ExportedModule(program, _declared(module, args, dynamic_shapes), title)


def _torch() -> Any:
    try:
        import torch
    except ImportError as e:
        raise GraphError("from_torch needs torch: pip install 'searchlab[torch]'") from e
    return torch


def _check(torch: Any, module: Any, args: Any) -> None:
    if not isinstance(module, torch.nn.Module):
        raise GraphError(f"from_torch takes a torch.nn.Module, got {type(module).__name__}")
    if not isinstance(args, tuple):
        raise GraphError(f"{type(module).__name__}: example_inputs is a tuple of arguments, got {type(args).__name__}")


def _first_lines(e: Exception) -> str:
    said = str(e).partition("The error above occurred when calling torch.export")[0]  # advice on other functions
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return "\n  ".join(lines[:6]) or type(e).__name__


def _declared(module: Any, args: tuple[Any, ...], dynamic_shapes: Any) -> list[dict[int, Any]]:
    if not isinstance(dynamic_shapes, Mapping):
        return list(declared_axes(args, dynamic_shapes))
    names = list(inspect.signature(module.forward).parameters)
    return list(declared_axes(args, tuple(dynamic_shapes.get(name) for name in names[: len(args)])))


# --- what is not covered ----------------------------------------------------------------------------------------------


def uncovered(graph: Any, covered: Collection[str]) -> dict[str, list[Any]]:
    """The operators that nothing converts, each with the nodes that call it."""
    found: dict[str, list[Any]] = {}
    for node in graph.nodes:
        if computes(node) and (name := overload_of(node)) not in covered:
            found.setdefault(name, []).append(node)
    return found


def computes(node: Any) -> bool:
    """Whether a node calls an operator on tensors; arithmetic on sizes, choosing from tuples and checks do not."""
    if node.op != "call_function" or overload_of(node) in (ASSERTION, "getitem"):
        return False
    value = node.meta.get("val")
    return value is None or hasattr(value, "shape") or isinstance(value, (tuple, list))


def overload_of(node: Any) -> str:
    """The name of what a node calls, such as `aten.add.Tensor`."""
    return str(node.target) if hasattr(node.target, "_schema") else str(getattr(node.target, "__name__", node.target))


def refuse_uncovered(title: str, graph: Any, covered: Collection[str], hint: str = "") -> None:
    """One error that lists all operators that are not covered, each with its first place in the module."""
    missing = uncovered(graph, covered)
    if missing:
        lines = [
            f"  {name} at {place_of(nodes[0])}" + (f", and {len(nodes) - 1} more" if len(nodes) > 1 else "")
            for name, nodes in missing.items()
        ]
        count = f"{len(lines)} operators are" if len(lines) > 1 else "an operator is"
        first = f"{title}: {count} not covered (docs/torch.md lists those that are):"
        raise GraphError("\n".join([first, *lines, *([f"{title} {hint}"] if hint else [])]))


def place_of(node: Any) -> str:
    """Where a node comes from: the path and class of the module around it, and the line of its source."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "")
    kind = kind if isinstance(kind, str) else kind.__name__
    path = str(path).removeprefix("L['self']").lstrip(".")
    where = f"{path or 'the module itself'} ({kind.rpartition('.')[2]})" if kind else "a place that torch does not tell"
    lines = _LINE.findall(node.meta.get("stack_trace") or "")
    own = [line for line in lines if "/torch/nn/" not in line[0]] or lines
    if not own:
        return where
    file, line, text = own[-1]
    return f"{where}, {Path(file).name}:{line}: {text.strip()}"
