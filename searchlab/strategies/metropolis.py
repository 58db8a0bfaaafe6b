"""Annealed Metropolis-Hastings on the cost model: MetaSchedule's search as described in its paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from searchlab.errors import SpaceError
from searchlab.search import Points, Scorer, Space
from searchlab.search.knob import Floats
from searchlab.search.parts import Mask
from searchlab.strategies.guided import Guided, spread
from searchlab.strategies.shortlist import Shortlist

Prior = Callable[[Points], Floats]


class Chains(NamedTuple):
    """The points of all chains, with their predictions and log priors."""

    points: Points
    value: Floats
    belief: Floats


class Metropolis(Guided):
    """Chains that sample from exp(-prediction / T) * prior, with T falling from `hot` to `cold`.

    A step from x to y is accepted with probability min(1, exp(-(f(y) - f(x)) / T) * P(y) / P(x)); `prior` gives log P,
    uniform by default.  Steps are symmetric: one knob set to any other option (no step, if that is invalid) or, with
    probability `jump`, any point of the space.  Half of the chains start at the best measured points.  A batch holds
    the best new points that chains visited.
    """

    name = "metropolis"
    needs_model = True

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        chains: int = 256,
        steps: int = 100,
        hot: float = 1.0,
        cold: float = 0.02,
        jump: float = 0.05,
        prior: Prior | None = None,
        epsilon: float = 0.05,
        breadth: float = 0.15,
        diversity: float | None = None,
        polish: float = 0.0,
        draft: int = 0,
    ) -> None:
        super().__init__(space, rng, epsilon, breadth, diversity, polish, draft)
        if not 0 < cold <= hot or min(chains, steps) < 1 or not 0 <= jump <= 1:
            raise SpaceError("metropolis: 0 < cold <= hot, 0 <= jump <= 1, and at least one chain and step")
        self.chains, self.steps, self.hot, self.cold, self.jump, self.prior = chains, steps, hot, cold, jump, prior

    def explore(self, found: Shortlist, score: Scorer) -> None:
        """Walks all chains, and offers the points that they moved to."""
        best = self.leaders(self.chains // 2)
        start = Points.concat([best, self.sample(self.chains - len(best))])
        now = Chains(start, score(start), self._belief(start))
        unit = spread(now.value)
        found.offer(now.points, now.value)
        for step in range(self.steps):
            heat = self.hot * (self.cold / self.hot) ** (step / max(self.steps - 1, 1))
            now, moved = self.step(now, score, unit * heat)
            found.offer(now.points[moved], now.value[moved])

    def step(self, now: Chains, score: Scorer, heat: float) -> tuple[Chains, Mask]:
        """Advances all chains by one step; returns them and a mask of those that moved."""
        tried = self._proposed(now.points)
        value, belief = score(tried), self._belief(tried)
        with np.errstate(invalid="ignore"):
            log_ratio = np.nan_to_num((now.value - value) / heat + belief - now.belief, nan=-np.inf)
        moved = np.log(self.rng.random(len(tried))) < log_ratio
        points = Points.where(moved, tried, now.points)
        return Chains(points, np.where(moved, value, now.value), np.where(moved, belief, now.belief)), moved

    def _belief(self, points: Points) -> Floats:
        return np.zeros(len(points)) if self.prior is None else np.asarray(self.prior(points), np.float64)

    def _proposed(self, points: Points) -> Points:
        tried = self.space.step(points, self.rng)
        far = np.flatnonzero(self.rng.random(len(points)) < self.jump)
        if not len(far):
            return tried
        drawn = self.space.sample(len(far), self.rng)
        sketch, options = tried.sketch.copy(), tried.options.copy()
        sketch[far], options[far] = drawn.sketch, drawn.options
        return Points(sketch, options)
