"""The result of tuning a family: a few programs, each for any size, and the intervals of sizes that they run for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
TIE = 0.03  # a program that gains less than this at every size is not worth another row of the table


@dataclass(frozen=True)
class AnySizeProgram:
    """A program of the table: the size that it was found at, and its point as text and as knob settings.

    The default schedule, which needs no search, was found at no size (0).
    """

    found_at: int
    point: str
    knobs: Mapping[str, Any] = field(default_factory=dict)
    hash: str = ""


@dataclass(frozen=True)
class SizeInterval:
    """Sizes from `low` to `high`, both included, and the number of the program that is run for them."""

    low: int
    high: int
    program: int


@dataclass(frozen=True)
class SizeTimes:
    """The times at one size, all of one race: of the table, of what was tuned for this size alone, of the default.

    `weight` is the share of calls that the size stands for; `default_s` is the default schedule for a run-time size.
    """

    size: int
    weight: float
    seconds: float
    alone_s: float
    default_s: float

    @property
    def regret(self) -> float:
        """How much longer the table takes than what was tuned for this size alone, as a fraction."""
        return self.seconds / self.alone_s - 1.0


@dataclass(frozen=True)
class FamilyTable:
    """A few programs with the rule which of them is run, and how fast that is.

    `size` is the name of the run-time size.  `refused` says which of the best candidates cannot be used for every
    size, and why.
    """

    size: str
    programs: tuple[AnySizeProgram, ...]
    intervals: tuple[SizeInterval, ...]
    times: tuple[SizeTimes, ...]
    refused: tuple[str, ...] = ()

    def program_for(self, size: int) -> int:
        """The number of the program for a size; sizes out of range get that of the nearest end."""
        return next((i.program for i in self.intervals if size <= i.high), self.intervals[-1].program)

    def weighted(self, figure: Callable[[SizeTimes], float]) -> float:
        """The mean of a figure over all calls."""
        return math.fsum(t.weight * figure(t) for t in self.times) / math.fsum(t.weight for t in self.times)

    @property
    def seconds(self) -> float:
        """The mean time of a call."""
        return self.weighted(lambda t: t.seconds)

    @property
    def alone_s(self) -> float:
        """The mean time of a call with a program of its own for every size."""
        return self.weighted(lambda t: t.alone_s)

    @property
    def default_s(self) -> float:
        """The mean time of a call with the default schedule for a run-time size."""
        return self.weighted(lambda t: t.default_s)

    @property
    def regret(self) -> float:
        """The mean regret of a call."""
        return self.weighted(lambda t: t.regret)

    @property
    def worst(self) -> SizeTimes:
        """The size with the largest regret."""
        return max(self.times, key=lambda t: t.regret)

    @property
    def factors(self) -> tuple[float, ...]:
        """The time of the table over that of what was tuned for the size alone, size by size."""
        return tuple(t.seconds / t.alone_s for t in self.times)


def cover(times: Times, weights: Sequence[float], tie: float = TIE) -> list[int]:
    """The program to run at every size, of few different ones: rows of `times` are programs, columns are sizes.

    The fastest program of every size would minimise the weighted time; times within `tie` of it count as equal.  Of the
    smallest sets of programs that tie at every size, the one with the least weighted time is taken.  A program that
    failed at a size has an infinite time there, and is not used at all; without any program there is no cover.
    """
    share = np.asarray(weights, dtype=np.float64)
    usable = np.flatnonzero(np.isfinite(times).all(axis=1))
    enough = times[usable].min(axis=0, initial=np.inf) * (1.0 + tie)
    for count in range(1, min(len(usable), times.shape[1]) + 1):
        sets = np.array(list(combinations(usable.tolist(), count)))
        reached = times[sets].min(axis=1)
        good = np.flatnonzero((reached <= enough).all(axis=1))
        if len(good):
            best = sets[good[int((reached[good] @ share).argmin())]]
            return [int(best[n]) for n in times[best].argmin(axis=0)]
    return []


def intervals(sizes: Sequence[int], programs: Sequence[int], low: int, high: int) -> tuple[SizeInterval, ...]:
    """The intervals from `low` to `high` in which each size has the program of the nearest listed one, by ratio."""
    found: list[SizeInterval] = []
    begin = low
    for n, (size, program) in enumerate(zip(sizes, programs, strict=True)):
        last = n + 1 == len(sizes)
        if not last and programs[n + 1] == program:
            continue
        end = high if last else math.isqrt(size * sizes[n + 1])
        found.append(SizeInterval(begin, end, program))
        begin = end + 1
    return tuple(found)
