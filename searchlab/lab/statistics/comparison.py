"""A whole comparison of entries, or of the levels of a factor: scores, tests and caveats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from searchlab.errors import ResultError
from searchlab.lab.config.experiment import ReportSettings
from searchlab.lab.results import CellResult, Run
from searchlab.lab.statistics import wording
from searchlab.lab.statistics.aggregate import Summary, summaries
from searchlab.lab.statistics.anytime import areas, trial_bests
from searchlab.lab.statistics.notes import TIE_BAND, notes, tie_band
from searchlab.lab.statistics.ranking import Ranking, ranking
from searchlab.lab.statistics.scores import BEST, ComparedBy, Score, best_known, counted, scores
from searchlab.registry import nearest

Metric = Literal["final", "trials", "time", "log-time"]
METRICS: tuple[Metric, ...] = ("final", "trials", "time", "log-time")
UNITS = ("seed", "task")


@dataclass(frozen=True)
class ComparisonSettings:
    """The settings of a comparison.

    metric   "final" is the time of the program found; the others are areas under best-so-far curves over trials or time
    to       the reference of scores: "best" known, a baseline or an entry
    band     the tie band: the relative difference up to which times are ties
    unit     the blocks of the tests: a "seed" of a task, or a "task"
    control  the entry that all others are compared with, instead of all pairs
    """

    metric: Metric = "final"
    to: str = BEST
    band: float = TIE_BAND
    alpha: float = 0.05
    unit: str = "seed"
    control: str | None = None
    seed: int = 0  # of the bootstrap

    def __post_init__(self) -> None:
        for value, known, what in ((self.metric, METRICS, "metric"), (self.unit, UNITS, "unit")):
            if value not in known:
                raise ResultError(f"unknown {what} '{value}'{nearest(value, known)}")
        if self.metric != "final" and self.to != BEST:
            raise ResultError(f"areas are relative to the best known: metric {self.metric} does not go with {self.to}")
        if not 0 < self.alpha < 1:
            raise ResultError(f"alpha lies between 0 and 1, not {self.alpha:g}")
        if self.band < 0:
            raise ResultError(f"a tie band is not negative, as {self.band:g} is")

    @staticmethod
    def of(runs: Sequence[Run], **given: Any) -> ComparisonSettings:
        """The report settings of the first experiment, unless given; the tie band is at least the measured noise.

        Leaderboards, comparisons and reports of the same runs share these, so that they agree on who is better.
        """
        said = runs[0].report if runs else ReportSettings()
        found = {"alpha": said.alpha, "band": max(said.tie, tie_band(runs))}
        return ComparisonSettings(**(found | {name: value for name, value in given.items() if value is not None}))


@dataclass(frozen=True)
class Comparison:
    """The factor compared (`by`), the summaries of its levels, their ranking, and caveats."""

    by: str
    settings: ComparisonSettings
    summaries: tuple[Summary, ...]
    ranking: Ranking
    notes: tuple[str, ...]

    @property
    def answer(self) -> str:
        """The comparison in a sentence; empty if there is nothing to compare."""
        if self.settings.control is not None:
            return wording.against(self.settings.control, self.ranking.pairs, self.settings.metric == "final")
        said = wording.text(wording.answer(self.ranking))
        return f"{said}." if said else ""

    @property
    def method(self) -> tuple[str, ...]:
        """How the figures were made, for the foot of a table."""
        return wording.method(self.settings, self.ranking)


def compare(
    cells: Sequence[CellResult],
    view: ComparedBy | None = None,
    settings: ComparisonSettings | None = None,
    among: Sequence[CellResult] = (),
) -> Comparison:
    """Compares the entries of cells, or the levels of a factor with everything else equal.

    `among` are all cells that determine the best known times, if they are more than those compared.
    """
    view, settings = view or ComparedBy(), settings or ComparisonSettings()
    rows = rows_of(cells, view, settings, among or cells)
    if settings.control is not None and settings.control not in {r.entry for r in rows}:
        known = nearest(settings.control, dict.fromkeys(r.entry for r in rows), "compared")
        raise ResultError(f"there is no '{settings.control}' to compare with{known}")
    # separate streams, so that an option of one does not change the other
    first, second = np.random.default_rng(settings.seed).spawn(2)
    found = ranking(
        rows, second, band=settings.band, alpha=settings.alpha, unit=settings.unit, control=settings.control
    )
    return Comparison(view.by, settings, summaries(rows, first), found, notes(cells, view))


def rows_of(
    cells: Sequence[CellResult], view: ComparedBy, settings: ComparisonSettings, among: Sequence[CellResult]
) -> tuple[Score, ...]:
    """The scores to compare; for areas, `seconds` is 1 / area, so that smaller is better as for times."""
    known = counted(cells)
    if settings.metric == "final":
        return scores(known, view, settings.to, best_known(counted(among)))
    found = areas(known, settings.metric, view, bests=trial_bests(counted(among)))
    return tuple(replace(r, seconds=1 / r.score if r.score > 0 else np.inf) for r in found)
