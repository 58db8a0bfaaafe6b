"""The best programs of a run folder, task by task, rebuilt from what the run wrote down."""

from __future__ import annotations

import heapq
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from searchlab import targets
from searchlab.errors import ExportError
from searchlab.lab.config.subjects import NetworkPart
from searchlab.lab.export.bundle import Exported, export
from searchlab.lab.folder.folder import Folder
from searchlab.lab.run.runoff.runoff import results
from searchlab.registry import nearest

if TYPE_CHECKING:
    from searchlab.ir.program import Program
    from searchlab.lab.manifest import Cell
    from searchlab.lab.records import Record
    from searchlab.lab.results import CellResult
    from searchlab.search import Points, Space
    from searchlab.workloads import Workload

C = TypeVar("C")  # a cell, or a result of one


@dataclass(frozen=True, eq=False)
class Found:
    """A program that a run found: its time, where it was found, and on demand what it is.

    `choice` says which point of the space it is.  `confirmed` programs won their search and were timed again after it;
    the time of others is a single measurement, and the best of many such is lucky.
    """

    cell: Cell
    folder: Folder
    seconds: float
    choice: Mapping[str, Any]
    confirmed: bool
    baselines: Mapping[str, float] = field(default_factory=dict)
    known: Record | None = field(default=None, repr=False)

    @property
    def task(self) -> str:
        return self.cell.task

    @property
    def entry(self) -> str:
        return self.cell.entry

    @cached_property
    def record(self) -> Record | None:
        """Its measurement during the search."""
        if self.known is not None:
            return self.known
        records = self.folder.records(self.cell.id).records(_task(self.cell))
        return next((r for r in records if r.ok and _same(r.knobs, self.choice)), None)

    @property
    def workload(self) -> Workload:
        from searchlab.workloads import parse

        if self.cell.recorded:
            raise ExportError(f"{self.task} is a table of measurements: its points have no programs")
        return parse(str(self.cell.workload))

    @property
    def target(self) -> targets.Target:
        """What the code is made for."""
        return targets.parse(self.cell.target)

    @cached_property
    def point(self) -> str:
        """The point for people."""
        space, point = self._place
        return space.text(point)

    @cached_property
    def program(self) -> Program:
        """The loops; refused where they are no longer what was measured."""
        self.workload  # noqa: B018
        space, point = self._place
        program = space.program(point)
        if self.record is not None and self.record.program != program.hash:
            raise ExportError(
                f"{self.task}: space '{space.name}' no longer gives the program that was measured "
                f"({self._change()}); run the experiment again"
            )
        return program

    def _change(self) -> str:
        assert self.record is not None
        if self.record.target != self.target.fingerprint():
            return f"it was measured on another machine, {self.record.cpu} with {self.record.threads} threads"
        return "the space or the workload has changed since"

    def about(self) -> dict[str, Any]:
        """Where it comes from, as plain data; kernel.json keeps it."""
        return {
            "workload": self.cell.workload or self.task,
            "seconds": self.seconds,
            "baselines": dict(self.baselines),
            "space": self.cell.space,
            "knobs": dict(self.choice),
            "point": self.point,
            "run": {
                "name": self.folder.manifest().name,
                "cell": self.cell.id,
                "entry": self.entry,
                "seed": self.cell.seed,
            },
            "record": None if self.record is None else self.record.id,
        }

    def export(self, folder: str | os.PathLike[str]) -> Exported:
        """Writes it to a folder as a library; see `searchlab.lab.export.export`."""
        return export(self.program, self.target, folder, self.task, self.about())

    @cached_property
    def _place(self) -> tuple[Space, Points]:
        if self.cell.table is not None:
            from searchlab.measure.recorded.tables import load

            space: Space = load(self.cell.table).space
        else:
            space = _space(str(self.cell.workload), json.dumps(self.cell.target), json.dumps(self.cell.space))
        return space, space.chosen(self.choice)


def best_programs(
    folder: str | os.PathLike[str], task: str | None = None, entry: str | None = None, top: int = 1
) -> dict[str, list[Found]]:
    """The best programs of each task, the one to take first.

    That is the fastest of those that won their search; up to `top` - 1 others follow, fastest first.
    """
    place = Folder(Path(folder))
    wanted = chosen([one for result in results(place).values() for one in result.searches], task, entry)
    tasks = dict.fromkeys(r.task for r in wanted)
    found = {t: _of_task([r for r in wanted if r.task == t], place, top) for t in tasks}
    if not any(found.values()):
        raise ExportError(f"{place.path}: no search has found a working program yet; see `searchlab status`")
    return {t: programs for t, programs in found.items() if programs}


def best_program(folder: str | os.PathLike[str], task: str | None = None) -> Found:
    """The best program of a run's only task, or of the task that is named."""
    found = best_programs(folder, task)
    if len(found) > 1:
        raise ExportError(f"{folder} has several tasks: name one of {', '.join(found)}")
    ((first, *_),) = found.values()
    return first


def chosen(cells: Iterable[C], task: str | None, entry: str | None) -> list[C]:
    """The cells of a task and an entry, each named in full or by a part of the name."""
    found = list(cells)
    for kind, wanted in (("task", task), ("entry", entry)):
        if wanted is not None:
            names = list(dict.fromkeys(str(getattr(cell, kind)) for cell in found))
            meant = {wanted} if wanted in names else {n for n in names if wanted in n}
            if not meant:
                raise ExportError(f"no {kind} '{wanted}'{nearest(wanted, names)}")
            found = [cell for cell in found if getattr(cell, kind) in meant]
    return found


def _of_task(results: list[CellResult], place: Folder, top: int) -> list[Found]:
    winners = [
        Found(r.cell, place, r.final_s, r.best.knobs, True, r.baselines)
        for r in results
        if r.best is not None and math.isfinite(r.final_s)
    ]
    if not winners:
        return []
    winners.sort(key=lambda f: f.seconds)
    first, *rest = winners
    if top > 1:
        for result in results:
            rest += heapq.nsmallest(top, _measured(result, place), key=lambda f: f.seconds)
    return _different([first, *sorted(rest, key=lambda f: (f.seconds, not f.confirmed))])[:top]


def _measured(result: CellResult, place: Folder) -> Iterator[Found]:
    """Every measurement of a cell that worked, with the figure that its search minimised."""
    cell = result.cell
    for r in place.records(cell.id).records(_task(cell), "ok"):
        seconds = r.seconds if cell.recorded else r.outcome().fastest
        yield Found(cell, place, seconds, r.knobs, False, result.baselines, r)


def _task(cell: Cell) -> str | None:
    """What records call the task of a cell; None where all records of the cell are of it."""
    from searchlab.measure.recorded.tables import load
    from searchlab.workloads import parse

    if not isinstance(cell.subject, NetworkPart):
        return None
    return load(cell.table).name if cell.table is not None else parse(str(cell.workload)).key


def _different(programs: list[Found]) -> list[Found]:
    """Each program once: the confirmed one, if it is among them."""
    kept: dict[str, Found] = {}
    for f in programs:
        key = json.dumps([f.cell.space, f.cell.target, f.choice], sort_keys=True)
        if key not in kept or (f.confirmed and not kept[key].confirmed):
            kept[key] = f
    first, *rest = kept.values()
    return [first, *sorted(rest, key=lambda f: f.seconds)]


def _same(a: Any, b: Any) -> bool:
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


@cache
def _space(workload: str, target: str, component: str) -> Space:
    from searchlab.search import Task, space
    from searchlab.workloads import parse

    return space(json.loads(component), Task(parse(workload), targets.parse(json.loads(target))))
