"""The view `estimate`: the cycles that a program may take, as one number; cheap enough to thin out huge populations."""

from __future__ import annotations

from searchlab.analysis import summary_view
from searchlab.analysis.columns import Schema
from searchlab.analysis.computing import cycles
from searchlab.analysis.gpu_cost import kernel_costs
from searchlab.analysis.graph import Node
from searchlab.analysis.nest import Nest
from searchlab.analysis.position import annotated
from searchlab.targets import CudaTarget, Target

SCHEMA = Schema("estimate", 1, ("cycles",))
# Bytes per cycle from beyond the caches of the levels 1, 2 and 3; deliberately rough.
BYTES_PER_CYCLE = (96.0, 48.0, 16.0)


def columns(nest: Nest, target: Target | None) -> list[Node]:
    """Cycles to compute, and to move data through each cache; the latter are shared by the main statement's threads."""
    g = nest.graph
    if isinstance(target, CudaTarget):
        return [g.total(k.cycles for k in kernel_costs(nest, target))]
    computing = g.total(cycles(nest, s, target) for s in nest.statements)
    moved = g.total(summary_view.held(nest, s, target).moved for s in nest.statements)
    threads = 1 if target is None else target.threads
    shared = annotated(nest, summary_view.main(nest), "parallel").product.most(1).least(threads)
    return [computing + (moved * g.wide(1 / rate for rate in BYTES_PER_CYCLE)).sum() / shared]
