"""Multi-level tiling of a stage by a structure string, and what is done with the loops of each level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from searchlab.errors import ScheduleError, SpaceError
from searchlab.ir.expr import ONE, Expr, Like, value_of, variables
from searchlab.schedule import Schedule
from searchlab.schedule.loops import resolved_bindings
from spaces.common.factors import Factors
from spaces.common.predicates import constant


@dataclass(frozen=True)
class Tiles:
    """The loops of a tiled stage, level by level, outermost first; `vector` is the innermost space loop."""

    block: str
    structure: str
    levels: tuple[tuple[str, ...], ...]
    vector: str | None
    vector_axis: int

    def end(self, level: int) -> str:
        """The innermost loop of a level, or of the nearest one outside it that has loops."""
        return next(loops[-1] for loops in reversed(self.levels[: level + 1]) if loops)

    def space_level(self, number: int) -> int:
        """The position of the first, second, ... level of space loops (counted from 1) in the structure."""
        return [n for n, kind in enumerate(self.structure) if kind == "S"][number - 1]


def check_structure(structure: str) -> None:
    """Refuses what is not a structure of tiles: threads share the first level, vectors run along the last of space."""
    if not structure.startswith("S") or set(structure) != {"S", "R"} or structure.count("S") < 2:
        accepted = "a word of S (space, at least twice) and R (reduction) that begins with S, such as SSRSRS"
        raise SpaceError(f"structure '{structure}' is not {accepted}")


def tile(s: Schedule, block: str, structure: str, factors: Factors, vector_axis: int | None = None) -> Tiles:
    """Splits every axis into one loop per level of its kind, and orders the loops level by level.

    matmul with "SSRSRS":   i0 j0  i1 j1  k0  i2 j2  k1  i3 j3

    The axis that is to be in vectors (the last one, or `vector_axis`) is innermost in its levels.  An axis of one
    iteration is not split; it stands in the first level of its kind.
    """
    space, reduction = loops_by_kind(s, block, s.loops(block))
    loops, count = [*space, *reduction], len(space)
    last = vector_axis if vector_axis is not None else _last_axis(s, space)
    order = [n for n in range(count) if n != last] + [last] if count else []
    places = {kind: [n for n, k in enumerate(structure) if k == kind] for kind in "SR"}
    levels: list[list[str]] = [[] for _ in structure]
    for n in [*order, *range(count, len(loops))]:
        at = places["S" if n < count else "R"]
        extent = constant(s.program.loops[loops[n]].extent, f"loop '{loops[n]}'")
        cut = extent > 1 and len(at) > 1
        parts = s.split(loops[n], factors(loops[n], extent, len(at))) if cut else [loops[n]]
        for level, made in zip(at, parts, strict=False):
            levels[level].append(made)
    flat = [lp for level in levels for lp in level]
    if flat != s.loops(block):
        s.reorder(*flat)
    vector = levels[places["S"][-1]][-1] if levels[places["S"][-1]] else None
    return Tiles(block, structure, tuple(map(tuple, levels)), vector, last)


def loops_by_kind(s: Schedule, block: str, loops: Sequence[str]) -> tuple[list[str], list[str]]:
    """Loops that move through a stage's space, and those that carry its reduction."""
    b = s.program.blocks[block]
    pairs = zip(b.iters, resolved_bindings(s.program, b), strict=True)
    carried = {v.name for it, e in pairs if it.kind == "reduce" for v in variables(e)}
    return [lp for lp in loops if lp not in carried], [lp for lp in loops if lp in carried]


def _last_axis(s: Schedule, space: Sequence[str]) -> int:
    """The last axis with more than one iteration."""
    long = [n for n, lp in enumerate(space) if value_of(s.program.loops[lp].extent) != 1]
    return long[-1] if long else len(space) - 1


def parallel_outer(s: Schedule, tiles: Tiles) -> Tiles:
    """Fuses the outermost level into one loop, which threads share; loops of one iteration stay around it."""
    short = [lp for lp in tiles.levels[0] if value_of(s.program.loops[lp].extent) == 1]
    long = [lp for lp in tiles.levels[0] if lp not in short]
    if short and long:
        s.reorder(*short, *long)
    fused = fuse_parallel(s, long or short)
    return replace(tiles, levels=((*(short if long else ()), fused), *tiles.levels[1:]))


def fuse_parallel(s: Schedule, loops: Sequence[str]) -> str:
    """One parallel loop of several."""
    fused = s.fuse(*loops) if len(loops) > 1 else loops[0]
    s.parallel(fused)
    return fused


def vectorize_tile(s: Schedule, tiles: Tiles) -> None:
    """Puts the innermost space loop into vectors."""
    if tiles.vector is not None:
        s.vectorize(tiles.vector)


def unroll_up_to(s: Schedule, block: str, steps: Like) -> None:
    """Lets code generation write out inner loops up to that many copies of the stage; a vector counts as one."""
    lanes: Expr = ONE
    for lp in s.loops(block):
        if s.program.loops[lp].kind == "vectorized":
            lanes = lanes * s.program.loops[lp].extent
    s.annotate(block, "unroll_up_to", lanes * steps)


def attempt(s: Schedule, primitive: str, *arguments: object) -> bool:
    """Whether a primitive was legal; a refused one leaves the program as it was."""
    try:
        getattr(s, primitive)(*arguments)
    except ScheduleError:
        return False
    return True
