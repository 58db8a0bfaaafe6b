"""Anytime performance: best-so-far curves of scores, their areas, and averages over tasks and seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from searchlab.lab.results import CellResult, Floats
from searchlab.lab.statistics.aggregate import Resampler, estimate, iqm
from searchlab.lab.statistics.scores import ComparedBy, Score, best_known, counted, seconds_of

Axis = Literal["trials", "time", "log-time"]
AXES: tuple[Axis, ...] = ("trials", "time", "log-time")


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The interquartile mean of an entry's scores after a number of trials or seconds, over all its tasks and seeds."""

    entry: str
    axis: Axis
    x: float
    value: float
    low: float | None
    high: float | None


def steps(cell: CellResult, best_s: float, axis: Axis) -> tuple[Floats, Floats]:
    """The positions where a cell's score (best known / best so far) changes, and the new scores; 0 before the first.

    On the trial axis the k-th trial counts from k - 1 on, on the time axis from its end on.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(np.isfinite(cell.best_so_far), min(best_s, np.finfo(float).max) / cell.best_so_far, 0.0)
    starts = np.arange(len(values), dtype=np.float64) if axis == "trials" else cell.elapsed
    return starts, np.minimum(values, 1.0)


def area(starts: Floats, values: Floats, first: float, last: float) -> float:
    """The mean height of a step function between two positions; the last step extends to the end."""
    if not len(starts) or last <= first:
        return float(values[-1]) if len(values) else 0.0
    edges = np.clip(np.append(starts, last), first, last)
    return float((values * np.diff(edges)).sum() / (last - first))


def areas(
    cells: Sequence[CellResult],
    axis: Axis = "trials",
    view: ComparedBy | None = None,
    horizon: float | None = None,
    bests: Mapping[str, float] | None = None,
) -> tuple[Score, ...]:
    """One row per cell that counts, whose score is the mean over the search of best known / best so far.

    The search lasts until `horizon` trials or seconds, by default as long as the longest cell of the task.  With
    "log-time" every doubling of the time counts the same, from the first measurement of the task on.
    """
    view = view or ComparedBy()
    known = counted(cells)
    view.check(known)
    bests = bests or trial_bests(known)
    limits = {task: _limits([c for c in known if c.task == task], axis, horizon) for task in bests}
    rows = []
    for c in known:
        starts, values = steps(c, bests[c.task], axis)
        first, last = limits[c.task]
        if axis == "log-time":
            starts = np.log(np.maximum(starts, first))
            first, last = math.log(first), math.log(last)
        rows.append(
            Score(view.entry(c), c.task, view.context(c), c.seed, seconds_of(c), area(starts, values, first, last))
        )
    return tuple(rows)


def trial_bests(cells: Sequence[CellResult]) -> dict[str, float]:
    """The best time of every task, single trials included: the reference of curves."""
    found = best_known(cells)
    for c in cells:
        if len(c.seconds):
            found[c.task] = min(found[c.task], float(c.best_so_far[-1]))
    return found


def _limits(cells: Sequence[CellResult], axis: Axis, horizon: float | None) -> tuple[float, float]:
    """The range over which a task's curves are evaluated."""
    worked = [c for c in cells if len(c.seconds)]
    if axis == "trials":
        return 0.0, horizon or float(max((len(c.seconds) for c in worked), default=0))
    last = horizon or max((float(c.elapsed[-1]) for c in worked), default=0.0)
    if axis == "time":
        return 0.0, last
    first = min((float(c.elapsed[0]) for c in worked if c.elapsed[0] > 0), default=1.0)
    return first, max(last, first)


def progress(
    cells: Sequence[CellResult],
    rng: np.random.Generator,
    axis: Axis = "trials",
    view: ComparedBy | None = None,
    points: int = 50,
    draws: int = 500,
) -> tuple[CurvePoint, ...]:
    """Curves of all entries at the same positions, as a long table: entry, x, value, low, high."""
    view = view or ComparedBy()
    known = counted(cells)
    view.check(known)
    bests = trial_bests(known)
    rows = [Score(view.entry(c), c.task, view.context(c), c.seed, seconds_of(c), 0.0) for c in known]
    resampler = Resampler.of(rows, rng, draws)
    where = _places(known, axis, points)
    found: list[CurvePoint] = []
    for entry in dict.fromkeys(r.entry for r in rows):
        mine = [
            (r, heights(c, bests[c.task], axis, where)) for r, c in zip(rows, known, strict=True) if r.entry == entry
        ]
        found += [
            _point(entry, axis, float(x), [(r, float(h[n])) for r, h in mine], resampler) for n, x in enumerate(where)
        ]
    return tuple(found)


def heights(cell: CellResult, best_s: float, axis: Axis, where: Floats) -> Floats:
    """The score of a cell after each number of trials or seconds."""
    starts, values = steps(cell, best_s, axis)
    after = starts + 1 if axis == "trials" else starts
    found: Floats = np.append(0.0, values)[np.searchsorted(after, where, side="right")]
    return found


def _places(cells: Sequence[CellResult], axis: Axis, points: int) -> Floats:
    limits = [
        _limits([c for c in cells if c.task == task], axis, None) for task in dict.fromkeys(c.task for c in cells)
    ]
    last = max((end for _, end in limits), default=0.0)
    if last <= 0:
        return np.empty(0)
    if axis == "trials":
        return np.unique(np.rint(np.linspace(1, last, min(points, int(last)))))
    first = min(start for start, _ in limits)
    return np.geomspace(first, last, points) if axis == "log-time" else np.linspace(0, last, points + 1)[1:]


def _point(
    entry: str, axis: Axis, x: float, heights: Sequence[tuple[Score, float]], resampler: Resampler
) -> CurvePoint:
    strata: dict[tuple[str, str], list[float]] = {}
    for row, height in sorted(heights, key=lambda pair: pair[0].seed):
        strata.setdefault(row.stratum, []).append(height)
    values: Mapping[tuple[str, str], Floats] = {s: np.array(v) for s, v in strata.items()}
    e = estimate(values, iqm, resampler)
    return CurvePoint(entry, axis, x, e.value, e.low, e.high)
