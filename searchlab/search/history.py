"""History: all measurements of one or more tasks in order, including failures."""

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
    """Measured points of one task, in the order of measurement; `seconds` is infinite where a candidate failed."""

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
        """The shortest time; infinite if every candidate failed."""
        return float(self.seconds.min(initial=np.inf))

    @cached_property
    def scores(self) -> Floats:
        """The score of each candidate within its task: best / seconds, so 1 is the best and 0 a failure."""
        if not np.isfinite(self.best):
            return np.zeros(len(self))
        return np.asarray(self.best / self.seconds)

    def extended(self, points: Points, seconds: Floats) -> Trials:
        """A copy with further trials appended."""
        return Trials(self.task, self.space, Points.concat([self.points, points]), np.append(self.seconds, seconds))


@dataclass(frozen=True)
class History:
    """Trials of several tasks; the last task is the one being searched."""

    tasks: tuple[Trials, ...] = ()

    @staticmethod
    def of(trials: Sequence[Trials]) -> History:
        """The history of these trials, in their order."""
        return History(tuple(trials))

    def __iter__(self) -> Iterator[Trials]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return sum(len(t) for t in self.tasks)
