"""Aggregate scores with confidence intervals: interquartile and geometric means, seeds resampled within tasks.

Intervals are percentile intervals of a stratified bootstrap: tasks are fixed, seeds are resampled within each.  They
cover the variation over seeds on these tasks and say nothing about other tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from searchlab.lab.results import Floats
from searchlab.lab.statistics.scores import Score, Stratum

DRAWS = 2000
LEVEL = 0.95
METHOD = "95 % percentile intervals, seeds resampled within tasks"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval, which is missing if a task has only one seed."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """The aggregate scores of an entry."""

    entry: str
    iqm: Estimate
    geometric_mean: Estimate
    tasks: int
    seeds: int  # of the task with the fewest
    cells: int
    failed: int


class Resampler:
    """Bootstrap draws of seeds within every stratum.  All entries share the draws, so pairs stay paired."""

    def __init__(self, sizes: Mapping[Stratum, int], rng: np.random.Generator, draws: int = DRAWS) -> None:
        self._uniform = {stratum: rng.random((draws, size)) for stratum, size in sizes.items()}
        self._counts: dict[tuple[Stratum, int], Floats] = {}

    @staticmethod
    def of(rows: Iterable[Score], rng: np.random.Generator, draws: int = DRAWS) -> Resampler:
        """A resampler with enough draws for any entry of the rows."""
        seeds: dict[Stratum, set[int]] = {}
        for r in rows:
            seeds.setdefault(r.stratum, set()).add(r.seed)
        return Resampler({s: len(found) for s, found in seeds.items()}, rng, draws)

    def chosen(self, stratum: Stratum, size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """The seeds that each draw takes, out of `size`: draws x size."""
        found: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
        found = (self._uniform[stratum][:, :size] * size).astype(np.int64)
        return found

    def counts(self, stratum: Stratum, size: int) -> Floats:
        """How often each draw takes each of `size` seeds: draws x size."""
        key = (stratum, size)
        if key not in self._counts:
            chosen = self.chosen(stratum, size)
            self._counts[key] = (chosen[:, :, None] == np.arange(size)).sum(axis=1).astype(np.float64)
        return self._counts[key]


def iqm(values: Floats, weights: Floats | None = None) -> Floats:
    """The interquartile mean along the last axis; values that straddle a quartile count in part."""
    weights = np.ones(values.shape[-1]) if weights is None else weights
    shares = weights / weights.sum()
    if (weights == weights[0]).all():  # sorting is several times faster than finding the order
        ordered = np.sort(values, axis=-1)
    else:
        order = np.argsort(values, axis=-1, kind="stable")
        ordered, shares = np.take_along_axis(values, order, -1), shares[order]
    ends = np.cumsum(shares, axis=-1)
    inside = np.clip(np.minimum(ends, 0.75) - np.maximum(ends - shares, 0.25), 0.0, None)
    mean = (inside * ordered).sum(axis=-1) / inside.sum(axis=-1)
    found: Floats = np.clip(mean, ordered[..., 0], ordered[..., -1])  # rounding must not leave the range
    return found


def geometric_mean(values: Floats, weights: Floats | None = None) -> Floats:
    """The geometric mean along the last axis; 0 if any value is 0."""
    weights = np.ones(values.shape[-1]) if weights is None else weights
    with np.errstate(divide="ignore"):
        found: Floats = np.exp((np.log(values) * (weights / weights.sum())).sum(axis=-1))
    return found


def mean(values: Floats, weights: Floats | None = None) -> Floats:
    """The mean along the last axis."""
    weights = np.ones(values.shape[-1]) if weights is None else weights
    found: Floats = (values * (weights / weights.sum())).sum(axis=-1)
    return found


def by_stratum(rows: Iterable[Score]) -> dict[Stratum, dict[int, Score]]:
    """Rows of one entry, grouped by stratum and sorted by seed."""
    found: dict[Stratum, dict[int, Score]] = {}
    for r in sorted(rows, key=lambda r: r.seed):
        found.setdefault(r.stratum, {})[r.seed] = r
    return found


def estimate(
    strata: Mapping[Stratum, Floats], statistic: Callable[[Floats, Floats], Floats], resampler: Resampler
) -> Estimate:
    """A statistic of values in strata, which have equal weight whatever the number of their values."""
    if not strata:
        return Estimate(0.0)
    values = np.concatenate(list(strata.values()))
    weights = np.concatenate([np.full(len(v), 1 / len(v)) for v in strata.values()])
    value = float(statistic(values, weights))
    if min(len(v) for v in strata.values()) < 2:
        return Estimate(value)
    drawn = np.concatenate([v[resampler.chosen(s, len(v))] for s, v in strata.items()], axis=1)
    return interval(value, statistic(drawn, weights))


def interval(value: float, drawn: Floats) -> Estimate:
    """The percentile interval of resampled values, extended to include the estimate."""
    low, high = np.percentile(drawn, [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return Estimate(value, min(value, float(low)), max(value, float(high)))


def summaries(rows: Sequence[Score], rng: np.random.Generator, draws: int = DRAWS) -> tuple[Summary, ...]:
    """IQM and geometric mean of every entry, in the order of the rows."""
    resampler = Resampler.of(rows, rng, draws)
    return tuple(summary(e, [r for r in rows if r.entry == e], resampler) for e in dict.fromkeys(r.entry for r in rows))


def summary(entry: str, rows: Sequence[Score], resampler: Resampler) -> Summary:
    """The scores of one entry."""
    strata = by_stratum(rows)
    values = {s: np.array([r.score for r in found.values()]) for s, found in strata.items()}
    return Summary(
        entry,
        estimate(values, iqm, resampler),
        estimate(values, geometric_mean, resampler),
        tasks=len({task for task, _ in strata}),
        seeds=min(map(len, strata.values()), default=0),
        cells=sum(map(len, strata.values())),
        failed=sum(not np.isfinite(r.seconds) for r in rows),
    )
