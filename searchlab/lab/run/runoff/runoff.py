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

from searchlab.lab.folder import atomic
from searchlab.lab.folder.file_forms import RunOffForm
from searchlab.lab.folder.folder import Folder, ManifestCell
from searchlab.lab.results import CellResult
from searchlab.lab.study.objective import Latency


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
class RunoffGroup:
    """Cells that search the same workload for the same machine, all of which have ended; or networks that have it."""

    task: str
    cells: tuple[tuple[ManifestCell, CellResult], ...]

    @property
    def found(self) -> list[tuple[ManifestCell, CellResult]]:
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


def groups(folder: Folder) -> list[RunoffGroup]:
    """All groups whose cells have ended, with two that found something or more."""
    found: dict[str, list[tuple[ManifestCell, CellResult]]] = {}
    for cell in folder.manifest().cells:
        if not cell.recorded and not cell.kept and "local" in cell.config["measure"]:
            for part, result in parts(cell, folder.result(cell.id) or cell.waiting()):
                found.setdefault(_search(part), []).append((part, result))
    made = [RunoffGroup(pairs[0][0].task, tuple(pairs)) for pairs in found.values()]
    return [g for g in made if len(g.found) > 1 and all(r.state in ("done", "failed") for _, r in g.cells)]


def parts(cell: ManifestCell, result: CellResult) -> list[tuple[ManifestCell, CellResult]]:
    """A cell and its result, or one for each task of its network, with what was found for that task."""
    if len(cell.parts) == 1 and cell.parts[0] is cell:
        return [(cell, result)]
    known = result.best["parts"] if result.best is not None else [None] * len(cell.parts)
    return [
        (part, replace(result, task=part.task, best=best, baselines=best["baselines"] if best else {}))
        for part, best in zip(cell.parts, known, strict=True)
    ]


def pending(folder: Folder) -> list[RunoffGroup]:
    """The groups that have had no run-off of what their cells found."""
    return [g for g in groups(folder) if read(folder, g) is None]


def read(folder: Folder, group: RunoffGroup) -> RunOff | None:
    """The run-off of a group, if there is one of what its cells have found."""
    remedy = f"`searchlab run {folder.path}` repeats the run-off"
    data = atomic.known_json(group.path(folder), RunOffForm, remedy)
    if data is None or data["points"] != group.points:
        return None
    return RunOff(**data)


def write(folder: Folder, group: RunoffGroup, run_off: RunOff) -> None:
    """Keeps the run-off of a group."""
    atomic.replace_json(group.path(folder), asdict(run_off))


def run_offs(folder: Folder) -> list[RunOff]:
    """All run-offs that count: where a program could not be timed, all keep the times of their own cells."""
    if not (folder.path / "runoffs").is_dir():
        return []
    return [found for g in groups(folder) if (found := read(folder, g)) is not None and not found.wrong]


def results(folder: Folder, known: Iterable[RunOff] | None = None) -> dict[str, CellResult]:
    """All cells in the order of the manifest, with the times of run-offs where they took part in one."""
    races: dict[str, dict[str, RunOff]] = {}
    for r in run_offs(folder) if known is None else known:
        for cell in r.seconds:
            races.setdefault(cell, {})[r.task] = r
    return {r.id: _timed(r, races.get(r.id, {})) for r in folder.results()}


def _timed(result: CellResult, races: Mapping[str, RunOff]) -> CellResult:
    """A result with the times of races, which are named by their tasks."""
    if not races or result.best is None:
        return result
    if "parts" in result.best:
        return _whole(result, [_raced(p, races.get(p["task"]), result.id) for p in result.best["parts"]])
    (run_off,) = races.values()
    best = {**result.best, "seconds": run_off.seconds[result.id]}
    return replace(result, best=best, baselines=dict(run_off.baselines))


def _raced(part: Mapping[str, Any], race: RunOff | None, cell: str) -> dict[str, Any]:
    times = {} if race is None else {"seconds": race.seconds[cell], "baselines": dict(race.baselines)}
    return {**part, **times}


def _whole(result: CellResult, found: list[dict[str, Any]]) -> CellResult:
    """A network, whose times are those of its tasks together; of others only where they have one for every task."""
    latency = Latency(tuple(p["weight"] for p in found))
    best = {**(result.best or {}), "seconds": latency([p["seconds"] for p in found]), "parts": found}
    return replace(result, best=best, baselines=latency.by_name([p["baselines"] for p in found]))


def noise(known: Iterable[RunOff], cells: Iterable[CellResult]) -> float | None:
    """That of the noisiest subject; the noise of a network is that of its tasks, each by its share of the time."""
    by_task: dict[str, float] = {}
    for r in known:
        by_task[r.task] = max(r.noise, by_task.get(r.task, 0.0))
    found = [_noise(cell, by_task) for cell in cells]
    return max((n for n in found if n is not None), default=None)


def _noise(cell: CellResult, by_task: Mapping[str, float]) -> float | None:
    parts = (cell.best or {}).get("parts")
    if parts is None:
        return by_task.get(cell.task)
    if not all(p["task"] in by_task for p in parts):
        return None
    return math.fsum(p["weight"] * p["seconds"] * by_task[p["task"]] for p in parts) / cell.final_s


def _found(result: CellResult) -> bool:
    return result.state == "done" and result.best is not None and math.isfinite(result.final_s)


def _search(cell: ManifestCell) -> str:
    """What cells that can be compared have in common."""
    config: Mapping[str, Any] = cell.config
    return json.dumps([config["workload"], config["target"]], sort_keys=True)
