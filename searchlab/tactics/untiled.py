"""Stages that are not tiled: vectors along their last axis, or as wide as those of the tile that they consume."""

from __future__ import annotations

from collections.abc import Sequence

from searchlab.ir.expr import Expr, Like, value_of
from searchlab.schedule import Schedule
from searchlab.tactics.axes import extent, loops_by_kind, own_loops, space_axes
from searchlab.tactics.sharing import share, share_around
from searchlab.tactics.tiling import Factors, Tiles, split_by
from searchlab.tactics.vectors import reduces_along_rows


def finish_untiled(s: Schedule, block: str, factors: Factors, jobs: int) -> None:
    """Schedules an untiled stage: its last axis vectorised, outer loops of more than `jobs` iterations parallel.

    The reduction is vectorised instead if it runs along rows in memory, with one partial result per lane.
    """
    own = own_loops(s, block)
    around = [lp for lp in s.loops(block) if lp not in own]
    space, reduction = loops_by_kind(s, block, own)
    lane = lane_loop(s, block, own)
    if lane is not None:
        parts = lane_factors(s, block, lane, factors)
        *outer, inner = [lane] if parts is None else split_by(s, lane, parts)
        at = space if lane in space else reduction
        at[at.index(lane) : at.index(lane) + 1] = outer
        order = [*space, *reduction, inner]
        if order != own_loops(s, block):
            s.reorder(*order)
        s.vectorize(inner)
    if around:
        share_around(s, around, jobs + 1)
    elif space:
        share(s, space, jobs + 1)


def lane_loop(s: Schedule, block: str, own: Sequence[str]) -> str | None:
    """The loop of a stage to vectorise, if any has more than one iteration."""
    space, reduction = loops_by_kind(s, block, own)
    return _innermost_long(s, reduction if reduces_along_rows(s.program.blocks[block]) else space)


def lane_factors(s: Schedule, block: str, lane: str, factors: Factors) -> Sequence[Like | None] | None:
    """Factors that split off the vectors of a loop; None if its extent is not a constant: it then stays whole."""
    known = extent(s, lane)
    return None if known is None else factors(f"{block}_v", known, 2)


def finish_fused(s: Schedule, block: str, tiles: Tiles) -> None:
    """Schedules a fused consumer: its last axis gets vectors as long as the tile's, if those run along it too."""
    inner = _innermost_long(s, own_loops(s, block))
    if inner is None:
        return
    if (width := fused_width(s, block, tiles)) is not None:
        inner = s.split(inner, [None, width])[1]
    s.vectorize(inner)


def fused_width(s: Schedule, block: str, tiles: Tiles) -> Expr | None:
    """The length of a tile's vectors, if they run along the last axis of the consumer as well."""
    last = len(space_axes(s.program.blocks[block])) - 1
    alike = last == len(space_axes(s.program.blocks[tiles.block])) - 1  # else the consumer orders elements anew
    if tiles.vector is None or not alike or tiles.vector_axis != last:
        return None
    return s.program.loops[tiles.vector].extent


def _innermost_long(s: Schedule, loops: Sequence[str]) -> str | None:
    """The innermost loop with more than one iteration."""
    return next((lp for lp in reversed(loops) if value_of(s.program.loops[lp].extent) != 1), None)
