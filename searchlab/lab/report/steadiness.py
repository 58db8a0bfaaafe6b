"""Measurement noise, from the repeats that records keep, and how final times were measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from searchlab.lab.records import Record, RecordStore
from searchlab.lab.report.material import Material
from searchlab.lab.report.words import share
from searchlab.lab.results import Floats, Run


def spreads(material: Material) -> dict[str, Floats]:
    """The typical relative deviation of repeats from the median of their measurement, keyed by task."""
    found: dict[str, list[float]] = {}
    for run in material.runs:
        tasks = {c.id: c.task for c in run.cells}
        for record in _records(run):
            if record.ok and len(record.times) > 1 and record.cell in tasks:
                times = np.array(record.times)
                found.setdefault(tasks[record.cell], []).append(float(np.median(np.abs(times / np.median(times) - 1))))
    return {task: np.array(values) for task, values in found.items()}


def final_times(material: Material) -> str:
    """How the compared times were measured, in one sentence; empty for tables."""
    timed = [run for run in material.runs if not run.recorded]
    raced = [run.noise for run in timed if run.noise is not None]
    if not timed:
        return ""
    if not raced:
        return "Final times were measured by each cell at its own end."
    where = "" if len(raced) == len(timed) else f" in {len(raced)} of {len(timed)} runs"
    return (
        f"Final times come from run-offs{where}: the programs that the cells of a task found, interleaved in one"
        f" process; the two halves of a race differ by up to {share(max(raced), 1)} for most programs."
    )


def _records(run: Run) -> Iterator[Record]:
    """The measurements of a run, if its folder still exists."""
    folder = Path(run.folder) if run.folder else None
    if folder is None or run.recorded:
        return
    for path in sorted({*folder.glob("records.jsonl"), *folder.glob("records/*.jsonl")}):
        yield from RecordStore(path).records()
