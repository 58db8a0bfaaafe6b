"""A program that a run found, rebuilt from the files of the run."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from searchlab import targets
from searchlab.backend import CODE_NOTES
from searchlab.errors import ExportError
from searchlab.lab.folder.folder import Folder
from searchlab.lab.manifest import Cell
from searchlab.lab.records import Record
from searchlab.lab.results import CellResult
from searchlab.lab.study.fallback import Fallback, Origin, origin_of
from searchlab.measure.recorded.tables import load
from searchlab.search import Points, Space, Task, space
from searchlab.search.any_size import AnySize
from searchlab.workloads import Workload, parse

if TYPE_CHECKING:
    from searchlab.ir.program import Program
    from searchlab.lab.export.bundle import Exported


@dataclass(frozen=True, eq=False)
class Found:
    """A program that a run found: its time, its origin, and on demand the program itself.

    `choice` identifies its point in the space.  `confirmed` programs won their search and were re-measured at its end;
    the time of others is a single measurement, and the best of many of these is biased by selection.  `fallback` is
    the default schedule where it was faster: then that is the program, and `beaten_s` the time of the point.
    """

    cell: Cell
    folder: Folder
    seconds: float
    choice: Mapping[str, Any]
    confirmed: bool
    baselines: Mapping[str, float] = field(default_factory=dict)
    known: Record | None = field(default=None, repr=False)
    fallback: Fallback | None = None
    beaten_s: float | None = None

    @staticmethod
    def best(result: CellResult, folder: Folder) -> Found | None:
        """What the search of a cell found; None if nothing worked."""
        if result.best is None or not math.isfinite(result.final_s):
            return None
        done = result.state == "done"
        return Found(result.cell, folder, result.final_s, result.best.knobs, done, result.baselines)

    @staticmethod
    def taken(result: CellResult, folder: Folder) -> Found | None:
        """What is taken home from a cell: the best of its search, or the default schedule where it was faster."""
        found = Found.best(result, folder)
        if found is None or result.best is None or result.best.origin == "search":
            return found
        return replace(found, seconds=result.taken_s, fallback=result.best.fallback, beaten_s=found.seconds)

    @property
    def origin(self) -> Origin:
        """Where the program comes from."""
        return origin_of(self.fallback)

    @property
    def task(self) -> str:
        """The label of the task."""
        return self.cell.task

    @property
    def entry(self) -> str:
        """The entry that found it."""
        return self.cell.entry

    @cached_property
    def record(self) -> Record | None:
        """Its measurement during the search."""
        if self.known is not None or self.origin == "default":
            return self.known
        records = self.folder.records(self.cell.id).records(record_task(self.cell))
        return next((r for r in records if r.ok and _same(r.knobs, self.choice)), None)

    @property
    def code_facts(self) -> dict[str, str]:
        """What was noted about its code and the device when it was measured, if anything."""
        notes = {} if self.record is None else self.record.notes
        return {name: str(notes[name]) for name in CODE_NOTES if name in notes}

    @property
    def workload(self) -> Workload:
        """Its workload; refused for tables, which have no programs."""
        if not self.cell.builds:
            what = "a table of measurements" if self.cell.recorded else "a stream"
            raise ExportError(f"{self.task} is {what}: its points have no programs")
        return parse(str(self.cell.workload))

    @property
    def target(self) -> targets.Target:
        """The target that the code is generated for."""
        return targets.parse(self.cell.target)

    @cached_property
    def point(self) -> str:
        """The point in readable form."""
        if self.origin == "default":
            return "default schedule"
        if self.cell.video is not None:  # making its space would take the network
            return f"{self.choice['sketch']}({', '.join(f'{k}={v}' for k, v in self.choice['knobs'].items())})"
        space, point = self._place
        return space.text(point)

    @cached_property
    def default_program(self) -> Program:
        """The default schedule of its workload."""
        return Task(self.workload, self.target).default

    @cached_property
    def program(self) -> Program:
        """The program; refused if it is no longer the one that was measured."""
        self.workload  # noqa: B018
        if self.fallback is not None and self.fallback.kept:
            if self.fallback.program != self.default_program.hash:
                raise ExportError(
                    f"{self.task}: the default schedule is no longer the program that was measured (the rules of "
                    "schedules, the workload or the machine have changed since); run the experiment again"
                )
            return self.default_program
        space, point = self._place
        program = space.program(point)
        if self.record is not None and self.record.program != program.hash:
            raise ExportError(
                f"{self.task}: space '{space.name}' no longer gives the program that was measured "
                f"({self._change()}); run the experiment again"
            )
        return program

    def for_any_size(self, plain: Program) -> Program:
        """The schedule on the workload's program with open sizes; refused where it is right for one size only."""
        space, point = self._place
        return AnySize(space, plain).program(point)

    def _change(self) -> str:
        assert self.record is not None
        if self.record.target != self.target.fingerprint():
            return f"it was measured on another machine, {self.record.cpu} with {self.record.threads} threads"
        return "the space or the workload has changed since"

    def about(self) -> dict[str, Any]:
        """Its origin as plain data; stored in kernel.json."""
        return {
            "workload": self.cell.workload or self.task,
            "origin": self.origin,
            "seconds": self.seconds,
            "baselines": dict(self.baselines),
            "space": self.cell.space,
            "knobs": dict(self.choice) if self.origin == "search" else {},
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
        from searchlab.lab.export.bundle import export  # needs compilers and linkers, which few commands use

        return export(self.program, self.target, folder, self.task, self.about())

    @cached_property
    def _place(self) -> tuple[Space, Points]:
        if self.cell.table is not None:
            made: Space = load(self.cell.table).space
        else:
            made = _space(str(self.cell.workload), json.dumps(self.cell.target), json.dumps(self.cell.space))
        return made, made.chosen(self.choice)


def record_task(cell: Cell) -> str | None:
    """The name of a cell's task in records; None if all records of the cell belong to it."""
    if not cell.subject.is_part:
        return None
    return load(cell.table).name if cell.table is not None else parse(str(cell.workload)).key


def _same(a: Any, b: Any) -> bool:
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


@cache
def _space(workload: str, target: str, component: str) -> Space:
    return space(json.loads(component), Task(parse(workload), targets.parse(json.loads(target))))
