"""Scores: the result of every cell relative to the best known, as one row with named columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from searchlab.errors import ResultError
from searchlab.lab.results import CellResult
from searchlab.registry import nearest

BEST = "best"
Stratum = tuple[str, str]  # task and context


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one cell.

    `entry` is the unit of comparison: a combination, or the level of a factor; `context` then has the other factors.
    `seconds` is inf and `score` 0 if no program worked.
    """

    entry: str
    task: str
    context: str
    seed: int
    seconds: float
    score: float

    @property
    def stratum(self) -> Stratum:
        """The task and context within which seeds are exchangeable."""
        return self.task, self.context


@dataclass(frozen=True)
class ComparedBy:
    """The subject of a comparison: entries, or the levels of one factor with everything else equal."""

    by: str = "entry"

    def entry(self, cell: CellResult) -> str:
        """What a cell counts for: its entry, or its level of the factor."""
        return cell.entry if self.by == "entry" else cell.factors[self.by]

    def context(self, cell: CellResult) -> str:
        """The other factors of a cell, within which levels are compared."""
        if self.by == "entry":
            return ""
        return ", ".join(f"{k}={v}" for k, v in sorted(cell.factors.items()) if k != self.by)

    def check(self, cells: Iterable[CellResult]) -> None:
        """Refuses a factor that the cells do not have."""
        for cell in cells:
            if self.by != "entry" and self.by not in cell.factors:
                known = nearest(self.by, ["entry", *cell.factors], "factors")
                raise ResultError(f"entry '{cell.entry}' has no factor '{self.by}'{known}")


def counted(cells: Iterable[CellResult]) -> tuple[CellResult, ...]:
    """The cells that count: those that ended, successfully or not."""
    return tuple(c for c in cells if c.state in ("done", "failed"))


def seconds_of(cell: CellResult) -> float:
    """The time of the program that a cell found; inf if it failed."""
    return cell.final_s if cell.state == "done" and cell.final_s > 0 else math.inf


def best_known(cells: Iterable[CellResult]) -> dict[str, float]:
    """The best time of every task: the minimum of its optimum, if known, and the times that its cells found."""
    found: dict[str, float] = {}
    for c in cells:
        optimum = math.inf if c.optimum_s is None else c.optimum_s
        found[c.task] = min(found.get(c.task, math.inf), optimum, seconds_of(c))
    return found


def scores(
    cells: Sequence[CellResult],
    view: ComparedBy | None = None,
    to: str = BEST,
    bests: Mapping[str, float] | None = None,
) -> tuple[Score, ...]:
    """One row per cell that counts.

    The score is reference / time: with `to` "best" the reference is the best known time of the task and scores lie
    between 0 and 1; otherwise it is a baseline or an entry, and the score is the speed-up over it.  `bests` has best
    known times from beyond these cells.
    """
    view = view or ComparedBy()
    known = counted(cells)
    view.check(known)
    reference = (bests or best_known(known)) if to == BEST else _reference(known, to)
    return tuple(
        Score(view.entry(c), c.task, view.context(c), c.seed, s := seconds_of(c), ratio(_own(c, to, reference), s))
        for c in known
    )


def ratio(reference: float, seconds: float) -> float:
    """reference / time; 0 without a time or a reference."""
    return reference / seconds if math.isfinite(seconds) and math.isfinite(reference) else 0.0


def _own(cell: CellResult, to: str, reference: Mapping[str, float]) -> float:
    """The baseline measured with the cell's best, under the same conditions; it takes precedence over the task's."""
    return cell.baselines.get(to, reference[cell.task]) if to != BEST else reference[cell.task]


def _reference(cells: Sequence[CellResult], to: str) -> dict[str, float]:
    """The median time of a baseline, or of an entry, on every task."""
    found: dict[str, list[float]] = {c.task: [] for c in cells}
    for c in cells:
        if to in c.baselines:
            found[c.task].append(c.baselines[to])
        elif c.entry == to and math.isfinite(seconds_of(c)):
            found[c.task].append(seconds_of(c))
    missing = [task for task, times in found.items() if not times]
    if missing:
        baselines = {b for c in cells for b in c.baselines}
        known = nearest(to, [BEST, *sorted(baselines), *dict.fromkeys(c.entry for c in cells)], "known")
        raise ResultError(f"there is no time of '{to}' on {', '.join(missing)}{known}")
    return {task: float(np.median(times)) for task, times in found.items()}
