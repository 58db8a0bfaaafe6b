"""Objectives of tuning several tasks together: what a network's tasks, taken together, are worth.

An objective is a function of the best times of all tasks; smaller is better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Objective = Callable[[Sequence[float]], float]


@dataclass(frozen=True)
class Latency:
    """The time of one run of everything: each task's time as often as it occurs."""

    weights: tuple[float, ...]

    def __call__(self, seconds: Sequence[float]) -> float:
        return math.fsum(w * s for w, s in zip(self.weights, seconds, strict=True))

    def by_name(self, seconds: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """The time of everyone who has one for every task."""
        everywhere = [name for name in seconds[0] if all(name in task for task in seconds)]
        return {name: self([task[name] for task in seconds]) for name in everywhere}


@dataclass(frozen=True)
class Requirement:
    """Several networks with a time that is enough for each: what lies below it is worth nothing."""

    networks: tuple[tuple[float, ...], ...]
    limits_s: tuple[float, ...]

    def __call__(self, seconds: Sequence[float]) -> float:
        pairs = zip(self.networks, self.limits_s, strict=True)
        return math.fsum(max(Latency(w)(seconds), limit) for w, limit in pairs)


@dataclass(frozen=True)
class SpeedUp:
    """The geometric mean of the networks' speed-ups over a baseline, negated so that smaller is better."""

    networks: tuple[tuple[float, ...], ...]
    baselines_s: tuple[float, ...]

    def __call__(self, seconds: Sequence[float]) -> float:
        pairs = zip(self.networks, self.baselines_s, strict=True)
        logs = [math.log(base / Latency(w)(seconds)) for w, base in pairs]
        return -math.exp(math.fsum(logs) / len(logs))


@dataclass(frozen=True)
class Patient:
    """Another objective in which a task counts no more once it has not improved for some rounds."""

    inner: Objective
    rounds: int = 5

    def __call__(self, seconds: Sequence[float]) -> float:
        return self.inner(seconds)
