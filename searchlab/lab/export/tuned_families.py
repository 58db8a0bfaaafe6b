"""The families of a run folder, each with the table that the fastest of its searches made."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from searchlab.defaults import default_schedule
from searchlab.errors import ExportError
from searchlab.lab.export.finding import chosen
from searchlab.lab.folder.folder import Folder
from searchlab.lab.results import CellResult, to_take
from searchlab.lab.run.runoff.runoff import results
from searchlab.lab.study import AnySizeProgram, TunedFamily
from searchlab.search import Task, space
from searchlab.search.any_size import AnySize
from searchlab.targets import Target
from searchlab.targets import parse as parse_target
from searchlab.workloads import Family, read_family

if TYPE_CHECKING:
    from searchlab.ir.program import Program
    from searchlab.lab.manifest import Cell


def family_results(
    folder: str | os.PathLike[str], task: str | None = None, entry: str | None = None
) -> dict[str, CellResult]:
    """The result to take home of each family of a run, by its label; of those that `task` and `entry` mean."""
    cells = [r for r in results(Folder(Path(folder))).values() if r.cell.family is not None]
    if task is not None and not any(task in r.task for r in cells):
        return {}  # a task that is no family
    found: dict[str, list[CellResult]] = {}
    for result in chosen(cells, task, entry) if cells else ():
        found.setdefault(result.task, []).append(result)
    best = {label: to_take(r for r in listed if r.best and r.best.table) for label, listed in found.items()}
    return {label: result for label, result in best.items() if result is not None}


def tuned_family(folder: str | os.PathLike[str], task: str | None = None) -> TunedFamily | None:
    """The family of a run, or the named one, with its programs; None if there is none."""
    found = family_results(folder, task)
    if len(found) > 1:
        raise ExportError(f"{folder} has several families: name one of {', '.join(found)}")
    return next((_tuned(result) for result in found.values()), None)


def _tuned(result: CellResult) -> TunedFamily:
    assert result.cell.family is not None and result.best is not None and result.best.table is not None
    family, target, table = read_family(result.cell.family), parse_target(result.cell.target), result.best.table
    programs = tuple(_program(origin, family, target, result.cell) for origin in table.programs)
    return TunedFamily(family, target, table, programs)


def _program(origin: AnySizeProgram, family: Family, target: Target, cell: Cell) -> Program:
    """The program of a table; refused if it is no longer the one that was measured."""
    if origin.found_at == 0:
        program = default_schedule(family.workload.program, target)
    else:
        words = (json.dumps(word, sort_keys=True) for word in (cell.target, cell.space))
        any_size = _any_size(family, origin.found_at, *words)
        program = any_size.program(any_size.space.chosen(origin.knobs))
    if program.hash != origin.hash:
        raise ExportError(
            f"{cell.task}: {origin.point} no longer gives the program that was measured (the space, the workload or "
            "the machine have changed since); run the experiment again"
        )
    return program


@cache
def _any_size(family: Family, size: int, target: str, component: str) -> AnySize:
    task = Task(family.at(size), parse_target(json.loads(target)))
    return AnySize(space(json.loads(component), task), family.workload.program)
