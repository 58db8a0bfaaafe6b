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
    """One measured batch: its points and times, re-measurements of potential incumbents, the best time so far, and the
    quality of the model's predictions."""

    number: int
    points: Points
    seconds: Floats
    best_s: float
    trials: int
    quality: Quality | None = None
    looks: tuple[IncumbentLook, ...] = ()
    part: int | None = None  # the number of the task, in a network


class AskTell(Protocol):
    """A search with an ask/tell interface: one study, or several with one budget."""

    batch: int

    def ask(self, count: int) -> list[Candidate]:
        """At most `count` candidates to measure next; none if nothing is left."""

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
    """Runs a search while trials are `left`; False if it ended earlier because it had nothing more to propose.

    `measure` replaces the search's own method, `told` is called after every round.  An exception in either ends the
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
