"""What a cell is searched with: its task or table, its measurer and the clock that counts for it."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from searchlab.lab.config.measuring import Timing
from searchlab.lab.records import Store
from searchlab.lab.study import Study
from searchlab.measure import CoreLock, LocalMeasurer, Measurer
from searchlab.measure.replay import ReplayMeasurer
from searchlab.measure.tables import Table
from searchlab.measure.tables import load as load_table
from searchlab.search import Task
from searchlab.targets import parse as target
from searchlab.workloads import parse as workload

if TYPE_CHECKING:
    from searchlab.lab.cells import Cell


class Bench(ABC):
    """A cell that is ready to be searched."""

    recorded: bool
    optimum_s: float | None = None
    measurer: Measurer[Any]

    @abstractmethod
    def now(self) -> float:
        """The time that counts: of the wall, or simulated."""

    @abstractmethod
    def study(self, measurer: Measurer[Any], store: Store) -> Study:
        """The study of the cell."""

    @abstractmethod
    def final(self, study: Study) -> tuple[float, Mapping[str, float]]:
        """The time of the best, as a last look has it, and times of others on the same task."""


@contextmanager
def bench(
    cell: Cell, cores: Sequence[int] | None = None, note: Callable[[str], None] = lambda text: None
) -> Iterator[Bench]:
    """The bench of a cell; its measurer ends with it.  `note` is told what keeps it waiting."""
    if cell.table is not None:
        yield RecordedBench(cell, load_table(cell.table))
        return
    with _measurer(cell, cores, note) as measurer:
        yield TaskBench(cell, measurer, note)


class RecordedBench(Bench):
    """A recorded table with its simulated time."""

    recorded = True

    def __init__(self, cell: Cell, table: Table) -> None:
        self._cell, self._table = cell, table
        self._replay = ReplayMeasurer(table, seed=cell.seed, **cell.measure.settings.options)
        self.measurer = self._replay
        self.optimum_s = table.best

    def now(self) -> float:
        return self._replay.clock_s

    def study(self, measurer: Measurer[Any], store: Store) -> Study:
        cell = self._cell
        return Study(
            self._table,
            model=cell.model,
            strategy=cell.strategy,
            measurer=measurer,
            seed=cell.seed,
            batch=cell.budget.batch,
            store=store,
            cell=cell.id,
        )

    def final(self, study: Study) -> tuple[float, Mapping[str, float]]:
        """What the table says without noise."""
        row = int(self._table.space.row(study.best.point)[0])
        return float(self._table.seconds[row]), {}


class TaskBench(Bench):
    """A workload on hardware."""

    recorded = False

    def __init__(self, cell: Cell, measurer: Measurer[Any], note: Callable[[str], None]) -> None:
        self._cell, self.measurer, self._note = cell, measurer, note

    def now(self) -> float:
        return time.perf_counter()

    def study(self, measurer: Measurer[Any], store: Store) -> Study:
        cell, settings = self._cell, self._cell.measure.settings
        assert cell.workload is not None and cell.space is not None and isinstance(settings, Timing)
        return Study(
            Task(workload(cell.workload), target(cell.target)),
            space=cell.space,
            model=cell.model,
            strategy=cell.strategy,
            measurer=measurer,
            seed=cell.seed,
            batch=cell.budget.batch,
            protocol=settings.protocol,
            limits=settings.limits,
            confirm=settings.confirm,
            store=store,
            cell=cell.id,
        )

    def final(self, study: Study) -> tuple[float, Mapping[str, float]]:
        """The run-off of the best, beside libraries, where the study has one; it is timed here, not on a cluster."""
        finish = getattr(study, "finish", None)
        if finish is None or self._cell.measure.kind != "local":
            return study.best_s, {}
        with CoreLock(sorted(os.sched_getaffinity(0)), on_wait=self._note):
            found = finish()
        return float(found.seconds), dict(found.baselines)


def _measurer(cell: Cell, cores: Sequence[int] | None, note: Callable[[str], None]) -> Measurer[Any]:
    options = dict(cell.measure.settings.options)
    if cell.measure.kind == "ray":
        from searchlab.measure.cluster import RayMeasurer

        return RayMeasurer(**options)
    if options.get("cores") is None:
        options["cores"] = cores
    return LocalMeasurer(**options, on_wait=note)
