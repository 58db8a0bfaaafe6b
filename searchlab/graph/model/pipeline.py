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
from searchlab.graph.passes import (
    fold_batch_norms,
    fold_constants,
    fuse_operators,
    fuse_programs,
    remove_dead,
    share_equal_calls,
)
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


def _fuses(options: CompileOptions) -> bool:
    return options.fuse != "never"


def _plain(run: Callable[[GraphModule], GraphModule]) -> Callable[[GraphModule, CompileOptions], GraphModule]:
    """A pass that no option concerns."""
    return lambda module, options: run(module)


PIPELINE: tuple[NamedPass, ...] = (
    NamedPass("inline_functions", _plain(inline_functions)),
    NamedPass("fold_constants", _plain(fold_constants)),
    NamedPass("fold_batch_norms", _plain(fold_batch_norms)),
    NamedPass("share_equal_calls", _plain(share_equal_calls)),
    NamedPass("remove_dead", _plain(remove_dead)),
    NamedPass(
        "dispatch_libraries",
        lambda module, options: dispatch_libraries(module, options.libraries),
        lambda options: bool(options.libraries),
    ),
    NamedPass("fuse_operators", _plain(fuse_operators), _fuses),
    NamedPass("fuse_programs", _plain(fuse_programs), _fuses),
    NamedPass("legalise", lambda module, options: legalise(module, _is_computed)),
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
