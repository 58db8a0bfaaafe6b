"""Templates of products of bytes by calls of an intrinsic: matmul, dense, convolutions, and the quantised ones."""

from __future__ import annotations

from searchlab.ir.expr import Expr, value_of
from searchlab.schedule import Schedule
from searchlab.search.task import Task
from searchlab.tactics import (
    CallLoops,
    IntrinsicView,
    axis_loops,
    exact_view,
    extent,
    fits_registers,
    fresh_stages,
    insert_calls,
    intermediate_results,
    lay_for_calls,
    lay_in_panels,
    space_axes,
    split_for_calls,
)
from spaces.template.config import Config
from spaces.template.nests import extents, fill, finish, reduction, share
from spaces.template.policies import sizes
from spaces.template.registry import CALLS, template

MOST_ROWS, MOST_VECTORS, MOST_TILES = 16, 4, 64


@template(CALLS, operator=("matmul", "batch_matmul", "dense", "qmatmul", "qdense", "conv1d", "conv2d", "qconv2d"))
def calls(cfg: Config, s: Schedule, task: Task) -> None:
    """Tiles of calls of the best exact intrinsic, blocks of tiles, the sum unrolled or not.

    The weights are packed `ahead` of time or `whole`, by a stage before the product, which also lays out the data.
    """
    view = exact_view(s.program, reduction(s, task).block, task.target, task.workload.ranges)
    if view is None:
        cfg.skip("the target has no instruction for its products")
        return
    packs = ["whole", "ahead"] if view.weight.buffer in task.weights else ["whole"]
    lay_for_calls(s, view, cfg.choose("pack", packs) == "ahead")
    rows, vectors = _tile(cfg, s, view)
    cfg.require(fits_registers(rows, vectors, task.target.vector_registers))
    _place(cfg, s, task, view, split_for_calls(s, view, rows, vectors))


def _tile(cfg: Config, s: Schedule, view: IntrinsicView) -> tuple[Expr, Expr]:
    """Knobs for the calls of a tile."""
    space = space_axes(s.program.blocks[view.block])
    high, wide = (value_of(space[n].extent) for n in (view.row, view.column))
    calls_across = MOST_VECTORS if wide is None else min(MOST_VECTORS, -(-wide // view.shape.columns))
    rows = cfg.knob("rows", sizes(MOST_ROWS if high is None else min(MOST_ROWS, high)))
    return rows, cfg.knob("vectors", range(1, calls_across + 1))


def _place(cfg: Config, s: Schedule, task: Task, view: IntrinsicView, loops: CallLoops) -> None:
    """Orders the loops, and puts the stages before and after the product where they belong."""
    i0, i1 = cfg.split("i", loops.rows, 2, tail=True, max_factor=MOST_TILES)
    j0, j1 = cfg.split("j", loops.columns, 2, tail=True, max_factor=MOST_TILES)
    first = cfg.choose("first", ["columns", "rows"])
    outer = [j0, i0] if first == "columns" else [i0, j0]
    s.reorder(*loops.around, *outer, j1, i1, *loops.sums, loops.row, loops.vector, *loops.call)
    s.unroll(loops.row, loops.vector)
    taps = [x for x in loops.sums[1:] if extent(s, x) is not None]
    if extents(s, taps) > 1:
        cfg.unrolled("unroll", taps, most=16)
    across = view.column != len(space_axes(s.program.blocks[view.block])) - 1
    results = intermediate_results(s, view.block) if across else None
    finish(s, task, view.block, outer[-1] if across else i1, unroll=not across)
    if results is not None:
        lay_in_panels(s, results, view.column, view.shape.columns)
    share(s, task, loops.around, outer[0])
    insert_calls(s, view, loops)
    for stage in fresh_stages(s):
        if s.program.blocks[stage].reduces:
            share(s, task, axis_loops(s, stage)[0])
        else:
            fill(s, task, stage)
