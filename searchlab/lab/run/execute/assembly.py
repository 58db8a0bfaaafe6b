"""Assembles the search of a cell: the subject that its settings describe, and the study that searches it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from searchlab.lab.config.measuring import Timing
from searchlab.lab.config.search_settings import SearchSettings
from searchlab.lab.config.subjects import SubjectSettings
from searchlab.lab.folder import cellfile
from searchlab.lab.history.trials import lessons
from searchlab.lab.records import RecordStore
from searchlab.lab.study import (
    FamilyStudy,
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
from searchlab.workloads import read_family

if TYPE_CHECKING:
    from searchlab.lab.manifest import Cell
    from searchlab.lab.results import CellResult

MeasurerOf = Callable[[SpaceSubject], Measurer[Any]]

_log = logging.getLogger(__name__)


def subject_of(described: SubjectSettings, settings: SearchSettings, seed: int) -> Subject:
    """The subject that an experiment describes: a task, a recorded table, or a network of either.

    `seed` is that of the search; the noise of recorded tables is drawn from it.
    """
    if not described.parts:
        return _single(described, settings, seed)
    parts = tuple(_single(part, settings, seed) for part in described.parts)
    return NetworkSubject(described.label, parts, tuple(part.weight for part in described.parts))


def search_of(
    cell: Cell, subject: Subject, measurer: MeasurerOf, store: RecordStore, before: CellResult | None
) -> Search:
    """The study of a cell, or that of its network or family; `before` is the result of an earlier run of it."""
    ledger = Ledger()
    studies = [
        Study(
            part,
            model=cell.model,
            strategy=cell.strategy,
            measurer=measurer(part),
            seed=cell.seed,
            batch=cell.budget.batch,
            start=cell.start,
            thrift=cell.budget.thrift,
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
    weights, shared = [part.weight for part in cell.parts], bool(cell.budget.share_model)
    if cell.family is not None:
        return FamilyStudy(read_family(cell.family), studies, cell.scheduler, cell.seed, shared)
    return JointStudy(studies, weights, cell.scheduler, seed=cell.seed, share_model=shared)


def _single(described: SubjectSettings, settings: SearchSettings, seed: int) -> SpaceSubject:
    measuring = settings.measure.settings
    if described.table is not None:
        return TableSubject(_table(described.table, described.digest), {"seed": seed, **measuring.options})
    assert described.workload is not None and isinstance(measuring, Timing)
    words = (json.dumps(word, sort_keys=True) for word in (settings.target, settings.space))
    return TaskSubject(
        _task(described.workload, settings),
        _space(described.workload, *words),
        measuring.protocol,
        measuring.limits,
        raced=settings.measure.kind == "local",  # a cluster measures on other machines than this one
        confirmed=measuring.confirm,
        modelled=settings.measure.kind == "emulated",
    )


def _task(text: str, settings: SearchSettings) -> Task:
    return Task(workload(text), target(settings.target))


@lru_cache(maxsize=32)
def _table(reference: str, digest: str) -> Table:
    """A table, read once per process for all cells that search it; `digest` is that of its content."""
    return load_table(reference)


@lru_cache(maxsize=16)
def _space(text: str, machine: str, component: str) -> Space:
    """The space of a task with its features, made once per process for all cells that search it."""
    return space(json.loads(component), Task(workload(text), target(json.loads(machine))))


def _history(cell: Cell) -> tuple[Trials, ...]:
    """Trials of earlier runs as training data for a model."""
    if not cell.history or cell.workload is None:
        return ()
    found = lessons(cell.history, cell.learnt, _task(cell.workload, cell.settings))
    _log.info("cell %s: %s", cell.id, found)
    return found.trials
