"""The run-off: what all cells of a task found, timed side by side once they have ended.

Every cell times its best at its own end, minutes or hours apart from the others, and machines have slow spells.  In a
run-off the programs of all cells run in turns in one process, so that what differs between them is not the hour.  This
module says what was timed and what is left to time; `racing` does it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from searchlab.lab.results import CellResult
from searchlab.lab.run import files
from searchlab.lab.run.folder import Entry, Folder


@dataclass(frozen=True)
class RunOff:
    """Fastest seconds of what the cells found (by cell), and of others in the same race.

    `points` says which points they were: a cell that has found another one since needs another race.  `noise` is how
    far the halves of the race differ for most programs, relative; `load` the share of all cores that others took.
    `wrong` says what is the matter with programs that could not be timed.
    """

    task: str
    seconds: Mapping[str, float]
    points: Mapping[str, str]
    baselines: Mapping[str, float] = field(default_factory=dict)
    noise: float = 0.0
    load: float = 0.0
    wrong: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Group:
    """Cells that search the same workload for the same machine, all of which have ended."""

    task: str
    cells: tuple[tuple[Entry, CellResult], ...]

    @property
    def found(self) -> list[tuple[Entry, CellResult]]:
        """Those that have found a program."""
        return [(cell, r) for cell, r in self.cells if _found(r)]

    @property
    def points(self) -> dict[str, str]:
        """What they have found, by cell."""
        return {r.id: json.dumps((r.best or {}).get("knobs"), sort_keys=True) for _, r in self.found}

    def path(self, folder: Folder) -> Path:
        """Where its run-off is kept."""
        text = _search(self.cells[0][0])
        return folder.path / "runoffs" / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"


def groups(folder: Folder) -> list[Group]:
    """All groups whose cells have ended, with two that found something or more."""
    found: dict[str, list[tuple[Entry, CellResult]]] = {}
    for cell in folder.manifest().cells:
        if not cell.recorded and not cell.kept and "local" in cell.config["measure"]:
            found.setdefault(_search(cell), []).append((cell, folder.result(cell.id) or cell.waiting()))
    made = [Group(pairs[0][0].task, tuple(pairs)) for pairs in found.values()]
    return [g for g in made if len(g.found) > 1 and all(r.state in ("done", "failed") for _, r in g.cells)]


def pending(folder: Folder) -> list[Group]:
    """The groups that have had no run-off of what their cells found."""
    return [g for g in groups(folder) if read(folder, g) is None]


def read(folder: Folder, group: Group) -> RunOff | None:
    """The run-off of a group, if there is one of what its cells have found."""
    try:
        found = RunOff(**files.read_json(group.path(folder)))
    except TypeError:  # no file, or one that holds something else
        return None
    return found if found.points == group.points else None


def write(folder: Folder, group: Group, run_off: RunOff) -> None:
    """Keeps the run-off of a group."""
    files.replace_json(group.path(folder), asdict(run_off))


def run_offs(folder: Folder) -> list[RunOff]:
    """All run-offs that count: where a program could not be timed, all keep the times of their own cells."""
    if not (folder.path / "runoffs").is_dir():
        return []
    return [found for g in groups(folder) if (found := read(folder, g)) is not None and not found.wrong]


def results(folder: Folder, known: Iterable[RunOff] | None = None) -> dict[str, CellResult]:
    """All cells in the order of the manifest, with the times of run-offs where they took part in one."""
    by_cell = {cell: r for r in (run_offs(folder) if known is None else known) for cell in r.seconds}
    return {r.id: _timed(r, by_cell.get(r.id)) for r in folder.results()}


def _timed(result: CellResult, run_off: RunOff | None) -> CellResult:
    if run_off is None or result.best is None:
        return result
    best = {**result.best, "seconds": run_off.seconds[result.id]}
    return replace(result, best=best, baselines=dict(run_off.baselines))


def _found(result: CellResult) -> bool:
    return result.state == "done" and result.best is not None and math.isfinite(result.final_s)


def _search(cell: Entry) -> str:
    """What cells that can be compared have in common."""
    config: Mapping[str, Any] = cell.config
    return json.dumps([config["workload"], config["target"]], sort_keys=True)
