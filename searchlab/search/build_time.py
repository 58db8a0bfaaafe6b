"""Predicted build times of candidates, and scores that prefer the candidate that is built faster among equals.

Promising candidates are large: wide tiles, written out, with a copy for every edge.  A few of them take as long to
build as all others together, and are rarely faster than some candidate that is ten times smaller.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from searchlab.search.knob import Floats
from searchlab.search.points import Points
from searchlab.search.space import Space
from searchlab.search.strategy import Scorer

# Fitted by `python -m benchmarks.durations --only builds`, which compares predictions with builds of random candidates
# and of such as searches choose.
_BASE_S, _EACH_S = 0.018, 38e-6
THRIFT = 0.1
_FREE_S = 0.1  # up to this a build costs no more than measuring what was built


def build_s(space: Space, points: Points) -> Floats:
    """The predicted build time of each point on an ordinary core."""
    instructions = np.exp2(space.features(points, "code")[:, 0].astype(np.float64)) - 1
    return np.asarray(_BASE_S + _EACH_S * instructions)


@dataclass
class Thrifty:
    """Scores to which long builds are added: for each doubling of the time, `thrift` of the spread of scores.

    The spread is the standard deviation of the first population that is scored, since scores have no unit.
    """

    space: Space
    score: Scorer
    thrift: float
    _spread: float | None = None

    def __call__(self, points: Points) -> Floats:
        scores = self.score(points)
        if self._spread is None:
            finite = scores[np.isfinite(scores)]
            self._spread = float(finite.std()) if len(finite) else 0.0
        doublings = np.log2(np.maximum(build_s(self.space, points) / _FREE_S, 1.0))
        return np.asarray(scores + self.thrift * self._spread * doublings)
