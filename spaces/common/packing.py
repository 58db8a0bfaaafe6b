"""Packing: an operand in panels, so that one vector of outputs reads neighbours, and results that lie the same way."""

from __future__ import annotations

from searchlab.ir.expr import Expr, Var
from searchlab.schedule import Schedule
from spaces.common.predicates import Panel
from spaces.common.stages import own_loops
from spaces.common.tiling import Tiles


def pack(s: Schedule, tiles: Tiles, panel: Panel, ahead: bool) -> str | None:
    """Stores an operand of a tiled stage in panels as wide as its vectors.

        B[k, j]   =>   B[j // v, k, j % v]

    With `ahead` the operand is a constant input that is packed before the kernel runs; otherwise a stage copies it,
    whose name is returned.
    """
    copy = None if ahead else s.cache_read(tiles.block, panel.buffer)
    lay_in_panels(s, tiles, copy or panel.buffer, panel.dimension)
    return copy


def lay_in_panels(s: Schedule, tiles: Tiles, buffer: str, dimension: int) -> None:
    """Gives a buffer a layout of panels along one of its dimensions."""
    rank = len(s.program.buffers[buffer].shape)
    s.transform_layout(buffer, _panels(rank, dimension, _width(s, tiles)))


def transpose_results(s: Schedule, tiles: Tiles) -> None:
    """Lays a stage's results out with the elements of each vector side by side; its reader puts them back in order."""
    lay_in_panels(s, tiles, s.program.blocks[tiles.block].store.buffer, tiles.vector_axis)


def read_rows_as_they_lie(s: Schedule, copy: str, panel: Panel) -> None:
    """Lets a packing stage walk along rows of the operand and spread them over the panels."""
    own = own_loops(s, copy)
    if (order := rows_first(s, copy, panel)) != own:
        s.reorder(*order[:-1])


def rows_first(s: Schedule, copy: str, panel: Panel) -> list[str]:
    """The loops of a packing stage in the order in which it walks along rows, where it can."""
    own = own_loops(s, copy)
    rank = len(s.program.blocks[copy].iters) - 1
    if panel.dimension != rank - 1 or len(own) != rank + 1:
        return own
    return [*own[1:-1], own[0], own[-1]]


def _width(s: Schedule, tiles: Tiles) -> Expr:
    assert tiles.vector is not None
    return s.program.loops[tiles.vector].extent


def _panels(rank: int, dimension: int, width: Expr) -> tuple[tuple[Var, ...], tuple[Expr, ...]]:
    olds = tuple(Var(f"x{n}") for n in range(rank))
    x = olds[dimension]
    return olds, (x // width, *(v for v in olds if v is not x), x % width)
