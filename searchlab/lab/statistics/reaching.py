"""Time to target: the cost of coming close to the best known, with censored searches.

A search that ended before its target is *censored*: all we know is that it would have taken longer.  Leaving it out
would favour entries that seldom arrive, so three figures are given that take it into account.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from searchlab.lab.results import CellResult, Floats
from searchlab.lab.statistics.anytime import steps, trial_bests
from searchlab.lab.statistics.scores import ComparedBy, counted

Bools = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
ALL = "all"


@dataclass(frozen=True, slots=True)
class TimeToTarget:
    """The cost for an entry to reach a fraction of the best known on one task, or on all tasks together (task "all").

    `expected` is the cost of all its searches over the number that arrived (ERT; None: none did).  `median` is where
    the Kaplan-Meier curve falls to one half (None: it does not), `restricted_mean` the area under that curve up to
    `horizon`: the mean cost of searches that are stopped there.
    """

    entry: str
    task: str
    axis: str  # trials | time
    target: float
    cells: int
    reached: int
    share: float
    expected: float | None
    median: float | None
    restricted_mean: float
    horizon: float


def cost(cell: CellResult, best_s: float, target: float, axis: Literal["trials", "time"]) -> tuple[float, bool]:
    """The trials or seconds until the target (of the whole search if it was missed), and whether it was reached."""
    _, values = steps(cell, best_s, "trials")
    good = np.flatnonzero(values >= target * (1 - 1e-12))
    if axis == "trials":
        return (float(good[0] + 1), True) if len(good) else (float(len(values)), False)
    if len(good):
        return float(cell.elapsed[good[0]]), True
    return (float(cell.elapsed[-1]) if len(values) else 0.0), False


def survival(costs: Floats, reached: Bools) -> tuple[Floats, Floats]:
    """The Kaplan-Meier estimate: positions where the fraction still searching falls, and the fraction from there on."""
    places = np.unique(costs[reached])
    at_risk = np.array([(costs >= x).sum() for x in places])
    events = np.array([((costs == x) & reached).sum() for x in places])
    left: Floats = np.cumprod(1 - events / at_risk) if len(places) else np.empty(0)
    return places, left


def restricted_mean(costs: Floats, reached: Bools, horizon: float) -> float:
    """The area under the survival curve up to the horizon."""
    places, left = survival(costs, reached)
    edges = np.clip(np.concatenate([[0.0], places, [horizon]]), 0.0, horizon)
    return float((np.append(1.0, left) * np.diff(edges)).sum())


def reach(
    cells: Sequence[CellResult],
    target: float = 0.95,
    axis: Literal["trials", "time"] = "trials",
    view: ComparedBy | None = None,
    horizon: float | None = None,
) -> tuple[TimeToTarget, ...]:
    """Rows per entry and task, and one over all tasks.

    By default, the horizon is the largest cost that all entries of the task were allowed.
    """
    view = view or ComparedBy()
    known = counted(cells)
    view.check(known)
    bests = trial_bests(known)
    entries = list(dict.fromkeys(view.entry(c) for c in known))
    found = []
    for task in (*bests, ALL):
        mine = {e: [c for c in known if view.entry(c) == e and task in (c.task, ALL)] for e in entries}
        present = {e: cells for e, cells in mine.items() if cells}
        end = horizon or min((max(_given(c, axis) for c in cells) for cells in present.values()), default=0.0)
        for e, of_entry in present.items():
            costs = [cost(c, bests[c.task], target, axis) for c in of_entry]
            found.append(_row(e, task, axis, target, costs, end))
    return tuple(found)


def _given(cell: CellResult, axis: str) -> float:
    """The length of a cell in trials or seconds."""
    if axis == "trials" or not len(cell.elapsed):
        return float(len(cell.seconds))
    return float(cell.elapsed[-1])


def _row(
    entry: str, task: str, axis: str, target: float, pairs: Sequence[tuple[float, bool]], horizon: float
) -> TimeToTarget:
    costs = np.array([c for c, _ in pairs])
    reached = np.array([r for _, r in pairs], dtype=np.bool_)
    count = int(reached.sum())
    places, left = survival(costs, reached)
    half = np.flatnonzero(left <= 0.5 + 1e-12)
    return TimeToTarget(
        entry,
        task,
        axis,
        target,
        cells=len(costs),
        reached=count,
        share=count / len(costs),
        expected=float(costs.sum() / count) if count else None,
        median=float(places[half[0]]) if len(half) else None,
        restricted_mean=restricted_mean(costs, reached, horizon),
        horizon=horizon,
    )
