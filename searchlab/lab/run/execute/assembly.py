"""The search of a cell, put together: the subject that its settings describe, and the study that searches it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from searchlab.lab.config.measuring import Timing
from searchlab.lab.folder import cellfile
from searchlab.lab.records import RecordStore
from searchlab.lab.study import (
    JointStudy,
    Ledger,
    NetworkSubject,
    Search,
    SpaceSubject,
    Study,
    Subject,
    TableSubject,
    TaskSubject,
)
from searchlab.measure import Measurer
from searchlab.measure.recorded.tables import Table
from searchlab.measure.recorded.tables import load as load_table
from searchlab.search import Space, Task, Trials, space
from searchlab.targets import parse as target
from searchlab.workloads import parse as workload

if TYPE_CHECKING:
    from searchlab.lab.manifest import Cell
    from searchlab.lab.results import CellResult

MeasurerOf = Callable[[SpaceSubject], Measurer[Any]]

_log = logging.getLogger(__name__)


def subject_of(cell: Cell) -> Subject:
    """The subject of a cell: a task, a recorded table, or a network of either."""
    parts = tuple(_part(single) for single in cell.searches)
    return NetworkSubject(cell.task, parts, tuple(p.weight for p in cell.parts)) if cell.parts else parts[0]


def search_of(
    cell: Cell, subject: Subject, measurer: MeasurerOf, store: RecordStore, before: CellResult | None
) -> Search:
    """The study of a cell, or the joint study of its network; `before` is the result of an earlier run of it."""
    ledger = Ledger()
    studies = [
        Study(
            part,
            model=cell.model,
            strategy=cell.strategy,
            measurer=measurer(part),
            seed=cell.seed,
            batch=cell.budget.batch,
            store=store,
            cell=cell.id,
            history=_history(single),
            looks=cellfile.looks(before, number if cell.parts else None),
            ledger=ledger,
        )
        for number, (single, part) in enumerate(zip(cell.searches, subject.parts, strict=True))
    ]
    if not cell.parts:
        return studies[0]
    return JointStudy(studies, [part.weight for part in cell.parts], cell.scheduler, seed=cell.seed)


def _part(cell: Cell) -> SpaceSubject:
    """The subject of a cell that searches one task or table."""
    settings = cell.measure.settings
    if cell.table is not None:
        return TableSubject(_table(cell.table, cell.digest), {"seed": cell.seed, **settings.options})
    assert cell.workload is not None and isinstance(settings, Timing)
    words = (json.dumps(word, sort_keys=True) for word in (cell.target, cell.space))
    return TaskSubject(
        _task(cell),
        _space(cell.workload, *words),
        settings.protocol,
        settings.limits,
        raced=cell.measure.kind == "local",  # elsewhere it would be another machine than that of the search
        confirmed=settings.confirm,
    )


def _task(cell: Cell) -> Task:
    assert cell.workload is not None
    return Task(workload(cell.workload), target(cell.target))


@lru_cache(maxsize=32)
def _table(reference: str, digest: str) -> Table:
    """A table, read once for all cells of a process that search it; `digest` is that of its content."""
    return load_table(reference)


@lru_cache(maxsize=16)
def _space(text: str, machine: str, component: str) -> Space:
    """The space of a task, made once, with its features, for all cells of a process that search it."""
    return space(json.loads(component), Task(workload(text), target(json.loads(machine))))


def _history(cell: Cell) -> tuple[Trials, ...]:
    """Trials of earlier runs, for a model to learn from."""
    if not cell.history or cell.recorded:
        return ()
    from searchlab.lab.history.trials import lessons

    found = lessons(cell.history, cell.learnt, _task(cell))
    _log.info("cell %s: %s", cell.id, found)
    return found.trials
