"""Offsets in one arena: memory that is needed at the same time does not overlap, and the arena is small.

Finding the smallest arena is NP-hard.  Here blocks are placed one by one at the best-fitting gap between those that are
placed already and needed at the same time, in several orders, and the smallest result is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

ALIGNMENT = 64  # bytes of a cache line: every block begins at a multiple of this


@dataclass(frozen=True, slots=True)
class ArenaBlock:
    """A block of constant size that is needed from one call to another, both included."""

    name: str
    size: int
    first: int
    last: int


def rounded_up(size: int) -> int:
    """The bytes that a block occupies."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def most_live(intervals: Iterable[ArenaBlock]) -> int:
    """The most bytes that are needed at once: no arena is smaller."""
    changes: dict[int, int] = {}
    for i in intervals:
        changes[i.first] = changes.get(i.first, 0) + rounded_up(i.size)
        changes[i.last + 1] = changes.get(i.last + 1, 0) - rounded_up(i.size)
    most = live = 0
    for at in sorted(changes):
        live += changes[at]
        most = max(most, live)
    return most


# Large blocks first leaves small ones to fill gaps; the others win where lifetimes are nested or chained.
_ORDERS: tuple[Callable[[ArenaBlock], tuple[int, ...]], ...] = (
    lambda i: (-i.size, i.first),
    lambda i: (-i.size * (i.last - i.first + 1), i.first),
    lambda i: (i.first - i.last, -i.size, i.first),
    lambda i: (i.first, -i.size),
)


def packed(intervals: Sequence[ArenaBlock]) -> tuple[dict[str, int], int]:
    """An offset for each block, and the size of the arena."""
    least = most_live(intervals)
    best: tuple[dict[str, int], int] | None = None
    for order in _ORDERS:
        found = _placed(sorted(intervals, key=order))
        if best is None or found[1] < best[1]:
            best = found
        if best[1] == least:
            break
    assert best is not None
    return best


def _placed(intervals: Sequence[ArenaBlock]) -> tuple[dict[str, int], int]:
    """Blocks in the given order, each in the smallest gap that holds it, or at the end."""
    first, last, begin, end = (np.zeros(len(intervals), np.int64) for _ in range(4))
    for n, block in enumerate(intervals):
        meets = np.flatnonzero((first[:n] <= block.last) & (last[:n] >= block.first))
        at = _best_gap(begin[meets], end[meets], rounded_up(block.size))
        first[n], last[n], begin[n], end[n] = block.first, block.last, at, at + rounded_up(block.size)
    offsets = {block.name: int(at) for block, at in zip(intervals, begin, strict=True)}
    return offsets, int(end.max(initial=0))


def _best_gap(begin: np.ndarray, end: np.ndarray, size: int) -> int:
    """The offset of the smallest gap between blocks that holds `size` bytes; their end if there is none."""
    order = np.argsort(begin, kind="stable")
    begins = begin[order]
    covered = np.maximum.accumulate(np.concatenate(([0], end[order])))  # the end of everything before each block
    gaps = begins - covered[:-1]
    fitting = np.flatnonzero(gaps >= size)
    if not len(fitting):
        return int(covered[-1])
    return int(covered[fitting[np.argmin(gaps[fitting])]])
