"""Surface: a smooth model of time to descend on: the analytical estimate, corrected by measurements."""

from __future__ import annotations

import numpy as np

from searchlab.search import Points, Space
from searchlab.search.knob import Floats
from searchlab.strategies.draft import estimated

_PENALTIES = (1.0, 10.0, 100.0, 1000.0)
_SPREAD = 1e-9  # columns that vary less than this are constant


class Surface:
    """log2 of time as the estimate plus a quadratic in the encodings of knobs, without products of two of them.

    The correction is a ridge regression on all measurements, with the penalty that predicts left-out ones best; a
    failure counts as the worst time.  Without measurements it is zero, and without programs so is the estimate.
    """

    def __init__(self, space: Space, points: Points, seconds: Floats) -> None:
        self.space = space
        self.estimates = all(s.has_program for s in space.sketches)
        self._mean, self._scale, self._weights = np.zeros(1), np.ones(1), np.zeros(1)
        worked = np.isfinite(seconds)
        if worked.any():
            logs = np.log2(np.maximum(np.where(worked, seconds, seconds[worked].max()), 1e-12))
            self._fit(self.terms(self.estimate(points), space.encode(points)), logs)

    def estimate(self, points: Points) -> Floats:
        """The estimate of points; zero where there are no programs."""
        return estimated(self.space, points).astype(np.float64) if self.estimates else np.zeros(len(points))

    def terms(self, estimate: Floats, encoded: Floats) -> Floats:
        """What the correction is a weighted sum of."""
        return np.concatenate([estimate[:, None], encoded, encoded**2], axis=1)

    def __call__(self, estimate: Floats, encoded: Floats) -> Floats:
        """The predicted logarithms of time, up to a constant."""
        terms = self.terms(estimate, encoded)
        return np.asarray(estimate + ((terms - self._mean) / self._scale * self._weights).sum(axis=1))

    def score(self, points: Points) -> Floats:
        """The prediction for points, as a cost model gives it."""
        return self(self.estimate(points), self.space.encode(points))

    def _fit(self, terms: Floats, logs: Floats) -> None:
        spread = terms.std(axis=0)
        self._mean, self._scale = terms.mean(axis=0), np.where(spread > _SPREAD, spread, np.inf)
        off = logs - terms[:, 0]
        left, lengths, right = np.linalg.svd((terms - self._mean) / self._scale, full_matrices=False)
        along = left.T @ (off - off.mean())

        def missed(penalty: float) -> float:
            """The squared error of predictions for each measurement from all others."""
            kept = lengths**2 / (lengths**2 + penalty)
            own = (left**2 * kept).sum(axis=1) + 1 / len(off)
            rest = off - off.mean() - left @ (kept * along)
            return float(np.mean((rest / np.maximum(1 - own, _SPREAD)) ** 2))

        penalty = min(_PENALTIES, key=missed)
        self._weights = right.T @ (lengths / (lengths**2 + penalty) * along)
