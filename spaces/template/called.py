"""Templates of products by calls of an intrinsic: matmul, dense, convolutions, and the quantised ones."""

from __future__ import annotations

from collections.abc import Sequence

from searchlab.ir.expr import Like, value_of
from searchlab.schedule import Schedule
from searchlab.search.task import Task
from searchlab.tactics import (
    CallLoops,
    IntrinsicView,
    axis_loops,
    fits_registers,
    fresh_stages,
    insert_calls,
    intermediate_results,
    lay_for_calls,
    lay_in_panels,
    run_copies,
    space_axes,
    split_for_calls,
)
from spaces.common import loops_compete, searched_views
from spaces.template.config import Config
from spaces.template.nests import fill, finish, longer, reduction, share
from spaces.template.policies import sizes
from spaces.template.registry import CALLS, KERNELS, template

PRODUCTS = ("matmul", "batch_matmul", "dense", "qmatmul", "qdense", "conv1d", "conv2d", "conv3d", "qconv2d")
MOST_ROWS, MOST_VECTORS, MOST_TILES = 16, 4, 64


@template(CALLS, operator=PRODUCTS)
def calls(cfg: Config, s: Schedule, task: Task) -> None:
    """Products of bytes and of bfloat16, which loops have to widen one by one."""
    _tiled(cfg, s, task, searched_views(s.program, reduction(s, task).block, task, "auto"))


@template(KERNELS, operator=PRODUCTS)
def kernels(cfg: Config, s: Schedule, task: Task) -> None:
    """Products of float32 by micro-kernels, each a register tile of its own."""
    views = searched_views(s.program, reduction(s, task).block, task, "always")
    _tiled(cfg, s, task, views if loops_compete(views) else ())


def _tiled(cfg: Config, s: Schedule, task: Task, views: Sequence[IntrinsicView]) -> None:
    """Tiles of calls of an intrinsic, in blocks.

    The weights are packed `ahead` of time or `whole`, by a stage before the product, which also lays out the data.
    """
    if not views:
        cfg.skip("the target has no instruction for its products")
    view = cfg.choose("intrinsic", views, lambda v: v.intrinsic.name)
    packs = ["whole", "ahead"] if view.weight.buffer in task.weights else ["whole"]
    laid = lay_for_calls(s, view, cfg.choose("pack", packs) == "ahead")
    loops = split_for_calls(s, view, *_tile(cfg, s, task, view))
    across = view.column != len(space_axes(s.program.blocks[view.block])) - 1
    (_by_channels if across else _by_columns)(cfg, s, task, view, loops)
    insert_calls(s, view, loops)
    run_copies(s, laid, task.target)
    for stage in fresh_stages(s):
        if s.program.blocks[stage].reduces:
            share(s, task, axis_loops(s, stage)[0])
        else:
            fill(s, task, stage)


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


def _by_columns(cfg: Config, s: Schedule, task: Task, view: IntrinsicView, loops: CallLoops) -> None:
    """Blocks of rows and of columns, of tiles that are finished one by one."""
    i0, i1 = cfg.split("i", loops.rows, 2, tail=True, max_factor=MOST_TILES)
    j0, j1 = cfg.split("j", loops.columns, 2, tail=True, max_factor=MOST_TILES)
    outer = [j0, i0] if cfg.choose("first", ["columns", "rows"]) == "columns" else [i0, j0]
    s.reorder(*loops.around, *outer, j1, i1, *loops.sums, loops.row, loops.vector, *loops.call)
    s.unroll(loops.row, loops.vector)
    finish(s, task, view.block, i1, unroll=True)
    share(s, task, loops.around, outer[0])


def _by_channels(cfg: Config, s: Schedule, task: Task, view: IntrinsicView, loops: CallLoops) -> None:
    """Bands of output rows, blocks of output channels, groups of input channels whose weights stay in cache."""
    around, band = (loops.around[:-1], loops.around[-1:]) if len(loops.around) > 1 else (loops.around, ())
    depth = loops.sums[view.depth]
    taps = [x for x in loops.sums if x != depth]
    y0, y1 = ([y] for y in cfg.split("y", band[0], 2, tail=True, max_inner=16)) if band else ([], [])
    z0, z1 = cfg.split("z", depth, 2)
    tile = (loops.row, loops.vector, *loops.call)
    s.reorder(*around, *y0, loops.columns, z0, *y1, loops.rows, z1, *taps, *tile)
    if longer(s, taps):
        cfg.unrolled("unroll", longer(s, taps), most=16)
    s.unroll(loops.row, loops.vector)
    results = intermediate_results(s, view.block)
    finish(s, task, view.block, loops.columns)
    lay_in_panels(s, results, view.column, view.shape.columns)
    share(s, task, around, y0[0] if y0 else loops.columns)
