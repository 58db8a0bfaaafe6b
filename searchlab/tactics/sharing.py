"""Threads: choosing the outer loops to parallelise, and fusing them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from searchlab.schedule import Schedule
from searchlab.tactics.attempts import attempt, fuse_outer
from searchlab.tactics.axes import extent
from searchlab.targets import Target

LARGE = 1 << 30  # assumed for an extent that is known only at run time
JOBS = 4  # the fewest iterations of a parallel loop for each thread


def assumed_extent(s: Schedule, loop: str) -> int:
    """The extent of a loop; that of a long one if it is known only at run time."""
    known = extent(s, loop)
    return LARGE if known is None else known


def shared_loops(s: Schedule, loops: Sequence[str], target: Target) -> list[str]:
    """The outermost loops of a nest, until there are enough iterations to balance all threads."""
    return outermost(s, loops, JOBS * target.threads, unknown=LARGE)


def parallelize(s: Schedule, loops: Sequence[str], target: Target) -> None:
    """Shares the outermost loops of a nest among the threads of a target, fused until there are enough iterations."""
    if target.threads > 1 and loops:
        attempt(s.parallel, fuse_outer(s, shared_loops(s, loops, target)))


def outermost(s: Schedule, loops: Sequence[str], iterations: int, unknown: int = 1) -> list[str]:
    """The fewest outermost loops of a nest that together have at least `iterations` iterations, else all of them.

    A loop whose extent is not a constant counts as `unknown` iterations.
    """
    sizes = [unknown if (known := extent(s, lp)) is None else known for lp in loops]
    count = next((n for n in range(1, len(loops) + 1) if prod(sizes[:n]) >= iterations), len(loops))
    return list(loops[:count])


def fuse_parallel(s: Schedule, loops: Sequence[str]) -> str:
    """Fuses perfectly nested loops into one parallel loop."""
    fused = s.fuse(*loops) if len(loops) > 1 else loops[0]
    s.parallel(fused)
    return fused


def share(s: Schedule, loops: Sequence[str], iterations: int) -> None:
    """Parallelises the outermost loops of a nest, fused until there are enough iterations."""
    fuse_parallel(s, outermost(s, loops, iterations))


def share_around(s: Schedule, loops: Sequence[str], iterations: int) -> None:
    """Parallelises loops around several stages unless they already are; stops at the first that cannot be fused."""
    chosen: list[str] = []
    for lp in loops:
        directly = not chosen or s.program.loops[chosen[-1]].body is s.program.loops[lp]
        trial = Schedule(s.program)
        if s.program.loops[lp].kind != "serial" or not directly or not attempt(trial.parallel, lp):
            break
        chosen.append(lp)
    if chosen:
        share(s, chosen, iterations)
