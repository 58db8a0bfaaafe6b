"""The progress of a run, read from its folder during the run or afterwards."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from searchlab.lab.code import codes
from searchlab.lab.folder.folder import Folder
from searchlab.lab.folder.folder_lock import owner
from searchlab.lab.manifest import Cell, Manifest, shared
from searchlab.lab.results import CellResult
from searchlab.lab.run.execute.prepare import outdated_in
from searchlab.lab.run.execute.run_state import OPTIMUM, against
from searchlab.lab.run.runoff.runoff import results as timed
from searchlab.lab.statistics.wording import kept

STATES = ("done", "running", "interrupted", "failed", "waiting")


@dataclass(frozen=True)
class StatusRow:
    """One combination on one task: the number of finished cells, and the best result of any of them."""

    entry: str
    task: str
    cells: int
    done: int
    trials: int
    best_s: float | None
    against: str
    kept: str = ""  # what is taken home instead, where the default schedule was faster than every search
    modelled: bool = False  # whether `best_s` is a modelled cost


@dataclass(frozen=True)
class Status:
    """A snapshot of a run; `owner` is the process that runs it, `shared` the settings common to all entries."""

    folder: str
    name: str
    owner: int | None
    total: int
    states: Mapping[str, int]
    trials: int
    left_s: float | None
    failures: Mapping[str, int]
    errors: Sequence[tuple[str, str]]
    rows: Sequence[StatusRow]
    shared: Mapping[str, str]
    earlier: Sequence[str]  # which components have changed since cells ran, in words

    @property
    def complete(self) -> bool:
        """Whether all cells are done."""
        return self.states["done"] == self.total

    @property
    def over(self) -> bool:
        """Whether no process is working on it."""
        return self.owner is None

    def to_json(self) -> dict[str, Any]:
        """The status as plain data."""
        return {**asdict(self), "complete": self.complete}


def status(folder: str | os.PathLike[str]) -> Status:
    """The state of the run in a folder."""
    place = Folder(Path(folder))
    manifest = place.manifest()
    runner = owner(place.lock)
    cells = [c for c in manifest.cells if not c.kept]
    found = timed(place)
    results = {c.id: found[c.id] for c in cells}
    states = {c.id: _state(place, results[c.id], runner is not None) for c in cells}
    counts = Counter(states.values())
    failures: Counter[str] = Counter()
    for result in results.values():
        failures.update(result.failures)
    named = {c.id: f"{c.entry} on {c.task} seed {c.seed}" for c in cells}
    return Status(
        folder=str(folder),
        name=manifest.name,
        owner=runner,
        total=len(cells),
        states={s: counts[s] for s in STATES},
        trials=sum(len(r.seconds) for r in results.values()),
        left_s=_left_s(cells, results) if runner is not None else None,
        failures=dict(failures.most_common()),
        errors=[(named[i], r.error) for i, r in results.items() if r.state == "failed"],
        rows=_rows(cells, results),
        shared=shared(c.factors for c in cells),
        earlier=_earlier(place, manifest),
    )


def _earlier(place: Folder, manifest: Manifest) -> list[str]:
    """The changed components, by the current code, or where it is missing by the latest that the run has seen."""
    today = codes(c.config for c in manifest.cells)
    now = {c.id: {**manifest.code, **code} for c, code in zip(manifest.cells, today, strict=True)}
    return outdated_in(place, now).said


def _state(place: Folder, result: CellResult, running: bool) -> str:
    """The state of a cell; while the run is active, interrupted cells and cells with only records are running."""
    if result.state == "waiting" and place.records_path(result.id).exists():
        return "running" if running else "interrupted"
    return "running" if running and result.state == "interrupted" else result.state


def _left_s(cells: Sequence[Cell], results: Mapping[str, CellResult]) -> float | None:
    """The estimated time left by the pace of finished cells, as if cells ran one after another."""
    spent = sum(sum(r.ledger.values()) for r in results.values())
    trials = sum(len(r.seconds) for r in results.values())
    left = sum(max(0, (c.trials or 0) - len(results[c.id].seconds)) for c in cells if results[c.id].state != "done")
    return left * spent / trials if trials else None


def _rows(cells: Sequence[Cell], results: Mapping[str, CellResult]) -> list[StatusRow]:
    groups: dict[tuple[str, str], list[CellResult]] = {}
    for cell in cells:
        groups.setdefault((cell.entry, cell.task), []).append(results[cell.id])
    return [_row(entry, task, own) for (entry, task), own in groups.items()]


def _row(entry: str, task: str, own: Sequence[CellResult]) -> StatusRow:
    best = min(own, key=lambda r: r.final_s)
    references = dict(best.baselines) | ({OPTIMUM: best.optimum_s} if best.optimum_s else {})
    shown = against(best.final_s, references)
    trials, done = sum(len(r.seconds) for r in own), sum(r.state == "done" for r in own)
    best_s = best.final_s if math.isfinite(best.final_s) else None
    home = kept(best.taken_s, best.final_s) if best.taken_s < best.final_s else ""
    return StatusRow(entry, task, len(own), done, trials, best_s, shown, home, best.cell.modelled)
