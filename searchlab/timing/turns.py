"""Interleaved contenders, round by round: the primitive of all races and re-measurements.

Within a round every contender is sampled once, so all of them meet the same machine conditions.  Races, final races,
run-offs, confirmations of incumbents, validations and verifications of exports differ in their contenders, the
sampling of a turn, the number of rounds, and the use of the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Protocol

from searchlab.timing.protocol import Figure, figure_of

_MOST = 0.9

Sample = Callable[[str], Sequence[float]]


class Order(Protocol):
    """The order of contenders in a round, given its number."""

    def __call__(self, names: Sequence[str], number: int) -> Iterable[str]: ...


def as_given(names: Sequence[str], number: int) -> Iterable[str]:
    """The same order in every round."""
    return names


def alternating(names: Sequence[str], number: int) -> Iterable[str]:
    """Forwards and backwards alternately, since a warm cache or a high clock favours the next contender."""
    return names if number % 2 == 0 else names[::-1]


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds per run: the best sample, the typical one, and how many there were.

    `spread` is the difference between the best of the even rounds and the best of the odd ones, relative to the best.
    """

    min: float
    median: float
    rounds: int
    spread: float = 0.0

    @classmethod
    def of(cls, rounds: Sequence[Sequence[float]]) -> Times:
        """The times of one contender from its samples, round by round."""
        every = [sample for one in rounds for sample in one]
        halves = [min(map(min, half)) for half in (rounds[::2], rounds[1::2]) if half]
        spread = (max(halves) - min(halves)) / min(halves)
        return cls(figure_of(every, "fastest"), figure_of(every, "median"), len(every), spread)


class Turns:
    """The samples of all contenders so far, by name and round; a turn that failed has none."""

    def __init__(self, names: Sequence[str]) -> None:
        self.samples: dict[str, list[Sequence[float]]] = {name: [] for name in names}
        self.count = 0  # complete rounds

    def times(self) -> dict[str, Times]:
        """The times of every contender."""
        return {name: Times.of(rounds) for name, rounds in self.samples.items()}

    @property
    def noise(self) -> float:
        """The typical difference between two measurements of one contender: in even rounds and in odd ones."""
        return noise([times.spread for times in self.times().values()])

    def pairs(self, first: str, second: str, figure: Figure = "fastest") -> list[tuple[float, float]]:
        """The figures of two contenders, for each round in which both have one."""
        rounds = zip(self.samples[first], self.samples[second], strict=True)
        return [(figure_of(a, figure), figure_of(b, figure)) for a, b in rounds if a and b]


def take_turns(names: Sequence[str], sample: Sample, more: Callable[[Turns], bool], order: Order = as_given) -> Turns:
    """Samples every contender once per round, while `more` returns True."""
    turns = Turns(names)
    while more(turns):
        for name in order(names, turns.count):
            turns.samples[name].append(sample(name))
        turns.count += 1
    return turns


def noise(spreads: Sequence[float]) -> float:
    """The spread that nine of ten contenders do not exceed."""
    ordered = sorted(spreads)
    return ordered[ceil(_MOST * len(ordered)) - 1] if ordered else 0.0
