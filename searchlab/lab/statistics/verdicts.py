"""Verdicts: the conclusions about two entries that a test and its effect sizes together support.

A p-value alone says neither which entry is better nor whether that matters, so one is called better only if the
test, the probability and the speed-up agree.  `docs/statistics.md` has the rules; all wording is derived from here.
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
    """The verdict on the first of two entries, compared with the second."""

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
        """The verdict on the second, compared with the first."""
        return {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}.get(self, self)


def judged(pair: Pair, alpha: float, band: float) -> tuple[Verdict, str]:
    """The verdict on a pair, and the reason if a significant difference is not called one."""
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
    """Whether the ranks of the test, the probability and the speed-up agree that the first is better.

    The mean over pairs in which both worked leaves failures out.  If the other one failed more often, it suffices that
    the mean does not contradict.
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
    """Whether the whole interval of the speed-up lies within the tie band, and it hides no failure."""
    s = pair.speedup
    if s is None or s.low is None or s.high is None or pair.failed_a or pair.failed_b:
        return False
    return 1 / (1 + band) <= s.low and s.high <= 1 + band
