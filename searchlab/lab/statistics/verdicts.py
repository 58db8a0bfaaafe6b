"""Verdicts: what a test and the effects beside it together allow to be said of two entries.

A p-value alone says neither which entry is better nor whether that matters, so one is called better only where the
test, the probability and the speed-up say the same.  `docs/statistics.md` has the rules; all words follow from here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from searchlab.lab.statistics.pairs import Pair

NO_DIFFERENCE = "Friedman's test finds no difference"
_SMALL = "it is within the tie band"
_MIXED = "ranks, probability and speed-up disagree"


class Verdict(StrEnum):
    """What the first of two entries is, compared with the second."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUAL = "equal within the tie band"
    UNKNOWN = "cannot be told apart"

    @property
    def ordered(self) -> bool:
        """Whether one of the two is better."""
        return self in (Verdict.FASTER, Verdict.SLOWER)

    @property
    def turned(self) -> Verdict:
        """What the second is, compared with the first."""
        return {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}.get(self, self)


def judged(pair: Pair, alpha: float, band: float) -> tuple[Verdict, str]:
    """The verdict on a pair; where the test finds a difference that is not called one, why not."""
    found = pair.p_holm < alpha
    if found and _better(pair, band):
        return Verdict.FASTER, ""
    if found and _better(pair.turned, band):
        return Verdict.SLOWER, ""
    s = pair.speedup
    small = s is not None and 1 / (1 + band) <= s.value <= 1 + band
    equal = _equal(pair, band) and _enough(pair.blocks, alpha)
    return Verdict.EQUAL if equal else Verdict.UNKNOWN, "" if not found else _SMALL if small else _MIXED


def _better(pair: Pair, band: float) -> bool:
    """Whether everything says that the first is better: the ranks of the test, the probability and the speed-up.

    A mean over pairs in which both worked leaves failures out.  Where the other one failed more often, it is enough
    that the mean does not say the opposite.
    """
    if pair.rank_biserial <= 0 or pair.improvement.value <= 0.5:
        return False
    s = pair.speedup
    if s is None:
        return True
    if pair.failed_b > pair.failed_a:
        return s.value >= 1 / (1 + band)
    return s.value > 1 + band and (s.low is None or s.low > 1)


def _enough(blocks: int, alpha: float) -> bool:
    """Whether the test could find a difference at all: all of the pairs would have to point one way."""
    return 2 * 0.5**blocks < alpha


def _equal(pair: Pair, band: float) -> bool:
    """Whether the whole interval of the speed-up lies within the tie band, and no failure is hidden behind it."""
    s = pair.speedup
    if s is None or s.low is None or s.high is None or pair.failed_a or pair.failed_b:
        return False
    return 1 / (1 + band) <= s.low and s.high <= 1 + band
