"""The run-off: the best programs of all cells of a task, timed interleaved once the cells have ended.

Every cell times its best program when it ends, minutes or hours apart from the others, and machines have slow phases.
A run-off interleaves the programs of all cells in one process, so that they meet the same conditions.  This module
knows which run-offs were held and which are pending; `holder` holds them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from searchlab.bench import DEFAULT
from searchlab.lab.folder import atomic
from searchlab.lab.folder.file_forms import RunOffForm
from searchlab.lab.folder.folder import Folder
from searchlab.lab.manifest import Cell
from searchlab.lab.results import CellResult, PartWinner, Winner
from searchlab.lab.study.fallback import Fallback
from searchlab.lab.study.objective import Latency


@dataclass(frozen=True)
class RunOff:
    """The fastest times of the cells' programs (by cell), and of the baselines in the same race.

    `points` identifies the raced points: a cell that has found another one since needs a new race.  `noise` is the
    relative difference between the halves of the race for most programs; `load` the share of all cores that other
    processes used.  `wrong` has the errors of programs that could not be timed.  `default` is the hash of the default
    schedule's program, whose time is among the baselines.
    """

    task: str
    seconds: Mapping[str, float]
    points: Mapping[str, str]
    baselines: Mapping[str, float] = field(default_factory=dict)
    noise: float = 0.0
    load: float = 0.0
    wrong: Mapping[str, str] = field(default_factory=dict)
    default: str = ""

    def timed(self, best: Winner, cell: str) -> Winner:
        """What a cell found, with the times of this race."""
        seconds, fallback = self.seconds[cell], None
        if self.default and DEFAULT in self.baselines:
            fallback = Fallback.of(self.default, self.baselines[DEFAULT], seconds, self.noise)
        return replace(best, seconds=seconds, fallback=fallback)


@dataclass(frozen=True, eq=False)
class RunoffGroup:
    """Ended cells that search the same workload for the same machine, including networks that contain it."""

    task: str
    cells: tuple[CellResult, ...]

    @property
    def found(self) -> list[CellResult]:
        """The results of cells that found a program."""
        return [r for r in self.cells if _found(r)]

    @property
    def points(self) -> dict[str, str]:
        """The points that they found, by cell."""
        return {r.id: json.dumps(r.best.knobs, sort_keys=True) for r in self.found if r.best is not None}

    def path(self, folder: Folder) -> Path:
        """The file of its run-off."""
        text = _search(self.cells[0].cell)
        return folder.path / "runoffs" / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"


def groups(folder: Folder) -> list[RunoffGroup]:
    """All groups whose cells have ended and at least two of which found a program."""
    found: dict[str, list[CellResult]] = {}
    for cell in folder.manifest().cells:
        if cell.builds and not cell.kept and cell.measure.kind == "local":
            for result in (folder.result(cell) or CellResult.waiting(cell)).searches:
                found.setdefault(_search(result.cell), []).append(result)
    made = [RunoffGroup(results[0].task, tuple(results)) for results in found.values()]
    return [g for g in made if len(g.found) > 1 and all(r.state in ("done", "failed") for r in g.cells)]


def pending(folder: Folder) -> list[RunoffGroup]:
    """The groups without a run-off of their cells' current programs."""
    return [g for g in groups(folder) if read(folder, g) is None]


def read(folder: Folder, group: RunoffGroup) -> RunOff | None:
    """The run-off of a group, if there is one of its cells' current programs."""
    remedy = f"`searchlab run {folder.path}` repeats the run-off"
    data = atomic.known_json(group.path(folder), RunOffForm, remedy)
    if data is None or data["points"] != group.points:
        return None
    return RunOff(**data)


def write(folder: Folder, group: RunoffGroup, run_off: RunOff) -> None:
    """Saves the run-off of a group."""
    atomic.replace_json(group.path(folder), asdict(run_off))


def run_offs(folder: Folder) -> list[RunOff]:
    """All valid run-offs; if a program of a group could not be timed, its cells keep the times of their final races."""
    if not (folder.path / "runoffs").is_dir():
        return []
    return [found for g in groups(folder) if (found := read(folder, g)) is not None and not found.wrong]


def results(folder: Folder, known: Iterable[RunOff] | None = None) -> dict[str, CellResult]:
    """All cells in the order of the manifest, with the times of their run-offs where they have one."""
    races: dict[str, dict[str, RunOff]] = {}
    for r in run_offs(folder) if known is None else known:
        for cell in r.seconds:
            races.setdefault(cell, {})[r.task] = r
    return {r.id: _timed(r, races.get(r.id, {})) for r in folder.results()}


def _timed(result: CellResult, races: Mapping[str, RunOff]) -> CellResult:
    """A result with the times of its races, which are keyed by task."""
    if not races or result.best is None:
        return result
    if result.best.parts:
        return _whole(result, [_raced(p, races.get(p.task), result.id) for p in result.best.parts])
    (run_off,) = races.values()
    return replace(result, best=run_off.timed(result.best, result.id), baselines=dict(run_off.baselines))


def _raced(part: PartWinner, race: RunOff | None, cell: str) -> PartWinner:
    if race is None:
        return part
    return replace(part, best=race.timed(part.best, cell), baselines=dict(race.baselines))


def _whole(result: CellResult, found: list[PartWinner]) -> CellResult:
    """The result of a network from those of its tasks; baselines count only if they have a time for every task."""
    assert result.best is not None
    latency = Latency(tuple(p.weight for p in found))
    best, baselines = result.best.with_parts(found), latency.by_name([p.baselines for p in found])
    if (default_s := best.default_s) is not None:
        baselines[DEFAULT] = default_s
    return replace(result, best=best, baselines=baselines)


def noise(known: Iterable[RunOff], cells: Iterable[CellResult]) -> float | None:
    """The noise of the noisiest subject; that of a network is the mean of its tasks, weighted by share of time."""
    by_task: dict[str, float] = {}
    for r in known:
        by_task[r.task] = max(r.noise, by_task.get(r.task, 0.0))
    found = [_noise(cell, by_task) for cell in cells]
    return max((n for n in found if n is not None), default=None)


def _noise(cell: CellResult, by_task: Mapping[str, float]) -> float | None:
    if cell.best is None or not cell.best.parts:
        return by_task.get(cell.task)
    parts = cell.best.parts
    if not all(p.task in by_task for p in parts):
        return None
    return math.fsum(p.weight * p.best.seconds * by_task[p.task] for p in parts) / cell.final_s


def _found(result: CellResult) -> bool:
    return result.state == "done" and result.best is not None and math.isfinite(result.final_s)


def _search(cell: Cell) -> str:
    """The key that comparable cells have in common."""
    return json.dumps([cell.workload, cell.target], sort_keys=True)
