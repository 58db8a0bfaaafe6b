"""The live state of a run: cells done and running, the rate of trials, and the time left."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from searchlab.lab.manifest import Cell
from searchlab.lab.results import CellResult
from searchlab.lab.run.execute.events import CellEnded, CellProgress, Doing, Event, Noted, Started
from searchlab.lab.statistics.wording import ahead, share_of_optimum

OPTIMUM = "optimum"  # of a recorded table
_ENOUGH = 8  # trials needed to predict the rest


@dataclass
class CellRow:
    """One cell: its progress and its best result."""

    cell: Cell
    state: str = "waiting"
    trials: int = 0
    measured: int = 0
    best_s: float = math.inf
    taken_s: float = math.inf  # known once the cell has ended
    failures: Counter[str] = field(default_factory=Counter)
    error: str = ""
    doing: str = ""  # while nothing is measured

    @property
    def left(self) -> int:
        """The number of trials still to come."""
        return 0 if self.state in ("done", "failed") else max(0, (self.cell.trials or 0) - self.trials)


class RunState:
    """All cells of a run."""

    def __init__(
        self, cells: Sequence[Cell], results: Sequence[CellResult], now: Callable[[], float] = time.monotonic
    ) -> None:
        self.rows = {c.id: CellRow(c) for c in cells}
        self.references: dict[str, dict[str, float]] = {}  # by task: times of baselines, or the known optimum
        self._now, self._start = now, math.nan  # the clock starts with the first cell
        for result in results:
            if (row := self.rows.get(result.id)) is not None:
                self._enter(row, result)

    def _enter(self, row: CellRow, result: CellResult) -> None:
        row.state, row.trials = result.state, len(result.seconds)
        row.best_s, row.taken_s = result.final_s, result.taken_s
        row.failures, row.error = Counter(result.failures), result.error
        self._refer(row.cell.task, dict(result.baselines), result.optimum_s)

    def _refer(self, task: str, baselines: dict[str, float], optimum_s: float | None) -> None:
        found = baselines if optimum_s is None else {**baselines, OPTIMUM: optimum_s}
        if found:
            self.references[task] = found

    def update(self, event: Event) -> CellRow:
        """Processes an event; returns the row that changed."""
        row = self.rows[event.cell]
        if math.isnan(self._start):
            self._start = self._now()
        if isinstance(event, Started | Noted | Doing):
            row.state = "running"
            row.doing = event.text if isinstance(event, Doing) else row.doing
            return row
        row.doing = ""
        row.trials, row.measured, row.best_s = event.trials, event.measured, event.best_s
        row.failures = Counter(event.failures)
        if isinstance(event, CellEnded):
            row.state, row.error, row.taken_s = event.state, event.error, event.taken_s
            self._refer(row.cell.task, dict(event.baselines), event.optimum_s)
        elif isinstance(event, CellProgress):
            row.state = "running"
        return row

    # --- figures ------------------------------------------------------------------------------------------------------

    def count(self, *states: str) -> int:
        """The number of cells in any of the states."""
        return sum(row.state in states for row in self.rows.values())

    @property
    def running(self) -> list[CellRow]:
        """The running cells."""
        return [row for row in self.rows.values() if row.state == "running"]

    @property
    def failures(self) -> Counter[str]:
        """The number of failed trials by class."""
        total: Counter[str] = Counter()
        for row in self.rows.values():
            total.update(row.failures)
        return total

    @property
    def seconds(self) -> float:
        """The time since the first cell started."""
        return 0.0 if math.isnan(self._start) else self._now() - self._start

    @property
    def rate(self) -> float:
        """Trials per second of this run; 0 until there is one."""
        measured = sum(row.measured for row in self.rows.values())
        return measured / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta_s(self) -> float | None:
        """The estimated time left at this rate; None while there are too few trials."""
        left = sum(row.left for row in self.rows.values())
        measured = sum(row.measured for row in self.rows.values())
        return left / self.rate if measured >= _ENOUGH else None

    def against(self, row: CellRow) -> str:
        """The best of a cell relative to the references of its task; empty if there are none."""
        return against(row.best_s, self.references.get(row.cell.task, {}))


def against(best_s: float, references: Mapping[str, float]) -> str:
    """A time relative to the default schedule and the best library, or to an optimum; empty if there is none."""
    if not references or not math.isfinite(best_s):
        return ""
    if OPTIMUM in references:
        return share_of_optimum(best_s, references[OPTIMUM])
    return ahead(best_s, references)
