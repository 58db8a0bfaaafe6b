"""Shortlist: the best new points that a walk through a space has visited, wherever it went afterwards."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from searchlab.search import Points
from searchlab.search.knob import Floats, Keys
from searchlab.search.space import Space


class Shortlist:
    """Keeps the `size` best of all points offered, without duplicates and best first; smaller scores are better.

    `fresh` decides which points are eligible.
    """

    def __init__(self, space: Space, size: int, fresh: Callable[[Points], Points]) -> None:
        self.space, self.size, self._fresh = space, size, fresh
        self.points, self.scores = Points.empty(space.width), np.empty(0)
        self._keys: Keys = np.empty(0, np.uint64)

    def __len__(self) -> int:
        return len(self.points)

    def offer(self, points: Points, scores: Floats) -> bool:
        """Offers points; returns whether any of them is now on the list."""
        limit = self.scores[-1] if len(self) >= self.size else np.inf
        good = np.flatnonzero(scores < limit)
        if not len(good):
            return False
        good = good[~np.isin(self.space.key(points[good]), self._keys)]
        new = self._only_fresh(points[good], scores[good])
        if not len(new[1]):
            return False
        self._merge(*new)
        return True

    def _only_fresh(self, points: Points, scores: Floats) -> tuple[Points, Floats]:
        keys = self.space.key(points)
        kept = np.isin(keys, self.space.key(self._fresh(points)))
        first = np.zeros(len(keys), np.bool_)
        first[np.unique(keys, return_index=True)[1]] = True
        return points[kept & first], scores[kept & first]

    def _merge(self, points: Points, scores: Floats) -> None:
        points, scores = Points.concat([self.points, points]), np.append(self.scores, scores)
        order = np.argsort(scores, kind="stable")[: self.size]
        self.points, self.scores = points[order], scores[order]
        self._keys = self.space.key(self.points)
