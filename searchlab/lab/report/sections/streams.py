"""Streams: time against error of all trials with the front that was found, and what is left of each layer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from searchlab.lab.folder.folder import Folder
from searchlab.lab.records import Record
from searchlab.lab.report.blocks import Block, Column, Figure, Section, TableBlock, TableCell, Words
from searchlab.lab.report.drawing import Axis, Series, line_chart, unit
from searchlab.lab.report.material import Material
from searchlab.lab.report.words import digits, seconds, share
from searchlab.lab.results import CellResult, Floats

_LEAD = (
    "A stream computes what changed between frames. Its time is the mean over the frames of the clip but the first, "
    "its error the largest relative error of the output at any frame. What violates the bound is a trial like any "
    "other, but counts as slower than computing everything."
)


@dataclass(frozen=True)
class StreamTrial:
    """A trial of a stream as its record has it."""

    entry: str
    seconds: float
    error: float
    record: Record

    @property
    def notes(self) -> Mapping[str, Any]:
        """What was noted beside its times."""
        return self.record.notes


def section(material: Material) -> Section | None:
    """The section; None if no task is a stream, or if the records are gone."""
    blocks: list[Block] = []
    for number, task in enumerate(material.tasks, 1):
        cells = [c for c in material.cells if c.task == task and c.cell.video is not None]
        trials = [t for c in cells for t in _trials(material, c)]
        if trials:
            blocks.append(_front_figure(material, trials, task, number))
            blocks.append(_entries(material, cells, trials, task, number))
            blocks += _layers(trials, task, number)
    return Section("streams", "Streams", (Words(_LEAD), *blocks)) if blocks else None


def _trials(material: Material, cell: CellResult) -> list[StreamTrial]:
    for run in material.runs:
        if run.folder and any(c.id == cell.id for c in run.cells):
            records = Folder(Path(run.folder)).records(cell.id).records(None, "ok")
            return [StreamTrial(cell.entry, min(r.times), float(r.notes["relative_error"]), r) for r in records]
    return []


def front(trials: Sequence[StreamTrial]) -> list[StreamTrial]:
    """The trials that no other beats in both time and error, fastest first."""
    found: list[StreamTrial] = []
    for t in sorted(trials, key=lambda t: (t.seconds, t.error)):
        if not found or t.error < found[-1].error:
            found.append(t)
    return found


def _bound(trials: Sequence[StreamTrial]) -> float:
    return float(trials[0].notes["bound"])


def _front_figure(material: Material, trials: Sequence[StreamTrial], task: str, number: int) -> Figure:
    scale, name = unit(float(np.median([t.seconds for t in trials])))
    series = []
    for entry in material.entries:
        mine = [t for t in trials if t.entry == entry]
        if mine:
            look = material.looks[entry]
            best = front(mine)
            series.append(Series(look, *_points(mine, scale), dots=True))
            series.append(Series(look, *_points(best, scale)))
    x, y = Axis(f"time per frame, {name}"), Axis("largest relative error, per cent", log=True)
    return Figure(
        f"stream-{number}",
        f"{task}: time against error",
        "Dots: all trials. Line: the front, trials that no other beats in both. Dashed: the bound.",
        lambda width: line_chart(series, x, y, width, level=100 * _bound(trials)),
    )


def _points(trials: Sequence[StreamTrial], scale: float) -> tuple[Floats, Floats]:
    return np.array([t.seconds / scale for t in trials]), np.array([100 * max(t.error, 1e-9) for t in trials])


def _within(trials: Sequence[StreamTrial]) -> list[StreamTrial]:
    return [t for t in trials if t.error <= float(t.notes["bound"])]


def _entries(
    material: Material, cells: Sequence[CellResult], trials: Sequence[StreamTrial], task: str, number: int
) -> TableBlock:
    """The best of each entry within the bound."""
    columns = (
        Column("entry"),
        Column("per frame", True, "mean over frames"),
        Column("median", True),
        Column("p95", True),
        Column("× dense", True, "speed-up over the plain graph"),
        Column("error", True, "largest relative error"),
        Column("drift", True, "errors in the last third of the frames less those in the first"),
        Column("work", True, "multiplications that frames of changes took"),
        Column("within", True, "trials within the bound"),
    )
    rows = []
    for entry in material.entries:
        mine = [t for t in trials if t.entry == entry]
        good = _within(mine)
        if good:
            best = min(good, key=lambda t: t.seconds)
            rows.append((TableCell(entry, look=material.looks[entry]), *_figures(best), _count(good, mine)))
    dense = [c.baselines["dense"] for c in cells if "dense" in c.baselines]
    note = f"The plain graph takes {seconds(min(dense))} per frame." if dense else ""
    return TableBlock(
        f"stream-{number}-best", f"{task}: the fastest trial within the bound", columns, tuple(rows), note
    )


def _figures(best: StreamTrial) -> tuple[TableCell, ...]:
    values = {name: float(best.notes[name]) for name in ("median_s", "p95_s", "dense_s", "drift", "work")}
    gain = values["dense_s"] / best.seconds
    return (
        TableCell(seconds(best.seconds), best.seconds),
        TableCell(seconds(values["median_s"]), values["median_s"]),
        TableCell(seconds(values["p95_s"]), values["p95_s"]),
        TableCell(digits(gain), gain),
        TableCell(share(best.error, 2), best.error),
        TableCell(share(values["drift"], 2), values["drift"]),
        TableCell(share(values["work"]), values["work"]),
    )


def _count(good: Sequence[StreamTrial], all_: Sequence[StreamTrial]) -> TableCell:
    return TableCell(f"{len(good)} of {len(all_)}", len(good))


def _layers(trials: Sequence[StreamTrial], task: str, number: int) -> list[TableBlock]:
    """The layers of the fastest trial within the bound whose layers were timed."""
    timed = [t for t in _within(trials) if "layer_s" in t.notes]
    if not timed:
        return []
    best = min(timed, key=lambda t: t.seconds)
    times = json.loads(best.notes["layer_s"])
    whole = sum(times.values()) or 1.0
    columns = (
        Column("layer"),
        Column("threshold", True),
        Column("changed", True, "share of inputs that changed by more than the threshold"),
        Column("computed", True, "share of output pixels, or inputs, that were computed"),
        Column("time", True, "with the differences and counts of what it reads"),
        Column("share", True),
    )
    rows = [
        (
            TableCell(layer),
            TableCell(digits(threshold), threshold),
            TableCell(share(density, 1), density),
            TableCell(share(computed, 1), computed),
            TableCell(seconds(times.get(layer, 0.0)), times.get(layer, 0.0)),
            TableCell(share(times.get(layer, 0.0) / whole), times.get(layer, 0.0)),
        )
        for layer, threshold, density, computed in json.loads(best.notes["layers"])
    ]
    other = times.get("", 0.0)
    note = (
        f"Found by {best.entry}. What belongs to no layer takes {seconds(other)}, {share(other / whole)} of the time."
    )
    return [TableBlock(f"stream-{number}-layers", f"{task}: the layers of the fastest", columns, tuple(rows), note)]
