"""Objectives of tuning several tasks together.

An objective is a function of the best times of all tasks; smaller is better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Objective = Callable[[Sequence[float]], float]


@dataclass(frozen=True)
class Latency:
    """The time of one run of the network: the sum of its tasks' times, each weighted by how often it occurs."""

    weights: tuple[float, ...]

    def __call__(self, seconds: Sequence[float]) -> float:
        return math.fsum(w * s for w, s in zip(self.weights, seconds, strict=True))

    def by_name(self, seconds: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """The total time of each contender that has a time for every task."""
        everywhere = [name for name in seconds[0] if all(name in task for task in seconds)]
        return {name: self([task[name] for task in seconds]) for name in everywhere}


@dataclass(frozen=True)
class Patient:
    """Wraps an objective such that a task no longer counts once it has not improved for some rounds."""

    inner: Objective
    rounds: int = 5

    def __call__(self, seconds: Sequence[float]) -> float:
        return self.inner(seconds)
