"""The convergence of entries: best-so-far curves over trials and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from searchlab.lab.report.blocks import Block, Figure, FigureGrid, Section, Words
from searchlab.lab.report.drawing import Axis, Drawing, Series, line_chart, unit
from searchlab.lab.report.material import Material
from searchlab.lab.results import CellResult, Floats
from searchlab.lab.statistics import METHOD, progress
from searchlab.lab.statistics.anytime import heights, trial_bests

_POINTS = 80
_TASK_CAPTION = "The best time so far, before the final re-measurement. Line: median over seeds; band: quartiles."


def section(material: Material) -> Section | None:
    """Curves over all tasks, then one small figure per task."""
    cells = [c for c in material.ended if len(c.seconds)]
    if not cells:
        return None
    blocks: list[Block] = [_overall(material, "trials"), _overall(material, "time")]
    looks = tuple(k for k in material.looks.values() if not k.muted)
    blocks.append(Words("Each task separately; lower is better."))
    blocks.append(FigureGrid(_tasks(material, cells, "trials"), looks, _TASK_CAPTION))
    blocks.append(FigureGrid(_tasks(material, cells, "time"), looks, _TASK_CAPTION, open=0, more="the same over time"))
    return Section("progress", "Progress of the search", tuple(blocks))


def _overall(material: Material, axis: Literal["trials", "time"]) -> Figure:
    points = progress(material.ended, material.rng(), axis, points=_POINTS)
    last = max((p.x for p in points), default=1.0)
    scale, clock = (1.0, "trials") if axis == "trials" else _clock(material, last)
    series = []
    for entry in material.entries:
        mine = [p for p in points if p.entry == entry]
        x, y, low, high = (_floats([getattr(p, n) for p in mine]) for n in ("x", "value", "low", "high"))
        series.append(Series(material.looks[entry], x / scale, y, low, high))
    x_axis = Axis(clock, low=0.0)
    y_axis = Axis("best known / best so far (higher is better)", high=1.0, percent=True)
    known = "optimum of the table" if material.recorded else "fastest program that any search here found"
    return Figure(
        f"progress-{axis}",
        f"How close searches come to the best known, over {axis}",
        f"Line: interquartile mean over tasks and seeds of the best known time divided by the best so far; the best "
        f"known is the {known}. Band: {METHOD}.",
        _chart(series, x_axis, y_axis),
    )


def _tasks(material: Material, cells: Sequence[CellResult], axis: Literal["trials", "time"]) -> tuple[Figure, ...]:
    bests = trial_bests(cells)
    mine = {task: [c for c in cells if c.task == task] for task in bests}
    return tuple(_task(material, task, found, bests[task], axis, n) for n, (task, found) in enumerate(mine.items(), 1))


def _task(
    material: Material,
    task: str,
    cells: Sequence[CellResult],
    best_s: float,
    axis: Literal["trials", "time"],
    number: int,
) -> Figure:
    last = max(float(len(c.seconds)) if axis == "trials" else float(c.elapsed[-1]) for c in cells)
    where = np.arange(1.0, last + 1) if axis == "trials" else np.linspace(0.0, last, _POINTS + 1)[1:]
    scale, name = unit(best_s if np.isfinite(best_s) else 1.0)
    length, clock = (1.0, "trials") if axis == "trials" else _clock(material, last)
    series = []
    for entry in material.entries:
        found = [heights(c, best_s, axis, where) for c in cells if c.entry == entry]
        if found:
            low, middle, high = _quartiles(best_s / scale, np.array(found))
            series.append(Series(material.looks[entry], where / length, middle, low, high))
    x, y = Axis(clock, low=0.0), Axis(f"best time so far, {name}", log=True)
    return Figure(
        f"task-{number}" if axis == "trials" else f"task-{number}-time",
        task,
        _TASK_CAPTION,
        _chart(series, x, y),
        wide=False,
        small=_chart(series, x, y, named=False),
    )


def _quartiles(best: float, scores: Floats) -> tuple[Floats, Floats, Floats]:
    """Quartiles of the times behind scores, by nearest rank, so that a search without a result yet stays infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.sort(np.where(scores > 0, best / scores, np.inf), axis=0)
    low, middle, high = (times[int(q * (len(times) - 1) + 0.5)] for q in (0.25, 0.5, 0.75))
    return low, middle, high


def _clock(material: Material, last: float) -> tuple[float, str]:
    """The unit of the time axis in seconds, and its title."""
    scale, name = (60.0, "min") if last >= 300 else unit(last)
    return scale, f"{'simulated time' if material.recorded else 'wall time'} of a search, {name}"


def _floats(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if v is None else v for v in values])


def _chart(series: list[Series], x: Axis, y: Axis, named: bool = True) -> Callable[[float], Drawing]:
    return lambda width: line_chart(series, x, y, width, named=named)
