"""Strategies that do not learn, as reference points for those that do."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from searchlab.errors import SpaceError
from searchlab.search import Points, Scorer, Space, Strategy


class Random(Strategy):
    """Random search: new points, drawn uniformly without replacement."""

    name = "random"

    def ask(self, count: int, score: Scorer | None = None) -> Points:
        """New points at random."""
        return self.draw(count)


class Grid(Strategy):
    """Exhaustive search: all points in index order, or in strides that cover the space evenly from the start."""

    name = "grid"
    LISTED = 1 << 20

    def __init__(
        self, space: Space, rng: np.random.Generator, order: Literal["index", "stride"] = "stride", start: int = 0
    ) -> None:
        super().__init__(space, rng)
        if order not in ("index", "stride"):
            raise SpaceError(f"grid: unknown order '{order}'; known: index, stride")
        self._listed = space.size.exact and space.size.valid <= self.LISTED
        self._size = space.size.valid if self._listed else space.size.cartesian
        self._stride = _stride(self._size) if order == "stride" else 1
        self._start, self._done = start, 0
        self._queue = Points.empty(space.width)

    def ask(self, count: int, score: Scorer | None = None) -> Points:
        """The next points of the grid."""
        self._queue = self.fresh(self._queue)
        limit = self._done + self.LISTED  # if hardly any point is valid, a batch may stay small
        while len(self._queue) < count and self._done < min(self._size, limit):
            steps = range(self._done, min(self._done + max(count, 1024), self._size))
            self._done = steps.stop
            more = self._at([(self._start + n * self._stride) % self._size for n in steps])
            self._queue = self.fresh(Points.concat([self._queue, more]))
        taken = self.take(self._queue, count)
        self._queue = self._queue[len(taken) :]
        return taken

    def _at(self, places: list[int]) -> Points:
        if self._listed:
            return self.space.enumerate()[places]
        found = self.space.at(places)
        return found[self.space.valid(found)]


def _stride(size: int) -> int:
    """A stride near the golden section of the size that visits every index once before it returns to the start."""
    step = max(round(size * (math.sqrt(5) - 1) / 2), 1)
    while math.gcd(step, size) != 1:
        step += 1
    return step
