"""Example, a cost model for searchlab: predicts which candidates are fast, without running them."""

from __future__ import annotations

import numpy as np

from searchlab.search import CostModel, History, Points, Space
from searchlab.search.knob import Floats


class ExampleModel(CostModel):
    """Ridge regression: the logarithm of the time is a weighted sum of features."""

    name = "example"
    version = "1"
    view = "knobs"  # the features it learns from; "summary" describes programs, see docs/features.md

    # Options are parameters with a default; experiments set them: {example: {ridge: 0.1}}.
    def __init__(self, rng: np.random.Generator | None = None, ridge: float = 1e-2) -> None:
        super().__init__(rng)
        self.ridge = ridge
        self.weights: Floats | None = None

    def fit(self, history: History) -> None:
        """Learns from the last task of the history, the one being searched; failures have infinite times."""
        *_, trials = history
        worked = np.isfinite(trials.seconds)
        if worked.sum() < 2:
            return
        x = self._rows(trials.space, trials.points[worked])
        y = np.log(trials.seconds[worked])
        self.weights = np.asarray(np.linalg.solve(x.T @ x + self.ridge * np.eye(x.shape[1]), x.T @ y), np.float64)

    @property
    def ready(self) -> bool:
        """Whether the model has learnt enough to predict."""
        return self.weights is not None

    def predict(self, space: Space, points: Points) -> Floats:
        """One number per point; smaller means faster."""
        assert self.weights is not None, "predict is called only if `ready` is true"
        return np.asarray(self._rows(space, points) @ self.weights)

    def _rows(self, space: Space, points: Points) -> Floats:
        found = np.asarray(space.features(points, self.view), np.float64)
        return np.hstack([found, np.ones((len(points), 1))])
