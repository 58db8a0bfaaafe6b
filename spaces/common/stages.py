"""Where stages are computed, and how those are scheduled that are not tiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from searchlab.ir.expr import Expr, Like, value_of
from searchlab.ir.program import Block, Loop, Program
from searchlab.schedule import Schedule
from searchlab.schedule.primitive import consumers, loops_around
from spaces.common.factors import Factors
from spaces.common.predicates import (
    constant,
    is_expensive,
    only_moves_data,
    reduces_along_rows,
    space_axes,
    would_repeat,
)
from spaces.common.tiling import Tiles, attempt, fuse_parallel
from spaces.common.tiling import loops_by_kind as loops_by_kind

ROOT, INLINE = "root", "inline"


@dataclass(frozen=True)
class Location:
    """Where a stage is computed: inlined, on its own, or inside a loop; `label` is for people."""

    label: str
    loop: str | None = None


def rfactor(s: Schedule, block: str, part: Literal["outer", "inner"], factors: Factors) -> str:
    """Factors a reduction, all of whose loops become one: keeps a partial result for every outer or inner iteration.

    outer:  S_rf[i, r0] += f(i, r0, r1, r2)  threads share r0, lanes r2        (split in three)
    inner:  S_rf[i, r1] += f(i, r0, r1)      the lanes r1 lie side by side     (split in two)
    """
    space, reduction = loops_by_kind(s, block, s.loops(block))
    whole = s.fuse(*reduction) if len(reduction) > 1 else reduction[0]
    extent = constant(s.program.loops[whole].extent, f"the reduction of '{block}'")
    parts = s.split(whole, factors(f"{block}_r", extent, 3 if part == "outer" else 2))
    if part == "outer":
        s.reorder(parts[0], *space, *parts[1:])
        return s.rfactor(parts[0], len(space))
    return s.rfactor(parts[1], len(space))


def own_loops(s: Schedule, block: str) -> list[str]:
    """The innermost loops that hold this stage and nothing else."""
    found: list[str] = []
    for lp in reversed(loops_around(s.program, block)):
        if not isinstance(lp.body, (Loop, Block)):
            break
        found.append(lp.name)
    return found[::-1]


def locations(s: Schedule, block: str, tiled: Sequence[Tiles], levels: int = 3) -> list[Location]:
    """All places of a stage that are worth a try: inline, root, and after the outer levels of what reads it.

    What is dear to compute is neither inlined nor put where elements would be computed several times.
    """
    found = [
        Location(ROOT),
        *(location for location, _ in _attached(s, block, _attach_points(s, block, tiled, levels))),
    ]
    cheap = not _is_dear(s.program.blocks[block]) and not is_packing(s, block)
    if cheap and attempt(Schedule(s.program), "compute_inline", block):
        found.append(Location(INLINE))
    return found


def attached(
    s: Schedule, block: str, tiled: Sequence[Tiles], number: int, levels: int = 3
) -> tuple[Location, Program] | None:
    """The first, second, ... (counted from 0) of the `locations` of a stage that are loops, if there are so many.

    The program that has it there comes with it, and no location after it is tried.
    """
    points = _attach_points(s, block, tiled, levels)
    return next(islice(_attached(s, block, points), number, None), None) if number < len(points) else None


def _attached(s: Schedule, block: str, points: Sequence[tuple[str, str]]) -> Iterator[tuple[Location, Program]]:
    """Those points that are legal and worth a try, each with the program that has the stage there."""
    dear = _is_dear(s.program.blocks[block])
    for label, loop in points:
        if not (dear and would_repeat(s.program, block, loop)):
            moved = Schedule(s.program)
            if attempt(moved, "compute_at", block, loop):
                yield Location(label, loop), moved.program


def _is_dear(block: Block) -> bool:
    return block.reduces or is_expensive(block)


def is_packing(s: Schedule, block: str) -> bool:
    """Whether a stage is there to change where its elements lie: inlining would undo that."""
    b = s.program.blocks[block]
    return only_moves_data(b) and s.program.buffers[b.store.buffer].scope != "global"


def _attach_points(s: Schedule, block: str, tiled: Sequence[Tiles], levels: int) -> list[tuple[str, str]]:
    readers = consumers(s.program, s.program.blocks[block].store.buffer)
    if not readers:
        return []
    nests = [s.loops(r.name) for r in readers]
    common = [lp for lp in nests[0] if all(lp in nest for nest in nests)]
    for t in tiled:
        ends = [(n, t.end(n)) for n in range(min(levels, len(t.structure))) if t.levels[n]]
        if any(loop in common for _, loop in ends):
            return [(f"{t.block}{n}", loop) for n, loop in ends if loop in common]
    shared = common if len(readers) > 1 else common[:-1]
    return [(loop, loop) for loop in shared if value_of(s.program.loops[loop].extent) != 1]


def place(s: Schedule, block: str, location: Location) -> None:
    """Computes a stage where `locations` said."""
    if location.label == INLINE:
        s.compute_inline(block)
    elif location.loop is not None:
        s.compute_at(block, location.loop)


def finish_untiled(s: Schedule, block: str, factors: Factors, jobs: int) -> None:
    """A stage that is not tiled: its last axis in vectors, the loops outside shared by threads.

    The vectors run along the reduction where that walks along rows in memory, with one partial result per lane.
    """
    own = own_loops(s, block)
    around = [lp for lp in s.loops(block) if lp not in own]
    space, reduction = loops_by_kind(s, block, own)
    lane = lane_loop(s, block, own)
    if lane is not None:
        parts = lane_factors(s, block, lane, factors)
        *outer, inner = [lane] if parts is None else s.split(lane, parts)
        at = space if lane in space else reduction
        at[at.index(lane) : at.index(lane) + 1] = outer
        order = [*space, *reduction, inner]
        if order != own_loops(s, block):
            s.reorder(*order)
        s.vectorize(inner)
    if around:
        _share_around(s, around, jobs)
    elif space:
        _share(s, space, jobs)


def lane_loop(s: Schedule, block: str, own: Sequence[str]) -> str | None:
    """Which of a stage's own loops its vectors run along, if it has a loop of more than one iteration for them."""
    space, reduction = loops_by_kind(s, block, own)
    return _long(s, reduction if reduces_along_rows(s.program.blocks[block]) else space)


def lane_factors(s: Schedule, block: str, lane: str, factors: Factors) -> Sequence[Like | None] | None:
    """The loop in two, the inner part for vectors; None where its extent is no number yet: then it stays whole."""
    extent = value_of(s.program.loops[lane].extent)
    return None if extent is None else factors(f"{block}_v", extent, 2)


def _long(s: Schedule, loops: Sequence[str]) -> str | None:
    """The innermost loop of more than one iteration."""
    return next((lp for lp in reversed(loops) if value_of(s.program.loops[lp].extent) != 1), None)


def finish_fused(s: Schedule, block: str, tiles: Tiles) -> None:
    """A reader that runs on each tile: its last axis in vectors as long as those of the tile, if that is their axis."""
    inner = _long(s, own_loops(s, block))
    if inner is None:
        return
    if (width := fused_width(s, block, tiles)) is not None:
        inner = s.split(inner, [None, width])[1]
    s.vectorize(inner)


def fused_width(s: Schedule, block: str, tiles: Tiles) -> Expr | None:
    """The length of the vectors of a tile, if they run along the last axis of the reader as well."""
    if tiles.vector is None or tiles.vector_axis != len(space_axes(s.program.blocks[block])) - 1:
        return None
    return s.program.loops[tiles.vector].extent


def _share(s: Schedule, loops: Sequence[str], jobs: int) -> None:
    """Fuses outer loops until there are more than `jobs` iterations, and lets threads share them."""
    chosen: list[str] = []
    product = 1
    for lp in loops:
        chosen.append(lp)
        extent = value_of(s.program.loops[lp].extent)
        product *= extent if extent is not None else 1
        if product > jobs:
            break
    fuse_parallel(s, chosen)


def _share_around(s: Schedule, loops: Sequence[str], jobs: int) -> None:
    """The same for the loops around several stages, unless that was done before; those that do not fuse stay."""
    chosen: list[str] = []
    for lp in loops:
        directly = not chosen or s.program.loops[chosen[-1]].body is s.program.loops[lp]
        if s.program.loops[lp].kind != "serial" or not directly or not attempt(Schedule(s.program), "parallel", lp):
            break
        chosen.append(lp)
    if chosen:
        _share(s, chosen, jobs)
