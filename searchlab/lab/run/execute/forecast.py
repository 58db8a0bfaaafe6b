"""An estimate of a run's duration: from its finished cells, and where there are none, from what trials usually cost."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from searchlab.ir.expr import Select
from searchlab.ir.walk import walk
from searchlab.lab.config.checks.feasible import least_s
from searchlab.lab.config.measuring import Timing
from searchlab.lab.results import CellResult
from searchlab.targets import parse as parse_target
from searchlab.workloads import Workload, parse

if TYPE_CHECKING:
    from searchlab.lab.manifest import Cell
    from searchlab.timing.protocol import Protocol

# Fitted to the ledgers of searches with 64 trials on sixteen workloads; how forecasts compare with what runs take is
# shown by `python -m benchmarks.durations --only forecast`.
_LOOKED_UP_S = 0.004  # a trial on a recorded table, including model training
_PROCESS_S = 10.0  # starting workers and importing libraries, for the cells and for the run-offs
_SPACE_S, _FEATURES_S = 0.5, 1.0  # making a space, and compiling its features if there is a model; once for all cells
_CELL_S = 0.15
_STREAM_S = 0.5  # a trial of a stream: some passes over a short clip
_TRIAL_S = 0.015  # proposing, queueing, recording; re-measurements of incumbents
_BUILD_S, _STAGE_S, _GUARDED_S = 0.015, 0.01, 0.1  # a build; for each stage; if padding is cut off
_CHECK_S, _CHECK_RUNS = 0.008, 3.0
_RACE_S, _RACE_RUNS = 0.7, 300.0  # the final race
_RUN_OFF_S, _RUN_OFF_EACH_S = 4.0, 0.3  # of a task, and for each of its cells
_FROM_LEAST, _BYTES_S = 4.0, 50e9  # time of a good program: a multiple of peak arithmetic, or the rate of memory
_RETAKEN = 2.0  # factor for retaken samples


@dataclass(frozen=True)
class Forecast:
    """The remaining cells and trials with an estimate of their seconds; `guessed`: no finished cell supports it."""

    cells: int
    trials: int
    seconds: float
    guessed: bool


def forecast(cells: Sequence[Cell], done: Iterable[CellResult], side_by_side: int = 1) -> Forecast:
    """The forecast for cells, given the results of other cells of the run."""
    pace = _Pace.of(done)
    trials = sum(cell.trials or 0 for cell in cells)
    seconds = sum(pace.cell_s(cell) for cell in cells) / max(1, side_by_side) + (_around_s(cells) if cells else 0.0)
    return Forecast(len(cells), trials, seconds, not pace.by_task)


@dataclass(frozen=True)
class _Pace:
    """Seconds per trial of finished cells by task, and how they compare with what was to be expected."""

    by_task: Mapping[str, float]
    factor: float = 1.0

    @staticmethod
    def of(done: Iterable[CellResult]) -> _Pace:
        spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        expected = 0.0
        for result in done:
            if count := len(result.seconds):
                spent[result.task][0] += sum(result.ledger.values())
                spent[result.task][1] += count
                expected += cell_s(result.cell, count)
        total = math.fsum(seconds for seconds, _ in spent.values())
        factor = total / expected if expected and total else 1.0
        return _Pace({task: seconds / count for task, (seconds, count) in spent.items()}, factor)

    def cell_s(self, cell: Cell) -> float:
        """The seconds of a cell, at the pace of its task, or at that of the other tasks."""
        trials, known = cell.trials or 0, self.by_task.get(cell.task)
        found = self.factor * cell_s(cell, trials) if known is None else trials * known
        if cell.recorded or cell.seconds is None:
            return found
        limited = cell.seconds + cell_s(cell, 0)
        return limited if cell.trials is None else min(found, limited)


def cell_s(cell: Cell, trials: int) -> float:
    """The expected seconds of a cell with so many trials and its final race, without what all cells share."""
    if not isinstance(cell.measure.settings, Timing):
        return trials * _LOOKED_UP_S
    if cell.video is not None:
        return _CELL_S + trials * _STREAM_S
    searches = [one for one in cell.searches if one.workload is not None]
    each = sum(_trial_s(one) for one in searches) / max(1, len(searches))
    return _CELL_S + trials * each + sum(_race_s(one) for one in searches)


def _around_s(cells: Sequence[Cell]) -> float:
    """The expected seconds of what cells share: processes, spaces, features, and the run-offs of tasks."""
    timed = [one for cell in cells if isinstance(cell.measure.settings, Timing) for one in cell.searches if one.builds]
    if not timed:
        return 0.0
    spaces = {_key(c, c.space) for c in timed}
    learnt = {_key(c, c.space) for c in timed if c.model != "none"}
    groups = Counter(_key(c) for c in timed if c.measure.kind == "local")
    run_offs = sum(_RUN_OFF_S + _RUN_OFF_EACH_S * count for count in groups.values() if count > 1)
    return _PROCESS_S + _SPACE_S * len(spaces) + _FEATURES_S * len(learnt) + run_offs


def _key(cell: Cell, *more: object) -> str:
    return json.dumps([cell.workload, cell.target, *more], sort_keys=True)


def _trial_s(cell: Cell) -> float:
    settings = cell.measure.settings
    assert isinstance(settings, Timing)
    workload, run_s = _workload(cell), _run_s(cell)
    check = _CHECK_S + _CHECK_RUNS * run_s if settings.protocol.check else 0.0
    return _TRIAL_S + _build_s(workload) + check + min(_samples_s(settings.protocol, run_s), settings.run_s)


def _samples_s(protocol: Protocol, run_s: float) -> float:
    """The time of timing a typical candidate; long runs are repeated less often, see Protocol."""
    short = protocol.repeats * protocol.min_repeat_ms / 1e3
    long = min(protocol.repeats * run_s, max(5 * run_s, 4 * short))
    return protocol.warmup * run_s + _RETAKEN * (short if run_s * 1e3 < protocol.min_repeat_ms else long)


def _build_s(workload: Workload) -> float:
    blocks = workload.program.blocks.values()
    guarded = any(isinstance(e, Select) for b in blocks for e in walk(b.store.value))
    return _BUILD_S + _STAGE_S * len(blocks) + _GUARDED_S * guarded


def _race_s(cell: Cell) -> float:
    return _RACE_S + _RACE_RUNS * _run_s(cell)


def _run_s(cell: Cell) -> float:
    """The estimated run time of a good candidate."""
    workload = _workload(cell)
    return max(_FROM_LEAST * least_s(workload, parse_target(cell.target)), workload.bytes / _BYTES_S)


@cache
def _parsed(text: str) -> Workload:
    return parse(text)


def _workload(cell: Cell) -> Workload:
    return _parsed(str(cell.workload))
