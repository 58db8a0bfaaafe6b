"""Bayesian optimisation with built-in surrogates: a Gaussian process or a forest."""

from __future__ import annotations

from typing import Literal

import numpy as np

from searchlab.errors import SpaceError
from searchlab.search import Points, Scorer, Space, Strategy
from searchlab.search.knob import Floats
from searchlab.strategies.surrogates import (
    Candidates,
    ForestSurrogate,
    GaussianSurrogate,
    Observations,
    Ranks,
    Surrogate,
)

Lie = Literal["mean", "best", "worst"]


class Bayesian(Strategy):
    """Measures where a surrogate, fitted to logarithms of time, has the largest expected improvement.

    The first `start` points are random.  All points of a space of at most `everything` points are candidates each time;
    of a larger one, `pool` points: random ones, and ones near the best measured and the most promising.  A point that
    is being measured has the value `lie`: the surrogate's expectation, or the best or worst value so far.  A failure
    counts as the worst value so far.  A cost model is not used.
    """

    name = "bayesian"

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        surrogate: Literal["gp", "forest"] = "gp",
        start: int = 5,
        everything: int = 1 << 15,
        pool: int = 2048,
        lie: Lie = "mean",
        growth: float = 1.5,
        most: int = 400,
        trees: int = 48,
    ) -> None:
        super().__init__(space, rng)
        if surrogate not in ("gp", "forest"):
            raise SpaceError(f"bayesian: unknown surrogate '{surrogate}'; known: gp, forest")
        if lie not in ("mean", "best", "worst"):
            raise SpaceError(f"bayesian: unknown lie '{lie}'; known: mean, best, worst")
        if start < 1 or pool < 16 or growth <= 1 or most < 8 or trees < 2:
            raise SpaceError("bayesian: start >= 1, pool >= 16, growth > 1, most >= 8, trees >= 2")
        self.start, self.pool, self.lie = start, pool, lie
        gaussian = surrogate == "gp"
        self._surrogate: Surrogate = GaussianSurrogate(growth, most) if gaussian else ForestSurrogate(rng, trees)
        self._numbers = Ranks(space)
        self._whole = (
            self._candidates(space.enumerate()) if space.size.exact and space.size.valid <= everything else None
        )
        self._promising = Points.empty(space.width)
        self._lies: dict[int, float] = {}

    def ask(self, count: int, score: Scorer | None = None) -> Points:
        """The candidates from which the surrogate expects most improvement."""
        missing = self.start - len(self.points) - len(self.pending)
        batch = self.draw(min(max(missing, 0), count))
        rest = count - len(batch)
        if rest and np.isfinite(self.seconds).any():
            among = self._whole or self._near()
            chosen, expected = self._surrogate.choose(self._known_values(), among, rest)
            taken = among.points[chosen]
            self._lies.update(zip(among.keys[chosen].tolist(), expected.tolist(), strict=True))
            self._promising = taken[:16]
            batch = Points.concat([batch, self.take(taken, rest)])
        return Points.concat([batch, self.draw(count - len(batch))])

    def _known_values(self) -> Observations:
        """All points told, followed by those being measured with a substitute value."""
        values = self._told_values()
        keys = self.space.key(Points.concat([self.points, self.pending]))
        lie = {"mean": None, "best": float(values.min()), "worst": float(values.max())}[self.lie]
        middle = float(values.mean())
        guessed = [self._lies.get(k, middle) if lie is None else lie for k in keys[len(values) :].tolist()]
        numbers = self._numbers(Points.concat([self.points, self.pending]))
        return Observations(numbers, keys, np.append(values, guessed), float(values.min()), lie)

    def _told_values(self) -> Floats:
        worked = np.isfinite(self.seconds)
        logs = np.log(np.maximum(np.where(worked, self.seconds, 1.0), 1e-12))
        return np.where(worked, logs, logs[worked].max())

    def _near(self) -> Candidates:
        """New points: a third random, a third near the most promising, the rest near the best measured."""
        third = self.pool // 3
        best = Points.concat([self.leaders(16), self._promising])
        once = self.space.mutate(best[self.rng.integers(len(best), size=third)], self.rng)
        twice = self.space.mutate(once, self.rng)
        beside = [self.space.neighbours(p) for p in self.leaders(2)]
        found = self.fresh(Points.concat([self.space.sample(third, self.rng), once, twice, *beside]))
        return self._candidates(found)

    def _candidates(self, points: Points) -> Candidates:
        return Candidates(points, self._numbers(points), self.space.key(points))
