"""The passes by which a graph becomes one of kernels, library functions and views, in order.

A pass is a function from a module to a module; a new one is a line of `PIPELINE`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from searchlab.graph.calls import OperatorCall
from searchlab.graph.functions import GraphModule
from searchlab.graph.legalising import legalise
from searchlab.graph.model.options import CompileOptions
from searchlab.graph.passes.inlining import inline_functions
from searchlab.graph.passes.library_dispatch import dispatch_libraries

Observe = Callable[[str, GraphModule, GraphModule], None]


@dataclass(frozen=True)
class NamedPass:
    """A step of the pipeline; `wanted` says whether options ask for it."""

    name: str
    run: Callable[[GraphModule, CompileOptions], GraphModule]
    wanted: Callable[[CompileOptions], bool] = lambda options: True


def _is_computed(call: OperatorCall) -> bool:
    """Whether a call computes something; views of values are the memory of these."""
    return not (call.operator.is_view and isinstance(call.args[0], str))


PIPELINE: tuple[NamedPass, ...] = (
    NamedPass("inline_functions", lambda module, _: inline_functions(module)),
    NamedPass(
        "dispatch_libraries", lambda module, o: dispatch_libraries(module, o.libraries), lambda o: bool(o.libraries)
    ),
    NamedPass("legalise", lambda module, _: legalise(module, _is_computed)),
)


def lowered(module: GraphModule, options: CompileOptions, observe: Observe | None = None) -> GraphModule:
    """The module after all passes that the options ask for; `observe` sees each with the module before and after."""
    for step in PIPELINE:
        if step.wanted(options):
            before, module = module, step.run(module, options)
            if observe is not None:
                observe(step.name, before, module)
    return module


def print_changes(name: str, before: GraphModule, after: GraphModule) -> None:
    """An observer that prints what each pass makes of the functions that it changes."""
    print(f"--- {name}")
    for function in after:
        if before.functions.get(function.name) != function:
            print(function)
