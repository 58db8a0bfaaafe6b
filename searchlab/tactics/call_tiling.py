"""Multi-level tiling around the calls of an intrinsic, with operands laid out for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from searchlab.ir.expr import TRUE, ZERO, Expr, Like, compare, index
from searchlab.schedule import Schedule
from searchlab.tactics.axes import axis_loops, loops_by_kind, space_axes
from searchlab.tactics.intrinsic_views import IntrinsicView, Part
from searchlab.tactics.panel_tiling import fuse_reader
from searchlab.tactics.tensorizing import lay_for_calls
from searchlab.tactics.tiling import Factors, Tiles, parallel_outer, tile, transpose_results
from searchlab.targets import Target


@dataclass(frozen=True)
class CallTiles:
    """The loops around calls, the stages that lay operands out, and the condition that a tile fits the registers."""

    tiles: Tiles
    copies: tuple[str, ...]
    fits: Expr


def structure_around(structure: str, view: IntrinsicView) -> str:
    """The levels of loops around calls; the innermost of space are the calls of a tile, unless a call is a tile."""
    at = structure.rindex("S")
    return structure if view.shape.rows == 1 else structure[:at] + structure[at + 1 :]


def results_are_in_order(s: Schedule, view: IntrinsicView) -> bool:
    """Whether a call writes to neighbouring elements of the output, all of which exist."""
    space = space_axes(s.program.blocks[view.block])
    whole = space[view.column].extent % view.shape.columns == ZERO
    return view.column == len(space) - 1 and whole


def tile_for_calls(
    s: Schedule,
    view: IntrinsicView,
    structure: str,
    factors: Factors,
    exact: Factors,
    target: Target,
    ahead: bool,
    fused: tuple[str, int] | None = None,
) -> CallTiles:
    """Tiles a stage around calls of an intrinsic and inserts these; outer tiles are parallel, those of calls unrolled.

    matmul with "SSRSRS" and calls of 16 columns by 4 terms:   i0 j0  i1 j1  k0  i2 j2  k1  i3 j3  [16, 4]

    `ahead` and `fused` are as for panels.  Factors are asked for by the names of axes, along which calls are counted;
    those of axes of space that calls were split off are `exact`, since a tail would end between calls of one tile, and
    the stage that reads its results could not tell which of them there are.
    """
    laid = lay_for_calls(s, view, ahead)
    names = {lp: lp for lp in s.loops(view.block)}
    call, column = _split_off(s, view, names)
    levels = structure_around(structure, view)
    split = {lp for lp, axis in names.items() if lp != axis} & set(loops_by_kind(s, view.block, s.loops(view.block))[0])

    def chosen(axis: str, extent: int, parts: int) -> Sequence[Like | None]:
        return (exact if axis in split else factors)(names[axis], extent, parts)

    made = tile(s, view.block, levels, chosen, view.column, call)
    tiles = replace(parallel_outer(s, made), vector=column, vector_axis=view.column)
    if fused is not None:
        fuse_reader(s, fused[0], tiles, fused[1])
    if view.column != len(space_axes(s.program.blocks[view.block])) - 1:
        transpose_results(s, tiles)
    fits: Expr = TRUE
    if view.shape.rows == 1:
        inner = made.levels[levels.rindex("S")]
        fits = _fits(s, view, inner, made.vector, target)
        if inner:
            s.unroll(*inner)
    block = s.tensorize(call[0], view.intrinsic.name)
    return CallTiles(replace(tiles, call=block), laid.copies, fits)


def _split_off(s: Schedule, view: IntrinsicView, names: dict[str, str]) -> tuple[tuple[str, ...], str]:
    """Splits the loops of one call off the axes: returns them, outermost first, and the one over columns.

    The loops over calls get the `names` of the axes.
    """
    space, sums = axis_loops(s, view.block)
    left: dict[str, list[str]] = {}
    loops: dict[Part, str] = {"row": space[view.row], "column": space[view.column], "depth": sums[view.depth]}
    for part, loop in loops.items():
        extents = view.shape.along(part)
        outer, *left[part] = s.split(loop, [None, *extents], tail=part == "row") if extents else [loop]
        names[outer] = names[loop]
    column = left["column"][0]
    return tuple(left[part].pop(0) for part, _ in view.shape.parts), column


def _fits(s: Schedule, view: IntrinsicView, inner: tuple[str, ...], vector: str | None, target: Target) -> Expr:
    """The condition that the accumulators of a tile of calls fit the registers, with what the calls need beside."""
    rows: Like = 1
    vectors: Like = 1
    for lp in inner:
        extent = s.program.loops[lp].extent
        rows, vectors = (rows, extent) if lp == vector else (rows * extent, vectors)
    spare = view.intrinsic.needs.registers - 2  # per vector of columns, and once for the row
    return compare("le", index(rows * vectors + (vectors + 1) * spare), target.vector_registers)
