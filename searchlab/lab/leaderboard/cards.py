"""Cards: everything known about an entry, so that others can judge and repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from searchlab.errors import ResultError
from searchlab.lab.leaderboard.pools import machine_name
from searchlab.lab.results import CellResult, Run
from searchlab.lab.statistics import counted, pooled, version_notes
from searchlab.registry import nearest


@dataclass(frozen=True)
class TaskCard:
    """An entry on one task: the number of cells, their median and best time, and the best candidate."""

    task: str
    cells: int
    failed: int
    median_s: float | None
    best_s: float | None
    best: str


@dataclass(frozen=True)
class Card:
    """One entry of one run: its components, its settings, its results, and how to repeat it."""

    entry: str
    run: str
    folder: str
    factors: Mapping[str, str]
    config: Mapping[str, Any]
    seeds: tuple[int, ...]
    machine: str
    recorded: bool
    versions: Mapping[str, str]
    started: str
    command: str
    tasks: tuple[TaskCard, ...]
    notes: tuple[str, ...] = ()


def cards(runs: Sequence[Run], entry: str) -> tuple[Card, ...]:
    """The cards of an entry, one per run that has it."""
    shown = dict.fromkeys(c.entry for c in pooled(runs))
    found = [_card(run, entry, ids) for run in runs if (ids := _ids(run, entry))]
    if not found:
        known = nearest(entry, shown, "entries")
        raise ResultError(f"there is no entry '{entry}'{known}")
    return tuple(found)


def _ids(run: Run, entry: str) -> set[str]:
    """The ids of the run's cells with this name, either their own or the one that boards give to ambiguous entries."""
    return {c.id for c in run.cells if entry in (c.entry, f"{c.entry} ({run.name})")}


def _card(run: Run, entry: str, ids: set[str]) -> Card:
    cells = [c for c in run.cells if c.id in ids]
    return Card(
        entry,
        run.name,
        run.folder,
        dict(cells[0].factors),
        run.config,
        tuple(sorted({c.seed for c in cells})),
        machine_name(run),
        run.recorded,
        run.versions,
        run.started,
        run.command,
        tuple(_task([c for c in cells if c.task == task], task) for task in dict.fromkeys(c.task for c in cells)),
        tuple(version_notes(cells)),
    )


def _task(cells: Sequence[CellResult], task: str) -> TaskCard:
    done = counted(cells)
    worked = sorted((c for c in done if np.isfinite(c.final_s) and c.state == "done"), key=lambda c: c.final_s)
    if not worked:
        return TaskCard(task, len(done), len(done), None, None, "")
    best = worked[0].best
    median = float(np.median([c.final_s for c in worked]))
    point = "" if best is None else best.point
    return TaskCard(task, len(done), len(done) - len(worked), median, worked[0].final_s, point)
