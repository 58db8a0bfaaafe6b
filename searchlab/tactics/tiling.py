"""Multi-level tiling of a stage by a structure string, and the follow-up steps for the loops of each level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from searchlab.ir.expr import ONE, Expr, Like, value_of
from searchlab.schedule import Schedule
from searchlab.tactics.axes import call_around, constant, loops_by_kind
from searchlab.tactics.panels import lay_in_panels
from searchlab.tactics.sharing import fuse_parallel

Factors = Callable[[str, int, int], Sequence[Like | None]]
"""(axis, extent, parts) -> as many factors, outermost first; one of them may be None and is worked out."""


class RoundedUp(tuple[Like | None, ...]):
    """Factors whose product may be more than the extent: the loop that they split has a tail."""


def split_by(s: Schedule, loop: str, factors: Sequence[Like | None]) -> list[str]:
    """Splits a loop by what `Factors` returned for it."""
    return s.split(loop, factors, tail=True) if isinstance(factors, RoundedUp) else s.split(loop, factors)


@dataclass(frozen=True)
class Tiles:
    """The loops of a tiled stage, level by level, outermost first; `vector` is the innermost spatial loop.

    Where tiles consist of calls of an intrinsic, `vector` is the loop over the columns of one, and `call` the block
    around its loops.
    """

    block: str
    structure: str
    levels: tuple[tuple[str, ...], ...]
    vector: str | None
    vector_axis: int
    call: str | None = None

    def end(self, level: int) -> str:
        """The innermost loop of a level, or of the nearest non-empty level outside it."""
        return next(loops[-1] for loops in reversed(self.levels[: level + 1]) if loops)

    def space_level(self, number: int) -> int:
        """The position in the structure of a level of spatial loops, counted from 1."""
        return [n for n, kind in enumerate(self.structure) if kind == "S"][number - 1]


def tile(
    s: Schedule,
    block: str,
    structure: str,
    factors: Factors,
    vector_axis: int | None = None,
    inside: Sequence[str] = (),
) -> Tiles:
    """Splits every axis into one loop per level of its kind, and orders the loops level by level.

    matmul with "SSRSRS":   i0 j0  i1 j1  k0  i2 j2  k1  i3 j3

    The axis to vectorise (the last one, or `vector_axis`) is innermost in its levels.  An axis of one iteration is not
    split; it belongs to the first level of its kind.  The loops `inside` tiles are innermost, in their order.
    """
    space, reduction = loops_by_kind(s, block, [lp for lp in s.loops(block) if lp not in inside])
    last = vector_axis if vector_axis is not None else _last_axis(s, space)
    vectors = space[last : last + 1]
    ordered = [*(lp for lp in space if lp not in vectors), *vectors]
    levels: list[list[str]] = [[] for _ in structure]
    for kind, loops in (("S", ordered), ("R", reduction)):
        at = [n for n, k in enumerate(structure) if k == kind]
        for loop in loops:
            for level, made in zip(at, _split(s, loop, factors, len(at)), strict=False):
                levels[level].append(made)
    flat = [*(lp for level in levels for lp in level), *inside]
    if flat != s.loops(block):
        s.reorder(*flat)
    innermost = levels[structure.rindex("S")]
    return Tiles(block, structure, tuple(map(tuple, levels)), innermost[-1] if innermost else None, last)


def _split(s: Schedule, loop: str, factors: Factors, parts: int) -> list[str]:
    """Splits a loop, unless it has one iteration or there is only one part."""
    extent = constant(s.program.loops[loop].extent, f"loop '{loop}'")
    return split_by(s, loop, factors(loop, extent, parts)) if extent > 1 and parts > 1 else [loop]


def _last_axis(s: Schedule, space: Sequence[str]) -> int:
    """The last axis with more than one iteration."""
    long = [n for n, lp in enumerate(space) if value_of(s.program.loops[lp].extent) != 1]
    return long[-1] if long else len(space) - 1


def parallel_outer(s: Schedule, tiles: Tiles) -> Tiles:
    """Fuses the outermost level into one parallel loop; loops of one iteration stay around it."""
    short = [lp for lp in tiles.levels[0] if value_of(s.program.loops[lp].extent) == 1]
    long = [lp for lp in tiles.levels[0] if lp not in short]
    if short and long:
        s.reorder(*short, *long)
    fused = fuse_parallel(s, long or short)
    return replace(tiles, levels=((*(short if long else ()), fused), *tiles.levels[1:]))


def vectorize_tile(s: Schedule, tiles: Tiles) -> None:
    """Vectorises the innermost spatial loop, unless it is inside a call, which has vectors of its own."""
    if tiles.vector is not None and tiles.call is None:
        s.vectorize(tiles.vector)


def vector_width(s: Schedule, tiles: Tiles) -> Expr:
    """The length of the vectors of a tile."""
    assert tiles.vector is not None
    return s.program.loops[tiles.vector].extent


def transpose_results(s: Schedule, tiles: Tiles) -> None:
    """Lays out a stage's results so that each vector is contiguous; its consumer restores the order."""
    buffer = s.program.blocks[tiles.block].store.buffer
    lay_in_panels(s, buffer, tiles.vector_axis, vector_width(s, tiles))


def unroll_up_to(s: Schedule, block: str, steps: Like) -> None:
    """Lets code generation unroll inner loops to at most `steps` copies of the stage; a vector or a call is one."""
    if (call := call_around(s.program, block)) is not None:
        s.annotate(call, "unroll_up_to", steps)
        return
    lanes: Expr = ONE
    for lp in s.loops(block):
        if s.program.loops[lp].kind == "vectorized":
            lanes = lanes * s.program.loops[lp].extent
    s.annotate(block, "unroll_up_to", lanes * steps)


def rfactor(s: Schedule, block: str, part: Literal["outer", "inner"], factors: Factors) -> str:
    """Fuses the loops of a reduction and factors it: a partial result is kept for every outer or inner iteration.

    outer:  S_rf[i, r0] += f(i, r0, r1, r2)  threads along r0, lanes along r2  (split in three)
    inner:  S_rf[i, r1] += f(i, r0, r1)      contiguous lanes along r1         (split in two)
    """
    space, reduction = loops_by_kind(s, block, s.loops(block))
    whole = s.fuse(*reduction) if len(reduction) > 1 else reduction[0]
    extent = constant(s.program.loops[whole].extent, f"the reduction of '{block}'")
    parts = split_by(s, whole, factors(f"{block}_r", extent, 3 if part == "outer" else 2))
    if part == "outer":
        s.reorder(parts[0], *space, *parts[1:])
        return s.rfactor(parts[0], len(space))
    return s.rfactor(parts[1], len(space))
