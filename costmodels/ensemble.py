"""Several models on resampled data: their mean and their disagreement, combined by an acquisition function."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import numpy as np

from searchlab.errors import ComponentError
from searchlab.registry import Component
from searchlab.search import MODELS, CostModel, History, Points, Space, Trials
from searchlab.search.knob import Floats

Acquisition = Literal["mean", "ei", "ucb"]


class EnsembleModel(CostModel):
    """Bagging: `count` models, each fitted to a random share of the measurements.

    acquisition  mean; ei (expected improvement over the best measured program); ucb (optimism, weighted by `kappa`)
    """

    name = "ensemble"

    def __init__(
        self,
        rng: np.random.Generator | None = None,
        base: Component = "gbt",
        count: int = 6,
        share: float = 0.8,
        acquisition: Acquisition = "mean",
        kappa: float = 2.576,
    ) -> None:
        super().__init__(rng)
        if acquisition not in ("mean", "ei", "ucb"):
            raise ComponentError(f"ensemble: unknown acquisition '{acquisition}'; known: mean, ei, ucb")
        if count < 2 or not 0 < share <= 1:
            raise ComponentError(f"ensemble: needs 2 models or more and a share in (0, 1], got {count} and {share}")
        self.share, self.acquisition, self.kappa = share, acquisition, kappa
        self.members = [MODELS.make(base, rng=r) for r in self.rng.spawn(count)]
        self.view = self.members[0].view
        self._best = np.inf  # the mean prediction for the best program so far

    @property
    def ready(self) -> bool:
        """Whether all members are ready."""
        return all(m.ready for m in self.members)

    def fit(self, history: History) -> None:
        """Fits every member to its own random share of the trials."""
        for member in self.members:
            member.fit(History.of([self._part(t) for t in history]))
        if self.ready:
            self._best = min((self._at_best(t) for t in history.tasks[-1:] if np.isfinite(t.best)), default=np.inf)

    def _part(self, trials: Trials) -> Trials:
        keep = np.sort(self.rng.permutation(len(trials))[: max(1, round(self.share * len(trials)))])
        return Trials(trials.task, trials.space, trials.points[keep], trials.seconds[keep])

    def _at_best(self, trials: Trials) -> float:
        """The mean prediction for the best program that was measured: the level to improve on."""
        return float(self._all(trials.space, trials.points[int(np.argmin(trials.seconds))]).mean())

    def _all(self, space: Space, points: Points) -> Floats:
        return np.stack([m.predict(space, points) for m in self.members])

    def predict(self, space: Space, points: Points) -> Floats:
        """The acquisition function of the members' predictions."""
        found = self._all(space, points)
        mean, deviation = found.mean(axis=0), found.std(axis=0)
        if self.acquisition == "mean":
            return np.asarray(mean)
        if self.acquisition == "ucb":
            return np.asarray(mean - self.kappa * deviation)
        return -expected_improvement(mean, deviation, self._best if np.isfinite(self._best) else float(mean.min()))

    def save(self, path: Path) -> None:
        """Writes every member, and the level to improve on."""
        path.with_suffix(".json").write_text(json.dumps({"best": self._best}))
        for n, member in enumerate(self.members):
            member.save(path.with_name(f"{path.name}-{n}"))

    def load(self, path: Path) -> None:
        """Reads every member, and the level to improve on."""
        self._best = float(json.loads(path.with_suffix(".json").read_text())["best"])
        for n, member in enumerate(self.members):
            member.load(path.with_name(f"{path.name}-{n}"))


def expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """The expected improvement of normal variables over `best`, where smaller is better."""
    from scipy.special import ndtr

    scale = np.maximum(deviation, 1e-12)
    z = (best - mean) / scale
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    return np.asarray(scale * (z * ndtr(z) + density))
