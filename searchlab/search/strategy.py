"""Strategy: decides which candidates to measure next; searchlab/strategies holds the built-in ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from searchlab.errors import SpaceError
from searchlab.registry import Registry
from searchlab.search.knob import Floats, Keys
from searchlab.search.points import Points
from searchlab.search.space import Space

Scorer = Callable[[Points], Floats]


class Strategy(ABC):
    """Proposes points and learns from their times; a plug-in implements `ask`, and `tell` if it learns.

    The base class keeps track of proposals and results: `points` with their `seconds`, each point once, in the order in
    which they were first told, and `pending` points, proposed but not yet told.  Options are the parameters of the
    constructor other than `space` and `rng`, its only source of randomness.

    `expects_model` is set by a study with a cost model: an `ask` without a score then precedes the first training.
    """

    name: ClassVar[str]
    version: ClassVar[str] = "1"
    needs_model: ClassVar[bool] = False  # whether it draws at random without a model
    expects_model: bool = False

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self.space, self.rng = space, rng
        self.points, self.seconds = Points.empty(space.width), np.empty(0)
        self.pending = Points.empty(space.width)
        self._rows: dict[int, int] = {}
        self._known: set[int] = set()

    @abstractmethod
    def ask(self, count: int, score: Scorer | None = None) -> Points:
        """Up to `count` distinct points that were not proposed before; fewer, even none, if the space is exhausted.

        `score` is the cost model bound to the space, smaller is better; None without a model or before its training.
        """

    def tell(self, points: Points, seconds: Floats) -> None:
        """Receives measured times, in any order and for any points, even unrequested ones; infinite for a failure.

        A point that is told again takes the newer time.
        """
        seconds = np.asarray(seconds, np.float64)
        if seconds.shape != (len(points),) or np.isnan(seconds).any():
            raise SpaceError(f"{self.name}: {len(points)} points are told with as many times, got {seconds.tolist()}")
        keys = self.space.key(points)
        rows = [self._rows.setdefault(key, len(self._rows)) for key in keys.tolist()]
        new = np.unique(rows, return_index=True)[1]
        self.points = Points.concat([self.points, points[new[np.take(rows, new) >= len(self.points)]]])
        self.seconds = np.append(self.seconds, np.empty(len(self.points) - len(self.seconds)))
        self.seconds[rows] = seconds
        self.pending = self.pending[~np.isin(self.space.key(self.pending), keys)]
        self.exclude(points)

    # --- for strategies -----------------------------------------------------------------------------------------------

    def exclude(self, points: Points) -> None:
        """Marks points that must not be proposed again."""
        self._known.update(self.space.key(points).tolist())

    @property
    def known(self) -> Keys:
        """The keys of all points proposed or told."""
        return np.fromiter(self._known, np.uint64, len(self._known))

    def fresh(self, points: Points) -> Points:
        """The points that are neither proposed nor told yet, without duplicates, in order."""
        keys = self.space.key(points)
        first = np.sort(np.unique(keys, return_index=True)[1])
        return points[[n for n in first.tolist() if int(keys[n]) not in self._known]]

    def take(self, points: Points, count: int) -> Points:
        """The first `count` new points of a batch; they count as proposed."""
        taken = self.fresh(points)[:count]
        self.exclude(taken)
        self.pending = Points.concat([self.pending, taken])
        return taken

    def draw(self, count: int) -> Points:
        """Draws new random points, fewer if there are no more; they count as proposed."""
        return self.take(self.space.sample_new(count, self.rng, self.known).points, count)

    def leaders(self, count: int) -> Points:
        """The best points told so far, best first, without failures."""
        return self.points[np.argsort(self.seconds, kind="stable")[: min(count, int(np.isfinite(self.seconds).sum()))]]


STRATEGIES: Registry[Strategy] = Registry("strategy", "searchlab.strategies", Strategy)  # type: ignore[type-abstract]
