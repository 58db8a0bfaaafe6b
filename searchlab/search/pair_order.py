"""How well predictions rank programs by time."""

from __future__ import annotations

import numpy as np

from searchlab.search.knob import Floats


def in_order(predicted: Floats, seconds: Floats, same: float = 0.0) -> float:
    """The share of pairs with different times that are predicted in order (smaller is faster).

    Times count as different if they differ by more than the fraction `same`; a failure is slower than all that worked.
    Predictions that tie count half; without pairs to tell apart the share is 0.5.
    """
    first, second = np.triu_indices(len(seconds), 1)
    with np.errstate(invalid="ignore"):  # two failures: not a number, and so not apart
        apart = np.log(seconds[first]) - np.log(seconds[second])
    told = np.abs(apart) > same
    agree = np.sign(predicted[first] - predicted[second])[told] * np.sign(apart[told])
    return float(np.mean((agree + 1) / 2)) if told.any() else 0.5
