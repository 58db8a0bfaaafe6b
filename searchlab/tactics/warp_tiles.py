"""Products by tensor cores: blocks of warps, each with tiles of calls of an intrinsic, operands in shared memory.

    rows = ((block * warps + warp) * tiles + tile) * 16 + row of a call         columns and terms of the sum the same

Sizes that calls do not divide are padded with zeros as operands are copied, and cropped as results are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from searchlab.dtype import DTYPES
from searchlab.errors import ScheduleError
from searchlab.intrinsics import find_intrinsic
from searchlab.ir.expr import Like, Var, index
from searchlab.schedule import Schedule
from searchlab.tactics.axes import axis_loops, constant, operands, reduce_axes
from searchlab.tactics.block_tiling import (
    AxisSplit,
    Digit,
    Staged,
    ThreadBlockTile,
    stage_for_block,
    tile_for_blocks,
)
from searchlab.tactics.intrinsic_views import IntrinsicView, intrinsic_view
from searchlab.tactics.tiling import Factors

_PIECE = 16  # bytes that a thread copies at once


@dataclass(frozen=True)
class WarpTiles:
    """How a product is cut: warps of a block, calls of each warp, both along rows and columns, and calls of a step.

    `lanes` elements are copied at once: None are as many as one access moves.
    """

    warps: tuple[Like, Like] = (2, 1)
    tiles: tuple[Like, Like] = (1, 2)
    steps: Like = 1
    lanes: Like | None = None
    double_buffer: bool = False


def tile_for_warps(s: Schedule, block: str, intrinsic: str, tiles: WarpTiles | None = None) -> None:
    """Computes a product by calls of an intrinsic of warps, whatever its sizes are."""
    view = intrinsic_view(s.program, block, find_intrinsic(intrinsic))
    if view is None:
        raise ScheduleError(f"'{block}' is no product of two operands that '{intrinsic}' computes")
    tile_view_for_warps(s, view, tiles or WarpTiles())


def tile_view_for_warps(s: Schedule, view: IntrinsicView, cut: WarpTiles) -> None:
    """The same for a view, with tiles whose sizes may be symbols; axes are padded to whole tiles of blocks."""
    staged = _stage_for_calls(s, view, cut)
    rows, columns = ((None, cut.warps[n], cut.tiles[n]) for n in range(2))
    _tile_staged(s, view, staged, _CallFactors(rows, columns, (None, cut.steps)), cut)


def tile_calls_by(s: Schedule, view: IntrinsicView, factors: Factors, lanes: Like) -> tuple[Staged, ThreadBlockTile]:
    """Tiles a product around calls by factors that are asked for: blocks, warps and tiles, steps and calls of a step.

    Axes are padded to whole calls, which factors divide.
    """
    staged = _stage_for_calls(s, view, WarpTiles((1, 1), (1, 1), 1))
    space, sums = axis_loops(s, staged.block)
    shape = view.shape

    def chosen(loop: str, each: int, parts: int) -> Sequence[Like | None]:
        return factors(loop, constant(s.program.loops[loop].extent, f"loop '{loop}'") // each, parts)

    parts = _CallFactors(
        chosen(space[view.row], shape.rows, 3),
        chosen(space[view.column], shape.columns, 3),
        chosen(sums[view.depth], shape.depth, 2),
    )
    return staged, _tile_staged(s, view, staged, parts, WarpTiles(lanes=lanes))


def _stage_for_calls(s: Schedule, view: IntrinsicView, cut: WarpTiles) -> Staged:
    """Gives a product its copies in shared memory, with the terms of a call side by side, and its axes whole tiles."""
    b = s.program.blocks[view.block]
    for ld in operands(b):
        if not all(isinstance(i, Var) for i in ld.indices):
            s.reindex(view.block, ld.buffer)  # windows of a convolution are taken apart, so that rows can be padded
    row, column, depth = view.axes(s.program)
    shape = view.shape
    multiples = {
        row.name: index(cut.warps[0]) * cut.tiles[0] * shape.rows,
        column.name: index(cut.warps[1]) * cut.tiles[1] * shape.columns,
        depth.name: index(cut.steps) * shape.depth,
    }
    staged = stage_for_block(s, view.block, multiples)
    turned = tuple(copy for copy in staged.copies if _turn(s, staged.block, copy, view))
    return replace(staged, turned=turned)


def _turn(s: Schedule, block: str, copy: str, view: IntrinsicView) -> bool:
    """Lays a copy out with the sum last; whether it was not like that."""
    buffer = s.program.blocks[copy].store.buffer
    (load,) = (ld for ld in operands(s.program.blocks[block]) if ld.buffer == buffer)
    depth = reduce_axes(s.program.blocks[block])[view.depth].var
    at = load.indices.index(depth)
    if at == len(load.indices) - 1:
        return False
    olds = tuple(Var(f"x{n}") for n in range(len(load.indices)))
    s.transform_layout(buffer, (olds, (*olds[:at], *olds[at + 1 :], olds[at])))
    return True


@dataclass(frozen=True)
class _CallFactors:
    """What axes are split by: (blocks, warps, tiles) of rows and columns, (steps, calls of a step) of the sum."""

    rows: Sequence[Like | None]
    columns: Sequence[Like | None]
    steps: Sequence[Like | None]


def _tile_staged(
    s: Schedule, view: IntrinsicView, staged: Staged, parts: _CallFactors, cut: WarpTiles
) -> ThreadBlockTile:
    """Tiles a staged product; axes beside rows and columns are shared by blocks, other sums are steps."""
    space, sums = axis_loops(s, staged.block)
    shape, splits = view.shape, []
    for n, loop in enumerate(space):
        if n not in (view.row, view.column):
            splits.append(AxisSplit(loop, [None], (Digit("block", "z", n),)))
            continue
        axis, at, factors = ("y", 0, parts.rows) if n == view.row else ("x", 1, parts.columns)
        digits = (Digit("block", axis), Digit("thread", "y", at), Digit("own", rank=10 + at), Digit("call", rank=at))
        splits.append(AxisSplit(loop, factors, digits, (shape.rows, shape.columns)[at]))
    for n, loop in enumerate(sums):
        if n != view.depth:
            splits.append(AxisSplit(loop, [None], (Digit("step", "", n),)))
            continue
        sum_digits = (Digit("step", "", n), Digit("own"), Digit("call", rank=2))
        splits.append(AxisSplit(loop, parts.steps, sum_digits, shape.depth))
    lanes = cut.lanes if cut.lanes is not None else _PIECE // DTYPES[view.types[0]].bytes
    return tile_for_blocks(s, staged, splits, lanes, cut.double_buffer, view.intrinsic.name)
