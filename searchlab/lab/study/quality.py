"""How good a cost model's predictions were, judged by the measurements that followed them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from searchlab.search.knob import Floats
from searchlab.search.pair_order import in_order


@dataclass(frozen=True, slots=True)
class Quality:
    """The quality of a model's predictions on one batch, made before the batch was measured.

    `pairwise`: the share of pairs with different times that it orders correctly.  `recall`: the share of the fastest
    quarter that is in its predicted fastest quarter.  `regret`: the relative slowdown of its favourite against the
    batch's best.  `correlation`: rank correlation; 1 for a perfect ranking, 0 for an uninformative one.
    """

    count: int
    pairwise: float
    recall: float
    regret: float
    correlation: float


def judge(predicted: Floats, seconds: Floats) -> Quality | None:
    """The quality of predictions (smaller is faster); None if fewer than two candidates worked."""
    good = np.isfinite(seconds)
    if good.sum() < 2:
        return None
    top = max(1, len(seconds) // 4)
    fastest, favoured = np.argsort(seconds, kind="stable")[:top], np.argsort(predicted, kind="stable")[:top]
    favourite = seconds[favoured[0]]
    regret = float(favourite / seconds[good].min() - 1.0)
    return Quality(
        len(seconds),
        in_order(predicted, seconds),
        len(set(fastest.tolist()) & set(favoured.tolist())) / top,
        regret,
        _ranks(predicted, seconds),
    )


def _ranks(a: Floats, b: Floats) -> float:
    """Spearman's rank correlation; 0 if either argument is constant."""
    from scipy.stats import rankdata

    ra, rb = rankdata(a), rankdata(b)
    if ra.std() == 0 or rb.std() == 0:
        return 0.0
    return float(np.corrcoef(ra, rb)[0, 1])
