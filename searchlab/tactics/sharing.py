"""Threads: which outer loops they share, and these loops as one."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from searchlab.schedule import Schedule
from searchlab.tactics.attempts import attempt
from searchlab.tactics.axes import extent


def outermost(s: Schedule, loops: Sequence[str], iterations: int, unknown: int = 1) -> list[str]:
    """The first of some nested loops, as many as it takes to have that many iterations together.

    `unknown` is how many iterations a loop counts for whose extent is not a number yet.
    """
    sizes = [unknown if (known := extent(s, lp)) is None else known for lp in loops]
    count = next((n for n in range(1, len(loops) + 1) if prod(sizes[:n]) >= iterations), len(loops))
    return list(loops[:count])


def fuse_parallel(s: Schedule, loops: Sequence[str]) -> str:
    """Makes one parallel loop of several that are directly nested."""
    fused = s.fuse(*loops) if len(loops) > 1 else loops[0]
    s.parallel(fused)
    return fused


def share(s: Schedule, loops: Sequence[str], iterations: int) -> None:
    """Lets threads share the outermost of some nested loops, fused until there are enough iterations."""
    fuse_parallel(s, outermost(s, loops, iterations))


def share_around(s: Schedule, loops: Sequence[str], iterations: int) -> None:
    """The same for loops around several stages, unless that was done before; those that do not fuse stay."""
    chosen: list[str] = []
    for lp in loops:
        directly = not chosen or s.program.loops[chosen[-1]].body is s.program.loops[lp]
        trial = Schedule(s.program)
        if s.program.loops[lp].kind != "serial" or not directly or not attempt(trial.parallel, lp):
            break
        chosen.append(lp)
    if chosen:
        share(s, chosen, iterations)
