"""Models that learn nothing: the baseline that every other model has to beat."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from searchlab.search import CostModel, History, Points, Space
from searchlab.search.knob import Floats


class RandomModel(CostModel):
    """Random scores: the search is random, with the same machinery as a learned one."""

    name = "random"
    view = "none"

    def fit(self, history: History) -> None:
        """There is nothing to learn."""

    def predict(self, space: Space, points: Points) -> Floats:
        """A random number for every point."""
        return self.rng.random(len(points))

    def save(self, path: Path) -> None:
        """There is nothing to keep."""

    def load(self, path: Path) -> None:
        """There is nothing to read."""


class NoModel(RandomModel):
    """No model: strategies work from measurements alone."""

    name = "none"

    @property
    def ready(self) -> bool:
        """Always False: there is nothing to predict with."""
        return False

    def predict(self, space: Space, points: Points) -> Floats:
        """The same score for every point."""
        return np.zeros(len(points))
