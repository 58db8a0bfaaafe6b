"""The passes by which a graph becomes one of kernels, library functions and views, in order.

A pass is a function from a module to a module; a new one is a line of `PIPELINE`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from searchlab.graph.functions import GraphModule
from searchlab.graph.legalising import legalise
from searchlab.graph.model.options import CompileOptions
from searchlab.graph.passes import (
    find_attention,
    fold_batch_norms,
    fold_constants,
    forward_items,
    fuse_operators,
    fuse_programs,
    propagate_layouts,
    remove_dead,
    share_equal_calls,
)
from searchlab.graph.passes.inlining import inline_functions
from searchlab.graph.passes.library_dispatch import dispatch_libraries
from searchlab.graph.passes.pass_listing import Watch
from searchlab.targets import Target, detect


@dataclass(frozen=True)
class NamedPass:
    """A step of the pipeline, for a machine with so many lanes; `wanted` says whether options ask for it."""

    name: str
    run: Callable[[GraphModule, CompileOptions, int], GraphModule]
    wanted: Callable[[CompileOptions], bool] = lambda options: True

    @staticmethod
    def of(
        run: Callable[[GraphModule], GraphModule], wanted: Callable[[CompileOptions], bool] | None = None
    ) -> NamedPass:
        """A pass to which options make no difference but whether it runs."""
        return NamedPass(run.__name__, lambda module, _, lanes: run(module), wanted or (lambda options: True))


def _fuses(options: CompileOptions) -> bool:
    return options.fuse != "never"


PIPELINE: tuple[NamedPass, ...] = (
    NamedPass.of(inline_functions),
    NamedPass.of(forward_items),
    NamedPass.of(fold_constants),
    NamedPass.of(fold_batch_norms),
    NamedPass.of(share_equal_calls),
    NamedPass.of(remove_dead),
    NamedPass.of(find_attention),
    NamedPass("dispatch_libraries", lambda m, o, _: dispatch_libraries(m, o.libraries), lambda o: bool(o.libraries)),
    NamedPass(
        "propagate_layouts", lambda m, o, lanes: propagate_layouts(m, lanes, True, o.winograd), lambda o: o.layouts
    ),
    NamedPass.of(fuse_operators, _fuses),
    NamedPass.of(fuse_programs, _fuses),
    NamedPass.of(legalise),
)


def lowered(
    module: GraphModule, options: CompileOptions, observe: Watch | None = None, target: Target | None = None
) -> GraphModule:
    """The module after all passes that the options ask for; `observe` sees each with the module before and after.

    Layouts depend on the vectors of the target, by default those of this machine.
    """
    lanes = (target or detect()).lanes("float32")
    for step in PIPELINE:
        if step.wanted(options):
            before, module = module, step.run(module, options, lanes)
            if observe is not None:
                observe(step.name, before, module)
    return module
