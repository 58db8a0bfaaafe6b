"""How well predictions rank the programs of a task, and by how much a search that trusts them loses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from searchlab.search.knob import Floats
from searchlab.search.pair_order import in_order

_SAME = 0.03  # times that differ by less are the same, within the noise of measuring
_PAIRS_OF = 600  # programs of a task whose pairs are counted, at most
PICKED, TOP = 8, 16


@dataclass(frozen=True, slots=True)
class RankScore:
    """How well predictions rank a task's programs.

    `pairs`: the share of pairs with different times that are in order; `top_pairs`: the same among the faster half.
    `recall`: the share of the 16 fastest that are among the 16 favourites.  `regret`: the fastest of the 8 favourites,
    relative to the fastest of all; 1 is perfect.
    """

    pairs: float
    top_pairs: float
    recall: float
    regret: float


def ranking(predicted: Floats, seconds: Floats) -> RankScore | None:
    """How well predictions (smaller is faster) rank programs; None if fewer than two of them worked."""
    worked = np.isfinite(seconds)
    if worked.sum() < 2:
        return None
    good, guess = seconds[worked], predicted[worked]
    order = np.argsort(predicted, kind="stable")
    top = min(TOP, len(good))
    fastest = np.argsort(seconds, kind="stable")[:top]
    upper = good <= np.median(good)
    best = float(good.min())
    picked = float(seconds[order[:PICKED]].min())
    return RankScore(
        _in_order(guess, good),
        _in_order(guess[upper], good[upper]),
        len(np.intersect1d(order[:top], fastest)) / top,
        # where all that were picked failed, the search has nothing: that is as bad as the slowest that worked
        (picked if np.isfinite(picked) else float(good.max())) / best,
    )


def _in_order(predicted: Floats, seconds: Floats) -> float:
    step = -(-len(seconds) // _PAIRS_OF)
    return in_order(predicted[::step], seconds[::step], _SAME)


def mean_ranking(rankings: Iterable[RankScore]) -> RankScore:
    """The mean over tasks, geometric for the regret."""
    found = list(rankings)
    pairs, top_pairs, recall = (
        float(np.mean([getattr(r, n) for r in found])) for n in ("pairs", "top_pairs", "recall")
    )
    return RankScore(pairs, top_pairs, recall, float(np.exp(np.mean([np.log(r.regret) for r in found]))))
