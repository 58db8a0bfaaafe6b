"""Templates of products by calls of an intrinsic: matmul, dense, convolutions, and the quantised ones."""

from __future__ import annotations

from collections.abc import Sequence

from searchlab.ir.expr import Like, value_of
from searchlab.schedule import Schedule
from searchlab.search.task import Task
from searchlab.tactics import (
    CallLoops,
    IntrinsicView,
    LaidOperands,
    axis_loops,
    copy_in_vectors,
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
from spaces.common import loops_compete, searched_views
from spaces.template.config import Config
from spaces.template.nests import extents, fill, finish, reduction, share
from spaces.template.policies import sizes
from spaces.template.registry import CALLS, KERNELS, template

PRODUCTS = ("matmul", "batch_matmul", "dense", "qmatmul", "qdense", "conv1d", "conv2d", "conv3d", "qconv2d")
MOST_ROWS, MOST_VECTORS, MOST_TILES = 16, 4, 64


@template(CALLS, operator=PRODUCTS)
def calls(cfg: Config, s: Schedule, task: Task) -> None:
    """Products of bytes and of bfloat16, which loops have to widen one by one."""
    _tiled(cfg, s, task, searched_views(s.program, reduction(s, task).block, task.target, "auto"))


@template(KERNELS, operator=PRODUCTS)
def kernels(cfg: Config, s: Schedule, task: Task) -> None:
    """Products of float32 by micro-kernels, each a register tile of its own."""
    views = searched_views(s.program, reduction(s, task).block, task.target, "always")
    _tiled(cfg, s, task, views if loops_compete(views) else ())


def _tiled(cfg: Config, s: Schedule, task: Task, views: Sequence[IntrinsicView]) -> None:
    """Tiles of calls of an intrinsic, blocks of tiles, the sum unrolled or not.

    The weights are packed `ahead` of time or `whole`, by a stage before the product, which also lays out the data.
    """
    if not views:
        cfg.skip("the target has no instruction for its products")
    view = cfg.choose("intrinsic", views, lambda v: v.intrinsic.name)
    packs = ["whole", "ahead"] if view.weight.buffer in task.weights else ["whole"]
    laid = lay_for_calls(s, view, cfg.choose("pack", packs) == "ahead")
    rows, vectors = _tile(cfg, s, task, view)
    _place(cfg, s, task, view, split_for_calls(s, view, rows, vectors), laid)


def _tile(cfg: Config, s: Schedule, task: Task, view: IntrinsicView) -> tuple[Like, Like]:
    """Knobs for the calls of a tile; an intrinsic with rows of its own fills the registers alone."""
    if view.shape.rows > 1:
        return 1, 1
    space = space_axes(s.program.blocks[view.block])
    high, wide = (value_of(space[n].extent) for n in (view.row, view.column))
    calls_across = MOST_VECTORS if wide is None else min(MOST_VECTORS, -(-wide // view.shape.columns))
    rows = cfg.knob("rows", sizes(MOST_ROWS if high is None else min(MOST_ROWS, high)))
    vectors = cfg.knob("vectors", range(1, calls_across + 1))
    cfg.require(fits_registers(rows, vectors, task.target.vector_registers))
    return rows, vectors


def _place(cfg: Config, s: Schedule, task: Task, view: IntrinsicView, loops: CallLoops, laid: LaidOperands) -> None:
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
    if around := copy_in_vectors(s, laid, task.target):
        share(s, task, around)
    for stage in fresh_stages(s):
        if s.program.blocks[stage].reduces:
            share(s, task, axis_loops(s, stage)[0])
        else:
            fill(s, task, stage)
