"""The ratio of two interleaved contenders, with its bootstrap interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_RESAMPLES = 2000


def bootstrap(
    values: Floats, statistic: Callable[[Floats], Floats], level: float, generator: np.random.Generator
) -> tuple[float, float]:
    """The percentile interval of a statistic of `values`; the statistic receives all resamples at once, one per row."""
    drawn = values[generator.integers(0, len(values), (_RESAMPLES, len(values)))]
    # Nearest ranks, not interpolation: with few values the end points must be values that occurred.
    tails = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(statistic(drawn), tails, method="closest_observation")
    return float(low), float(high)


def ratio_interval(pairs: Sequence[tuple[float, float]], level: float, seed: int) -> tuple[float, float, float]:
    """The median of the ratios a / b with its interval; each pair is one round."""
    ratios = np.array([a / b for a, b in pairs])
    low, high = bootstrap(ratios, lambda drawn: np.median(drawn, axis=1), level, np.random.default_rng(seed))
    return float(np.median(ratios)), low, high
