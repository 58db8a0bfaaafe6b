"""A task of a graph as a workload: a program with the function that it computes, which is its reference.

The text of such a workload contains both, so that any process can make it again without the model that it came from;
its key depends on the program and its weights alone, so that equal tasks of two models are one task.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np

from searchlab.dtype import FLOATS
from searchlab.errors import GraphError, IRError, WorkloadError
from searchlab.graph.annotations import TensorType
from searchlab.graph.calls import Operand, OperatorCall
from searchlab.graph.deduction import interface
from searchlab.graph.evaluation import evaluate_graph
from searchlab.graph.functions import Binding, GraphFunction, GraphModule, GraphParameter
from searchlab.graph.graph_json import graph_from_json, graph_to_json
from searchlab.graph.passes.operator_fusion import FUSED
from searchlab.ir.bfloat16 import numbers, stored
from searchlab.ir.expr import Var
from searchlab.ir.jsonform import from_json, to_json
from searchlab.ir.program import Program
from searchlab.ir.walk import variables
from searchlab.workloads import counts
from searchlab.workloads.definition import Array, Definition, Operator, Workload
from searchlab.workloads.parameters import Params, parameters_of

_PATH = "searchlab.graph.tasks:graph_task"
_NAME = "task"  # of functions and, while they are identified, of programs
_NUMBER = re.compile(r"(_\d+)+$")  # what tells programs of one kind apart within a module
# Operators with results that are not numbers for negative operands: their inputs are made positive.
_POSITIVE = frozenset({"log", "pow", "rsqrt", "sqrt", "batch_norm"})


def program_key(program: Program, weights: Sequence[str] | frozenset[str]) -> str:
    """What a task is known by: a digest of its program and of the inputs that are weights.

    What the program and its open sizes are called makes no difference.
    """
    plain = with_plain_sizes(replace(program, name=_NAME), plain_sizes(program)).hash
    return hashlib.sha256(f"{plain} {' '.join(sorted(weights))}".encode()).hexdigest()[:12]


def plain_sizes(program: Program) -> dict[str, str]:
    """Names for the open sizes of a program that do not depend on the graph: by where shapes mention them first."""
    shapes = (program.buffers[name].shape for name in (*program.inputs, *program.outputs))
    seen = (v.name for shape in shapes for e in shape for v in sorted(variables(e), key=lambda v: v.name))
    ordered = dict.fromkeys(name for name in (*seen, *program.sizes) if name in program.sizes)
    return {name: f"size{number}" for number, name in enumerate(ordered)}


def with_plain_sizes(program: Program, names: Mapping[str, str]) -> Program:
    """The program with other names for its open sizes."""
    if not names:
        return program
    return program.with_symbols({Var(old, "size"): Var(new, "size") for old, new in names.items()})


def task_workload(program: Program, function: GraphFunction, weights: frozenset[str]) -> Workload:
    """The workload of a plain program without open sizes; `function` computes the same from the same inputs."""
    kind = _NUMBER.sub("", program.name).removeprefix(FUSED) or _NAME
    named = replace(program, name=kind, trace=())
    given = GraphModule({_NAME: _anonymous(function)})
    _check_interface(named, given[_NAME])
    whole = {"program": to_json(named), "function": graph_to_json(given), "weights": sorted(weights)}
    packed = bz2.compress(json.dumps(whole).encode())  # the same bytes everywhere, unlike those of zlib
    return graph_task.lazy(of=base64.urlsafe_b64encode(packed).decode().rstrip("="))


@dataclass(frozen=True)
class GraphWorkload(Workload):
    """One task of a graph; its name says which operators it computes, and its label has the shapes as well."""

    default_packs: ClassVar[bool] = True  # as compiled models do

    @cached_property
    def _held(self) -> _HeldTask:
        return _unpacked(str(dict(self.params)["of"]))

    @property
    def name(self) -> str:
        """The operators of the task, such as graph.conv2d_relu; those of workloads have other parameters."""
        return f"graph.{self._held.program.name}"

    @cached_property
    def key(self) -> str:
        """A short id, the same for equal tasks of different graphs."""
        return f"{self._held.program.name}-{program_key(self._held.program, self._held.weights)}"

    @cached_property
    def label(self) -> str:
        """The readable form `conv2d_relu.3f2a(1x64x56x56, 64x64x3x3)`: no two tasks of a graph have the same."""
        program = self._held.program
        shapes = ("x".join(map(str, counts.shape_of(program, name))) or "1" for name in program.inputs)
        return f"{program.name}.{self.key[-12:-8]}({', '.join(shapes)})"

    @cached_property
    def spec(self) -> str:
        """The form for files, read back by `parse`."""
        return f"{_PATH}:of={dict(self.params)['of']}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.params,)


@dataclass(frozen=True, eq=False)
class GraphTaskOperator(Operator):
    """The operator of all tasks of graphs."""

    def lazy(self, **params: object) -> Workload:
        """The workload of a task, one object for each."""
        bound = self._bind(params)
        return self._made.setdefault(bound, GraphWorkload(self, bound))


def _defined(of: str) -> Definition:
    """A program of a graph and the function that it computes, packed into a text."""
    held = _unpacked(of)
    risky = _operators(held.module[_NAME]) & _POSITIVE
    return Definition(held.program, held.reference, held.weights, held.positive if risky else None)


def _again(params: Params) -> Workload:
    return graph_task.lazy(**dict(params))


@dataclass(frozen=True)
class _HeldTask:
    """What the text of a task contains."""

    program: Program
    module: GraphModule
    weights: tuple[str, ...]

    def reference(self, *wide: Array) -> Array | tuple[Array, ...]:
        """The function on inputs that are given in double precision."""
        kinds = (b.dtype for b in interface(self.program)[0])
        arrays = (np.ascontiguousarray(stored(x, d)).reshape(x.shape) for x, d in zip(wide, kinds, strict=True))
        found: Array | tuple[Array, ...] = evaluate_graph(self.module, *arrays, function=_NAME)
        return found

    def positive(self, arrays: dict[str, Array]) -> dict[str, Array]:
        """The inputs with the absolute values of floats."""
        kinds = {b.name: b.dtype for b in interface(self.program)[0] if b.dtype in FLOATS}
        return arrays | {name: stored(np.abs(numbers(arrays[name], d)), d) for name, d in kinds.items()}


@cache
def _unpacked(text: str) -> _HeldTask:
    try:
        whole = json.loads(bz2.decompress(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))))
        program, module = from_json(whole["program"]), graph_from_json(whole["function"])
        _check_interface(program, module[_NAME])
        return _HeldTask(program, module, tuple(map(str, whole["weights"])))
    except (binascii.Error, OSError, EOFError, ValueError, KeyError, TypeError, GraphError, IRError) as e:
        raise WorkloadError(f"graph_task: the text is not that of a task: {e}") from e


def _check_interface(program: Program, function: GraphFunction) -> None:
    inputs, _ = interface(program)
    wanted = [TensorType(b.shape, b.dtype) for b in inputs]
    given = [p.annotation for p in function.parameters]
    if wanted != given:
        said = (", ".join(map(str, types)) for types in (wanted, given))
        raise GraphError("{}: the program takes ({}), its function ({})".format(program.name, *said))
    if program.sizes:
        raise GraphError(f"{program.name}: a task has numbers for sizes, and {', '.join(program.sizes)} are open")


def _anonymous(function: GraphFunction) -> GraphFunction:
    """The function with names that do not depend on the graph it comes from."""
    names: dict[str, Operand] = {p.name: f"x{n}" for n, p in enumerate(function.parameters)}
    parameters = tuple(GraphParameter(f"x{n}", p.annotation) for n, p in enumerate(function.parameters))
    bindings = []
    for number, b in enumerate(function.bindings):
        bindings.append(Binding(f"y{number}", b.call.renamed(names), b.annotation))
        names[b.name] = f"y{number}"
    return GraphFunction(_NAME, parameters, tuple(bindings), str(names.get(function.result, function.result)))


def _operators(function: GraphFunction) -> frozenset[str]:
    return frozenset(b.call.callee for b in function.bindings if isinstance(b.call, OperatorCall))


graph_task = GraphTaskOperator(_PATH, _defined, parameters_of(_defined))
