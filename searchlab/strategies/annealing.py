"""Simulated annealing: AutoTVM's parallel chains on the cost model or, without one, a few chains on measurements."""

from __future__ import annotations

import numpy as np

from searchlab.errors import SpaceError
from searchlab.search import Points, Scorer, Space
from searchlab.search.knob import Floats
from searchlab.search.parts import Mask
from searchlab.strategies.guided import Guided, spread
from searchlab.strategies.shortlist import Shortlist


class Annealing(Guided):
    """Simulated annealing on the model; a batch holds the best points that the chains visited, not their last ones.

    `temperature`, in units of the spread of the model's predictions, falls linearly to zero over `steps`.  A walk ends
    early after `early_stop` steps in which the list of best points did not change.  `persistent` chains resume from
    their last positions after the model is retrained; others restart.  Points told before any was asked for are where
    some of the chains start.

    Without a model, `walkers` chains take steps on measurements; their temperature, in logarithms of time, starts at
    `hot` and halves every `half_life` measurements.
    """

    name = "annealing"

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        chains: int = 128,
        steps: int = 500,
        early_stop: int = 50,
        temperature: float = 1.0,
        persistent: bool = True,
        epsilon: float = 0.05,
        breadth: float = 0.15,
        diversity: float | None = None,
        polish: float = 0.0,
        draft: int = 0,
        walkers: int = 4,
        hot: float = 0.3,
        half_life: int = 40,
    ) -> None:
        super().__init__(space, rng, epsilon, breadth, diversity, polish, draft)
        if min(chains, steps, early_stop, walkers, half_life) < 1:
            raise SpaceError("annealing: chains, steps, early_stop, walkers and half_life are at least 1")
        self.chains, self.steps, self.early_stop, self.temperature = chains, steps, early_stop, temperature
        self.persistent, self._states = persistent, Points.empty(space.width)
        self._given = Points.empty(space.width)  # told before any was asked for
        self._walk = _Walk(walkers, hot, half_life)

    # --- on the model -------------------------------------------------------------------------------------------------

    def explore(self, found: Shortlist, score: Scorer) -> None:
        """Walks all chains on the model, from hot to cold, and offers every step to the list."""
        now = self._states if self.persistent and len(self._states) else self._first()
        value = score(now)
        unit = spread(value)
        found.offer(now, value)
        quiet = 0
        for step in range(self.steps):
            heat = self.temperature * (1 - step / (self.steps + 1)) + 1e-5
            tried = self.space.mutate(now, self.rng, local=0.0)
            there = score(tried)
            moved = accepts((value - there) / unit, heat, self.rng)
            now = Points.where(moved, tried, now)
            value = np.where(moved, there, value)
            quiet = 0 if found.offer(tried, there) else quiet + 1
            if quiet >= self.early_stop:
                break
        self._states = now

    def _first(self) -> Points:
        given = self._given[: self.chains // 2]
        return Points.concat([given, self.sample(self.chains - len(given))])

    # --- on measurements ----------------------------------------------------------------------------------------------

    def ask(self, count: int, score: Scorer | None = None) -> Points:
        """A batch by the model, or the next steps of the chains on measurements."""
        return super().ask(count, score) if score is not None else self._walk.ask(self, count)

    def tell(self, points: Points, seconds: Floats) -> None:
        """Learns the times, and lets the chains on measurements take their steps or not."""
        if not len(self.known):
            self._given = points[np.isfinite(seconds)]
        super().tell(points, seconds)
        self._walk.tell(self, points, seconds)


def accepts(gain: Floats, heat: float, rng: np.random.Generator) -> Mask:
    """AutoTVM's rule: always accept an improvement, and a deterioration with probability exp(gain / heat)."""
    with np.errstate(invalid="ignore", over="ignore"):
        return rng.random(len(gain)) < np.exp(
            np.minimum(np.nan_to_num(gain, nan=0.0, posinf=1e9, neginf=-1e9) / heat, 1.0)
        )


class _Walk:
    """Chains on measurements: each proposes a step, and accepts or rejects it once the step has been measured."""

    def __init__(self, walkers: int, hot: float, half_life: int) -> None:
        self.walkers, self.hot, self.half_life = walkers, hot, half_life
        self._at: list[tuple[Points, float]] = []
        self._owner: dict[int, int] = {}
        self._turn = 0

    def ask(self, own: Annealing, count: int) -> Points:
        batch = [Points.empty(own.space.width)]
        for _ in range(count):
            taken = self._step(own) if len(self._at) == self.walkers else own.draw(1)
            if not len(taken):
                break
            batch.append(taken)
        return Points.concat(batch)

    def _step(self, own: Annealing) -> Points:
        walker = self._turn = (self._turn + 1) % self.walkers
        here = self._at[walker][0]
        tried = own.space.mutate(here[[0] * 16], own.rng)
        taken = own.take(tried, 1)
        if not len(taken):  # all of them are known: try their neighbours
            taken = own.take(own.space.mutate(tried, own.rng), 1)
        if not len(taken):
            taken = own.draw(1)
        self._owner.update({key: walker for key in own.space.key(taken).tolist()})
        return taken

    def tell(self, own: Annealing, points: Points, seconds: Floats) -> None:
        heat = self.hot * 0.5 ** (len(own.points) / self.half_life) + 1e-5
        for point, key, took in zip(points, own.space.key(points).tolist(), seconds.tolist(), strict=True):
            cost = float(np.log(took)) if 0 < took < np.inf else np.inf
            walker = self._owner.pop(key, None)
            if len(self._at) < self.walkers:
                self._at.append((point, cost))
            elif walker is not None:
                before = self._at[walker][1]
                gain = np.array([before - cost if before < np.inf else np.inf])
                if accepts(gain, heat, own.rng)[0]:
                    self._at[walker] = (point, cost)
