"""Draft: an analytical estimate thins out many random points before the cost model sees any (after Pruner)."""

from __future__ import annotations

import numpy as np

from searchlab.errors import SpaceError
from searchlab.search import Points, Space
from searchlab.search.knob import Floats


class Draft:
    """Draws `count` points wherever fewer are wanted, and keeps those that the estimate finds fastest.

    The estimate is the view `estimate`, which takes a fraction of a microsecond for a point.  It says little about
    which structure is faster, so points compete with those of their own sketch only, and every sketch keeps its share
    of what is drawn.  A `count` of 0 draws just what is wanted, at random.
    """

    def __init__(self, count: int = 0) -> None:
        if count < 0:
            raise SpaceError(f"draft is the number of points to choose from, 0 for none, not {count}")
        self.count = count

    def sample(self, space: Space, n: int, rng: np.random.Generator) -> Points:
        """n valid points; different ones, if enough are drawn."""
        if self.count <= n:
            return space.sample(n, rng)
        drawn = _different(space, space.sample(self.count, rng))
        chosen = drawn[np.argsort(_places(drawn, estimated(space, drawn)), kind="stable")[:n]]
        return Points.concat([chosen, space.sample(n - len(chosen), rng)]) if len(chosen) < n else chosen

    def sample_of(self, space: Space, sketch: int, n: int, rng: np.random.Generator) -> Points:
        """Up to n valid points of one sketch, chosen from as many as an even share of a draft has."""
        drawn = space.sample_of(sketch, max(n, self.count // len(space.sketches)), rng)
        if len(drawn) <= n:
            return drawn
        drawn = _different(space, drawn)
        return drawn[np.argsort(estimated(space, drawn), kind="stable")[:n]]


def estimated(space: Space, points: Points) -> Floats:
    """The logarithm of the cycles that programs may take; only their order means something."""
    if not all(s.has_program for s in space.sketches):
        raise SpaceError(f"an estimate is one of programs, and space '{space.name}' has none; leave out the draft")
    return np.asarray(space.features(points, "estimate"))[:, 0]


def _different(space: Space, points: Points) -> Points:
    return points[np.sort(np.unique(space.key(points), return_index=True)[1])]


def _places(points: Points, scores: Floats) -> Floats:
    """The place of each point among those of its sketch, from 0 for the best to almost 1."""
    order = np.lexsort((scores, points.sketch))
    sizes = np.bincount(points.sketch)
    starts = np.cumsum(sizes) - sizes
    places = np.empty(len(points))
    places[order] = (np.arange(len(points)) - np.repeat(starts, sizes)) / np.repeat(sizes, sizes)
    return places
