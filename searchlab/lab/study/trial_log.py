"""The trials of a study with the time that counts for each, by point and by program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from searchlab.lab.study.subject import Candidate, SpaceSubject
from searchlab.search import Points, Trials
from searchlab.search.knob import Floats


class TrialLog:
    """All trials of a subject; a re-measurement may lower their times."""

    def __init__(self, subject: SpaceSubject) -> None:
        self.trials = Trials(subject.name, subject.space, Points.empty(subject.space.width), np.empty(0))
        self._by_program: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self.trials)

    def add(self, candidates: Sequence[Candidate], points: Points, seconds: Floats) -> None:
        """Adds a measured batch with its `points`."""
        for candidate, time in zip(candidates, seconds.tolist(), strict=True):
            self._by_program[candidate.digest] = time
        self.trials = self.trials.extended(points, seconds)

    def of_program(self, digest: str) -> float | None:
        """The time of a program; None if it has not been measured."""
        return self._by_program.get(digest)

    def seconds(self, candidate: Candidate) -> float:
        """The time that counts for a candidate that has been measured."""
        return self._by_program[candidate.digest]

    def lower(self, candidate: Candidate, seconds: float) -> bool:
        """Replaces the time of a candidate by a faster one; a slower one is ignored as the effect of a slow phase."""
        if seconds >= self.seconds(candidate):
            return False
        self._by_program[candidate.digest] = seconds
        rows = self.trials.space.key(self.trials.points) == candidate.key
        self.trials = replace(self.trials, seconds=np.where(rows, seconds, self.trials.seconds))
        return True
