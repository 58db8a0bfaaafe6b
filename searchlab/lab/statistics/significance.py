"""Significance tests on plain numbers: Wilcoxon (exact with ties), Holm, Friedman, Nemenyi's critical difference.

The methods are those of J. Demsar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7 (2006).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from searchlab.lab.results import Floats

_EXACT = 60  # the largest number of blocks for which all sign assignments are counted


@dataclass(frozen=True, slots=True)
class Friedman:
    """Friedman's test for any difference: chi-square corrected for ties, and the F of Iman and Davenport."""

    blocks: int
    statistic: float
    p: float
    f: float
    p_f: float


def signed_ranks(differences: Floats) -> tuple[float, float, Floats]:
    """The sums of ranks of positive and negative differences, and the ranks of both.

    Zero differences take part in the ranking and are then left out (Pratt).  Infinite ones rank highest.
    """
    from scipy.stats import rankdata

    ranks = rankdata(np.abs(differences))
    up, down = differences > 0, differences < 0
    return float(ranks[up].sum()), float(ranks[down].sum()), np.asarray(ranks[up | down])


def wilcoxon(differences: Floats) -> float:
    """The two-sided p-value of Wilcoxon's signed-rank test; 1 if nothing differs."""
    up, down, ranks = signed_ranks(differences)
    if not len(ranks):
        return 1.0
    if len(ranks) <= _EXACT:
        return _exact(min(up, down), ranks)
    from scipy.stats import norm

    deviation = np.sqrt((ranks**2).sum()) / 2
    distance = max(abs(up - down) / 2 - 0.5, 0.0)
    return float(2 * norm.sf(distance / deviation))


def _exact(smaller: float, ranks: Floats) -> float:
    """The fraction of all sign assignments with a sum at least as extreme, on either side.

    Ranks are multiples of 1/2, so twice a rank is an integer and sums can be counted in an array.
    """
    doubled = np.rint(2 * ranks).astype(np.int64)
    ways = np.zeros(int(doubled.sum()) + 1)
    ways[0] = 1.0
    for rank in doubled.tolist():
        ways[rank:] = (ways[rank:] + ways[: len(ways) - rank]) / 2
        ways[:rank] /= 2
    return float(min(1.0, 2 * ways[: int(np.rint(2 * smaller)) + 1].sum()))


def holm(p_values: Floats) -> Floats:
    """Adjusted p-values, each of which may be compared with alpha (Holm 1979)."""
    order = np.argsort(p_values, kind="stable")
    stepped = np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1))
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def ranks_in_blocks(times: Floats) -> Floats:
    """Ranks within every row of blocks x entries: 1 is the fastest, ties share their mean rank."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(times, axis=1))


def friedman(times: Floats) -> Friedman:
    """Friedman's test on blocks x entries."""
    from scipy.stats import chi2
    from scipy.stats import f as f_distribution

    blocks, entries = times.shape
    ranks = ranks_in_blocks(times)
    spread = float(((ranks - (entries + 1) / 2) ** 2).sum())  # smaller if there are ties
    if blocks < 2 or entries < 2 or spread == 0:
        return Friedman(blocks, 0.0, 1.0, 0.0, 1.0)
    between = float(((ranks.sum(axis=0) - blocks * (entries + 1) / 2) ** 2).sum())
    statistic = (entries - 1) * between / spread
    rest = blocks * (entries - 1) - statistic
    f = float("inf") if rest <= 1e-12 * blocks else (blocks - 1) * statistic / rest
    p_f = 0.0 if np.isinf(f) else float(f_distribution.sf(f, entries - 1, (entries - 1) * (blocks - 1)))
    return Friedman(blocks, statistic, float(chi2.sf(statistic, entries - 1)), f, p_f)


def critical_difference(entries: int, blocks: int, alpha: float = 0.05) -> float:
    """The critical difference of mean ranks in Nemenyi's test: the studentized range over the square root of two."""
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - alpha, entries, np.inf)) / np.sqrt(2)
    return float(q * np.sqrt(entries * (entries + 1) / (6 * blocks)))


def cliques(different: NDArray[np.bool_]) -> tuple[tuple[int, ...], ...]:
    """The maximal sets without two members that differ; two members differ exactly if no set contains both.

    The set of all members is split for every pair that differs, and subsets of other sets are dropped.
    """
    sets = [frozenset(range(len(different)))]
    for a, b in zip(*np.nonzero(np.triu(different)), strict=True):
        split = [s - {x} for s in sets if {a, b} <= s for x in (a, b)]
        kept = [s for s in sets if not {a, b} <= s]
        for s in sorted(set(split), key=len, reverse=True):
            if not any(s <= other for other in kept):
                kept.append(s)
        sets = kept
    return tuple(sorted(tuple(sorted(int(n) for n in s)) for s in sets))
