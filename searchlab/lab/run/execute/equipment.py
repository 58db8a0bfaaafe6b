"""What a cell is searched with: its task or table, its measurer and the clock that counts for it."""

from __future__ import annotations

import json
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from searchlab.lab.config.measuring import Timing
from searchlab.lab.folder import cellfile
from searchlab.lab.records import RecordStore
from searchlab.lab.results import Winner
from searchlab.lab.study import JointStudy, Ledger, Study
from searchlab.lab.study.subject import Subject, TaskSubject
from searchlab.measure import CoreLock, LocalMeasurer, Measurer
from searchlab.measure.recorded.replayer import ReplayMeasurer
from searchlab.measure.recorded.tables import Table
from searchlab.measure.recorded.tables import load as load_table
from searchlab.search import Space, Task, Trials, space
from searchlab.targets import parse as target
from searchlab.workloads import parse as workload

if TYPE_CHECKING:
    from searchlab.lab.manifest import Cell
    from searchlab.lab.results import CellResult

S = TypeVar("S", Study, JointStudy)
Over = Callable[[Measurer[Any]], Measurer[Any]]  # puts a measurer under a watch, or something in its place

_log = logging.getLogger(__name__)

_FINAL_S = 0.5  # of the race at the end of a cell, which chooses among its finalists; the run-off looks longer


@dataclass(frozen=True)
class Final:
    """A last look: the time of the best and times of others on the same task; of a network's tasks, too."""

    seconds: float
    baselines: Mapping[str, float] = field(default_factory=dict)
    parts: tuple[Final, ...] = ()


class Bench(ABC, Generic[S]):
    """A cell that is ready to be searched by a study: one task or table, or a network of them."""

    recorded: bool
    optimum_s: float | None = None

    @abstractmethod
    def now(self) -> float:
        """The time that counts: of the wall, or simulated."""

    @abstractmethod
    def study(self, over: Over, store: RecordStore, before: CellResult | None = None) -> S:
        """The study or network of the cell; `before` is what an earlier run of it left."""

    @abstractmethod
    def final(self, study: S) -> Final:
        """The last look at what a study found."""

    @abstractmethod
    def best(self, study: S, final: Final | None) -> Winner:
        """What the incumbent is."""


class SingleBench(Bench[Study]):
    """One task or table."""

    def __init__(self, cell: Cell, subject: Task | Table, measurer: Measurer[Any]) -> None:
        self._cell, self._subject, self._measurer = cell, subject, measurer

    def study(
        self,
        over: Over,
        store: RecordStore,
        before: CellResult | None = None,
        part: int | None = None,
        ledger: Ledger | None = None,
    ) -> Study:
        """The study of the cell; `part` is its number in a network, whose studies share a `ledger`."""
        cell = self._cell
        return Study(
            self._searched(),
            model=cell.model,
            strategy=cell.strategy,
            measurer=over(self._measurer),
            seed=cell.seed,
            batch=cell.budget.batch,
            store=store,
            cell=cell.id,
            looks=cellfile.looks(before, part),
            ledger=ledger,
            **self._options(),
        )

    def _searched(self) -> Task | Table | Subject:
        return self._subject

    def _options(self) -> dict[str, Any]:
        """What else a study of this kind needs."""
        return {}

    def best(self, study: Study, final: Final | None) -> Winner:
        best, space = study.best, study.space
        keys = space.key(study.trials.points)
        (trial, *_) = np.flatnonzero(keys == space.key(best.point)[0]).tolist()
        seconds = best.seconds if final is None else final.seconds
        return Winner(trial, space.choice(best.point), space.text(best.point), seconds)


class Measurers:
    """Measurers for one cell after another: starting one takes a while, so it stays for cells that ask for the same."""

    def __init__(self, cores: Sequence[int] | None = None) -> None:
        self._cores = cores
        self._key = ""
        self._measurer: Measurer[Any] | None = None
        self._note: Callable[[str], None] = lambda text: None

    def of(self, cell: Cell, note: Callable[[str], None]) -> Measurer[Any]:
        """The measurer of a cell; `note` is told what keeps it waiting."""
        self._note = note
        key = repr(cell.measure)
        if self._measurer is None or key != self._key:
            self.close()
            self._measurer, self._key = self._made(cell), key
        return self._measurer

    def close(self) -> None:
        """Ends the measurer that is open."""
        measurer, self._measurer = self._measurer, None
        if measurer is not None:
            measurer.close()

    def _made(self, cell: Cell) -> Measurer[Any]:
        options = dict(cell.measure.settings.options)
        if cell.measure.kind == "ray":
            from searchlab.measure.cluster import RayMeasurer

            return RayMeasurer(**options)
        if options.get("cores") is None:
            options["cores"] = self._cores
        return LocalMeasurer(**options, on_wait=lambda text: self._note(text))


@lru_cache(maxsize=32)
def _table(reference: str, digest: str) -> Table:
    """A table, read once for all cells of a process that search it; `digest` is of what it holds."""
    return load_table(reference)


@lru_cache(maxsize=16)
def _space(text: str, machine: str, component: str) -> Space:
    """The space of a task, made once, with its features, for all cells of a process that search it."""
    return space(json.loads(component), Task(workload(text), target(json.loads(machine))))


@contextmanager
def bench(cell: Cell, measurers: Measurers, note: Callable[[str], None]) -> Iterator[Bench[Any]]:
    """The bench of a cell; after an error its measurer is not used again."""
    try:
        yield made(cell, lambda single: measurers.of(single, note), note)
    except BaseException:
        measurers.close()
        raise


def made(cell: Cell, measurer: Callable[[Cell], Measurer[Any]], note: Callable[[str], None]) -> Bench[Any]:
    """The bench of a cell, whose tasks `measurer` measures."""
    from searchlab.lab.run.execute.network import NetworkBench

    singles = [_single(single, measurer, note) for single in cell.searches]
    return NetworkBench(cell, singles) if cell.parts else singles[0]


def _single(cell: Cell, measurer: Callable[[Cell], Measurer[Any]], note: Callable[[str], None]) -> SingleBench:
    if cell.table is not None:
        return RecordedBench(cell, _table(cell.table, cell.digest))
    return TaskBench(cell, measurer(cell), note)


class RecordedBench(SingleBench):
    """A recorded table with its simulated time."""

    recorded = True

    def __init__(self, cell: Cell, table: Table) -> None:
        self._table = table
        self._replay = ReplayMeasurer(table, seed=cell.seed, **cell.measure.settings.options)
        super().__init__(cell, table, self._replay)
        self.optimum_s = table.best

    def now(self) -> float:
        return self._replay.clock_s

    def final(self, study: Study) -> Final:
        """What the table says without noise."""
        row = int(self._table.space.row(study.best.point)[0])
        return Final(float(self._table.seconds[row]))


class TaskBench(SingleBench):
    """A workload on hardware."""

    recorded = False

    def __init__(self, cell: Cell, measurer: Measurer[Any], note: Callable[[str], None]) -> None:
        assert cell.workload is not None
        self._note, self._task = note, Task(workload(cell.workload), target(cell.target))
        super().__init__(cell, self._task, measurer)

    def now(self) -> float:
        return time.perf_counter()

    def _options(self) -> dict[str, Any]:
        settings = self._cell.measure.settings
        assert isinstance(settings, Timing)
        return {"history": self._history(), "confirm": settings.confirm}

    def _searched(self) -> Subject:
        settings, words = self._cell.measure.settings, (self._cell.target, self._cell.space)
        assert isinstance(settings, Timing) and self._cell.workload is not None
        found = _space(self._cell.workload, *(json.dumps(word, sort_keys=True) for word in words))
        return TaskSubject(self._task, found, settings.protocol, settings.limits)

    def _history(self) -> tuple[Trials, ...]:
        if not self._cell.history:
            return ()
        from searchlab.lab.history.trials import lessons

        found = lessons(self._cell.history, self._cell.learnt, self._task)
        _log.info("cell %s: %s", self._cell.id, found)
        return found.trials

    def final(self, study: Study) -> Final:
        """The final race of the best, beside libraries; it is timed here, so not for candidates of a cluster."""
        if self._cell.measure.kind != "local":
            return Final(study.best_s)
        with CoreLock(sorted(os.sched_getaffinity(0)), on_wait=self._note):
            found = study.finish(seconds=_FINAL_S, most=_FINAL_S)
        return Final(float(found.seconds), dict(found.baselines))
