"""How fast each entry gets to good programs: best-so-far curves over trials and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from searchlab.lab.report.blocks import Block, Figure, Grid, Section, Words
from searchlab.lab.report.drawing import Axis, Drawing, Series, line_chart, unit
from searchlab.lab.report.material import Material
from searchlab.lab.results import CellResult, Floats
from searchlab.lab.statistics import METHOD, progress

_POINTS = 80
_TASK_CAPTION = "The best time so far, before the last look at the best. Line: median over seeds, band: quartiles."


def section(material: Material) -> Section | None:
    """Curves over all tasks, then one small figure per task."""
    cells = [c for c in material.ended if len(c.seconds)]
    if not cells:
        return None
    blocks: list[Block] = [_overall(material, "trials"), _overall(material, "time")]
    blocks.append(Words("Each task by itself; lower is better."))
    each = tuple(_task(material, t, n) for n, t in enumerate(dict.fromkeys(c.task for c in cells)))
    blocks.append(Grid(each, tuple(k for k in material.looks.values() if not k.muted), _TASK_CAPTION))
    return Section("progress", "Progress of the search", tuple(blocks))


def _overall(material: Material, axis: Literal["trials", "time"]) -> Figure:
    points = progress(material.ended, material.rng(), axis, points=_POINTS)
    last = max((p.x for p in points), default=1.0)
    scale, name = (1.0, "") if axis == "trials" else (60.0, "min") if last >= 300 else unit(last)
    series = []
    for entry in material.entries:
        mine = [p for p in points if p.entry == entry]
        x, y, low, high = (_floats([getattr(p, n) for p in mine]) for n in ("x", "value", "low", "high"))
        series.append(Series(material.looks[entry], x / scale, y, low, high))
    clock = "simulated time" if material.recorded else "wall time"
    x_axis = Axis("trials" if axis == "trials" else f"{clock} of a search, {name}", low=0.0)
    y_axis = Axis("best known / best so far (higher is better)", high=1.0, percent=True)
    known = "optimum of the table" if material.recorded else "fastest that any search here found"
    return Figure(
        f"progress-{axis}",
        f"How close searches come to the best known, over {axis}",
        f"Line: interquartile mean over tasks and seeds of the best known time divided by the best so far; the best "
        f"known is the {known}. Band: {METHOD}.",
        _chart(series, x_axis, y_axis),
    )


def _task(material: Material, task: str, number: int) -> Figure:
    cells = [c for c in material.ended if c.task == task and len(c.seconds)]
    best = material.best_known[task]
    scale, name = unit(best if np.isfinite(best) else 1.0)
    series = [_of_task(material, own, scale) for e in material.entries if (own := [c for c in cells if c.entry == e])]
    x, y = Axis("trials", low=0.0), Axis(f"best time so far, {name}", log=True)
    return Figure(
        f"task-{number + 1}",
        task,
        _TASK_CAPTION,
        _chart(series, x, y),
        wide=False,
        small=_chart(series, x, y, named=False),
    )


def _of_task(material: Material, cells: Sequence[CellResult], scale: float) -> Series:
    """Quartiles by nearest rank, so that a search that found nothing yet stays infinite."""
    longest = max(len(c.seconds) for c in cells)
    curves = np.full((len(cells), longest), np.inf)
    for row, c in zip(curves, cells, strict=True):
        row[: len(c.seconds)], row[len(c.seconds) :] = c.best_so_far, c.best_so_far[-1]
    ordered = np.sort(curves, axis=0) / scale
    low, middle, high = (ordered[int(q * (len(cells) - 1) + 0.5)] for q in (0.25, 0.5, 0.75))
    return Series(material.looks[cells[0].entry], np.arange(1.0, longest + 1), middle, low, high)


def _floats(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if v is None else v for v in values])


def _chart(series: list[Series], x: Axis, y: Axis, named: bool = True) -> Callable[[float], Drawing]:
    return lambda width: line_chart(series, x, y, width, named=named)
