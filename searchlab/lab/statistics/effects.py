"""Effect sizes: how often one sample is faster than another, and the thresholds for calling that large."""

from __future__ import annotations

import numpy as np

from searchlab.lab.results import Floats

# J. Romano and others, "Appropriate statistics for ordinal level data", 2006
_MAGNITUDES = ((0.147, "negligible"), (0.33, "small"), (0.474, "medium"))


def wins(a: Floats, b: Floats, band: float = 0.0) -> Floats:
    """For every pair of times: 1 where a is faster, 0 where b is, 1/2 where they are within the tie band.

    Two failures are a tie; a failure loses against any time.
    """
    return 0.5 * (1 - compared(a[:, None], b[None, :], band))


def compared(a: Floats, b: Floats, band: float = 0.0) -> Floats:
    """-1 where the time a is smaller than b, 1 where it is larger, 0 where they are within the tie band."""
    margin = 1 + band
    found: Floats = np.where(a > b * margin, 1.0, 0.0) - np.where(b > a * margin, 1.0, 0.0)
    return found


def a12(a: Floats, b: Floats) -> float:
    """The probability that a time of `a` is smaller than one of `b`, ties halved (Vargha and Delaney)."""
    return float(wins(a, b).mean())


def cliffs_delta(a: Floats, b: Floats) -> float:
    """From -1 (all of `a` is slower) to 1 (all of `a` is faster); 2 A12 - 1."""
    return 2 * a12(a, b) - 1


def magnitude(delta: float) -> str:
    """The conventional word for the magnitude of a delta."""
    return next((word for limit, word in _MAGNITUDES if abs(delta) < limit), "large")
