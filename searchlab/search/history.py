"""History: what was measured, in order, of one task or of many; failures are part of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from searchlab.errors import SpaceError
from searchlab.search.knob import Floats
from searchlab.search.points import Points
from searchlab.search.space import Space


@dataclass(frozen=True, eq=False)
class Trials:
    """Measured points of one task, in the order of measuring; `seconds` is infinite where a candidate failed."""

    task: str
    space: Space
    points: Points
    seconds: Floats

    def __post_init__(self) -> None:
        if len(self.points) != len(self.seconds):
            raise SpaceError(f"{self.task}: {len(self.points)} points with {len(self.seconds)} times")

    def __len__(self) -> int:
        return len(self.points)

    @cached_property
    def best(self) -> float:
        """The shortest time, infinite if nothing worked."""
        return float(self.seconds.min(initial=np.inf))

    @cached_property
    def scores(self) -> Floats:
        """How good each candidate is among those of its task: best / seconds, so 1 is the best and 0 a failure."""
        if not np.isfinite(self.best):
            return np.zeros(len(self))
        return np.asarray(self.best / self.seconds)

    def extended(self, points: Points, seconds: Floats) -> Trials:
        """These trials and some more."""
        return Trials(self.task, self.space, Points.concat([self.points, points]), np.append(self.seconds, seconds))


@dataclass(frozen=True)
class History:
    """Trials of several tasks; the last is the one that is being searched."""

    tasks: tuple[Trials, ...] = ()

    @staticmethod
    def of(trials: Sequence[Trials]) -> History:
        """The history of these trials, in their order."""
        return History(tuple(trials))

    def __iter__(self) -> Iterator[Trials]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return sum(len(t) for t in self.tasks)
