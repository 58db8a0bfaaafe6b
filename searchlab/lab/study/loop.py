"""The search loop: ask for candidates, measure them, tell their times, until the budget is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from searchlab.lab.study.incumbent import IncumbentLook
from searchlab.lab.study.quality import Quality
from searchlab.lab.study.subject import Candidate
from searchlab.measure import Outcome
from searchlab.search import Points
from searchlab.search.knob import Floats

Measure = Callable[[Sequence[Candidate]], Sequence[Outcome]]


@dataclass(frozen=True)
class Round:
    """One measured batch: its points and times, re-measurements of would-be incumbents, the best time so far, and how
    good the model's predictions were."""

    number: int
    points: Points
    seconds: Floats
    best_s: float
    trials: int
    quality: Quality | None = None
    looks: tuple[IncumbentLook, ...] = ()
    part: int | None = None  # of a network: which of its tasks


class AskTell(Protocol):
    """A search that can be asked and told: one study, or several with one budget."""

    batch: int

    def ask(self, count: int) -> list[Candidate]:
        """Candidates to measure next, `count` at most; none if nothing is left."""

    def measure(self, candidates: Sequence[Candidate]) -> Sequence[Outcome]:
        """The outcomes of candidates, in their order."""

    def tell(self, candidates: Sequence[Candidate], outcomes: Sequence[Outcome]) -> Round:
        """Learns from a measured batch."""


def search_loop(
    search: AskTell,
    left: Callable[[], int],
    measure: Measure | None = None,
    told: Callable[[Sequence[Outcome], Round], object] | None = None,
) -> bool:
    """Runs a search while trials are `left`; False if it ended before, because there was nothing more to propose.

    `measure` stands between a search and its measuring, `told` hears of every round.  An exception of either ends the
    loop.
    """
    while (count := left()) > 0:
        candidates = search.ask(min(count, search.batch))
        if not candidates:
            return False
        outcomes = (measure or search.measure)(candidates)
        done = search.tell(candidates, outcomes)
        if told is not None:
            told(outcomes, done)
    return True
