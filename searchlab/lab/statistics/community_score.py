"""The auto-tuning community's score for recorded spaces: 0 is random search, 1 is finding the optimum immediately.

The score of a search is the mean over k = 1..K of (E(k) - best_k) / (E(k) - optimum).  best_k is the best time among
its first k measurements, failures included; E(k) is the exact expectation of the best of k different rows, drawn at
random.  The score is linear in best_k, so random search has expectation 0 and searches can be paired by seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from searchlab.errors import ResultError
from searchlab.lab.results import CellResult, Floats
from searchlab.lab.statistics.aggregate import Estimate, Resampler, by_stratum, estimate, mean
from searchlab.lab.statistics.scores import ComparedBy, Score, counted, seconds_of

K = 200


@dataclass(frozen=True, eq=False)
class RandomSearch:
    """The expected result of random search in `budget` measurements of a table (inf: the row failed)."""

    seconds: Floats
    budget: int = K

    @cached_property
    def valid(self) -> Floats:
        """The times of the rows that work, best first."""
        found: Floats = np.sort(self.seconds[np.isfinite(self.seconds)])
        if not len(found):
            raise ResultError("no row of the table works: searches in it have no score")
        return found

    @cached_property
    def expected(self) -> Floats:
        """E(1), E(2), ... E(budget); the worst time where none of the drawn rows works."""
        from scipy.special import gammaln

        rows, k, better = len(self.seconds), np.arange(1, self.budget + 1)[:, None], np.arange(1, len(self.valid) + 1)
        # the probability that k of the rows are all worse than the n-th best
        left = np.maximum(rows - better - k, 0)
        log = gammaln(rows - better + 1) - gammaln(left + 1) - gammaln(rows + 1)
        log = log + gammaln(rows - np.minimum(k, rows) + 1)
        worse = np.where(rows - better >= k, np.exp(log), 0.0)
        first = np.diff(-worse, axis=1, prepend=-1.0)
        found: Floats = first @ self.valid + worse[:, -1] * self.valid[-1]
        return found

    def score(self, measured: Floats) -> float:
        """The score of one search, given its measurements in order; a short search keeps its best to the end."""
        if not len(measured):
            return self._score(np.full(self.budget, self.valid[-1]))
        best = np.minimum.accumulate(np.where(np.isfinite(measured), measured, self.valid[-1]))
        return self._score(np.append(best, np.full(max(self.budget - len(best), 0), best[-1]))[: self.budget])

    def _score(self, best: Floats) -> float:
        gap = self.expected - self.valid[0]
        # once random search is at the optimum too, there is nothing left to gain
        open_ = gap > 1e-12 * self.valid[0]
        return float(((self.expected - best)[open_] / gap[open_]).mean()) if open_.any() else 0.0


def recorded_scores(
    cells: Sequence[CellResult], tables: Mapping[str, Floats], budget: int = K, view: ComparedBy | None = None
) -> tuple[Score, ...]:
    """One row per cell of a recorded task; `tables` has the times of all rows of every task's table."""
    view = view or ComparedBy()
    known = [c for c in counted(cells) if c.task in tables]
    view.check(known)
    random = {task: RandomSearch(seconds, budget) for task, seconds in tables.items()}
    return tuple(
        Score(view.entry(c), c.task, view.context(c), c.seed, seconds_of(c), random[c.task].score(c.seconds))
        for c in known
    )


def mean_scores(rows: Sequence[Score], rng: np.random.Generator) -> dict[str, Estimate]:
    """The mean score of every entry, with equal weight for every task."""
    resampler = Resampler.of(rows, rng)
    found = {}
    for entry in dict.fromkeys(r.entry for r in rows):
        strata = by_stratum(r for r in rows if r.entry == entry)
        values = {s: np.array([r.score for r in of.values()]) for s, of in strata.items()}
        found[entry] = estimate(values, mean, resampler)
    return found
