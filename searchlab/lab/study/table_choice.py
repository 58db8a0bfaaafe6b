"""The table of a family: programs for any size are measured at its representative sizes, and a few are chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from searchlab.errors import SpaceError
from searchlab.ir.program import Program
from searchlab.lab.study.size_dispatch import AnySizeProgram, SizeInterval, Times, cover, intervals
from searchlab.workloads import DynamicRange

# The time of each program at a size, and the error of those that have none.
Outcomes = Callable[[Sequence[Program], int], list[tuple[float, str]]]


class Sizes(Protocol):
    """What a choice has to know of a family: the name of its size, its range, and the sizes that stand for all."""

    @property
    def label(self) -> str:
        """The readable form."""

    @property
    def size(self) -> str:
        """The name of the size."""

    @property
    def range(self) -> DynamicRange:
        """Its values."""

    @property
    def representatives(self) -> tuple[tuple[int, float], ...]:
        """A few of them, and the share of calls that each stands for."""


@dataclass(frozen=True, eq=False)
class AnySizeRival:
    """A program for any size, and where it comes from."""

    origin: AnySizeProgram
    program: Program


@dataclass(frozen=True, eq=False)
class TableChoice:
    """The programs of the table with their intervals, as numbers of rivals, and the measured times of all rivals."""

    rivals: tuple[AnySizeRival, ...]
    times: Times
    per_size: tuple[int, ...]
    intervals: tuple[SizeInterval, ...]
    refused: tuple[str, ...]

    @property
    def numbers(self) -> list[int]:
        """The rivals that are in the table, in the order of its intervals."""
        return list(dict.fromkeys(i.program for i in self.intervals))

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs of the table, in that order."""
        return tuple(self.rivals[n].program for n in self.numbers)

    @property
    def origins(self) -> tuple[AnySizeProgram, ...]:
        """Where they come from."""
        return tuple(self.rivals[n].origin for n in self.numbers)

    @property
    def ranges(self) -> tuple[SizeInterval, ...]:
        """The intervals, with numbers of the table's own programs."""
        return tuple(replace(i, program=self.numbers.index(i.program)) for i in self.intervals)


def choose_table(
    family: Sizes, rivals: Sequence[AnySizeRival], refused: Sequence[str], outcomes: Outcomes
) -> TableChoice:
    """Measures rivals at all representative sizes and chooses the programs of the table.

    Each of these is right at the ends and in the middle of its intervals as well; `refused` says why others are
    missing.
    """
    sizes, weights = zip(*family.representatives, strict=True)
    programs, ends, why = [rival.program for rival in rivals], family.range, list(refused)
    times = np.array([[seconds for seconds, _ in outcomes(programs, size)] for size in sizes]).T
    for n in np.flatnonzero(~np.isfinite(times).all(axis=1)).tolist():
        where = sizes[int(np.flatnonzero(~np.isfinite(times[n]))[0])]
        why.append(f"{rivals[n].origin.point} fails for {family.size}={where}")
    while per_size := cover(times, weights):
        ranges = intervals(sizes, per_size, ends.low, ends.high)
        wrong = _wrong(family, programs, ranges, outcomes)
        if wrong is None:
            return TableChoice(tuple(rivals), times, tuple(per_size), ranges, tuple(why))
        number, words = wrong
        times[number] = math.inf
        why.append(f"{rivals[number].origin.point} {words}")
    raise SpaceError(f"{family.label}: no program runs for every size: {'; '.join(why)}")


def _wrong(
    family: Sizes, programs: Sequence[Program], ranges: Sequence[SizeInterval], outcomes: Outcomes
) -> tuple[int, str] | None:
    """The first program that fails at a size of an interval of its own, and how."""
    known = {size for size, _ in family.representatives}
    for n in ranges:
        for size in sorted({n.low, min(math.isqrt(n.low * n.high) + 1, n.high), n.high} - known):
            ((seconds, error),) = outcomes([programs[n.program]], size)
            if not math.isfinite(seconds):
                return n.program, f"fails for {family.size}={size}: {error}"
    return None
