"""How steady measurements were, from the repeats that records keep."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from searchlab.lab.records import Record, Store
from searchlab.lab.report.material import Material
from searchlab.lab.results import Floats, Run


def spreads(material: Material) -> dict[str, Floats]:
    """How far the repeats of a measurement typically are from their median, relative to it; by task."""
    found: dict[str, list[float]] = {}
    for run in material.runs:
        tasks = {c.id: c.task for c in run.cells}
        for record in _records(run):
            if record.ok and len(record.times) > 1 and record.cell in tasks:
                times = np.array(record.times)
                found.setdefault(tasks[record.cell], []).append(float(np.median(np.abs(times / np.median(times) - 1))))
    return {task: np.array(values) for task, values in found.items()}


def _records(run: Run) -> Iterator[Record]:
    """The measurements of a run, if its folder is still there."""
    folder = Path(run.folder) if run.folder else None
    if folder is None or run.recorded:
        return
    for path in sorted({*folder.glob("records.jsonl"), *folder.glob("records/*.jsonl")}):
        yield from Store(path).records()
