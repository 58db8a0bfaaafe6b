"""A rough estimate of a run's duration, from finished cells or else from the usual cost of a trial."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from searchlab.lab.config.checks.feasible import least_s
from searchlab.lab.config.measuring import Timing
from searchlab.lab.results import CellResult
from searchlab.targets import parse as parse_target
from searchlab.workloads import parse

if TYPE_CHECKING:
    from searchlab.lab.manifest import Cell

_LOOKED_UP_S = 0.004  # a trial on a recorded table, including model training
_CELL_S = 3.0  # generating the space, and the final race
_BUILT_S = 0.35  # proposing, building and checking a candidate
_FROM_LEAST = 6.0  # typical slowdown of candidates relative to peak arithmetic
_SECOND_LOOKS = 1.5  # factor for retaken samples and re-measurements of incumbents


@dataclass(frozen=True)
class Forecast:
    """The remaining cells and trials with an estimate of their seconds; `guessed`: no finished cell supports it."""

    cells: int
    trials: int
    seconds: float
    guessed: bool


def forecast(cells: Sequence[Cell], done: Iterable[CellResult], side_by_side: int = 1) -> Forecast:
    """The forecast for cells, given the results of other cells of the run."""
    pace = _pace(done)
    trials = sum(cell.trials or 0 for cell in cells)
    seconds = sum(_cell_s(cell, pace) for cell in cells)
    return Forecast(len(cells), trials, seconds / max(1, side_by_side), not pace)


def _pace(done: Iterable[CellResult]) -> dict[str, float]:
    """Seconds of wall time per trial, by task."""
    spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for result in done:
        if len(result.seconds):
            spent[result.task][0] += sum(result.ledger.values())
            spent[result.task][1] += len(result.seconds)
    return {task: seconds / trials for task, (seconds, trials) in spent.items()}


def _cell_s(cell: Cell, pace: Mapping[str, float]) -> float:
    limit = cell.seconds
    if not cell.recorded and cell.trials is None:
        return _CELL_S + (limit or 0.0)
    per_trial = pace.get(cell.task, _trial_s(cell))
    around = 0.0 if cell.recorded else _CELL_S * len(cell.searches)
    found = around + (cell.trials or 0) * per_trial
    return found if cell.recorded or limit is None else min(found, around + limit)


def _trial_s(cell: Cell) -> float:
    settings = cell.measure.settings
    if not isinstance(settings, Timing):
        return _LOOKED_UP_S
    protocol, run_s = settings.protocol, _run_s(cell)
    short = protocol.repeats * protocol.min_repeat_ms / 1e3
    # long runs are repeated less often, see Protocol
    samples = (
        short if run_s * 1e3 < protocol.min_repeat_ms else min(protocol.repeats * run_s, max(5 * run_s, 4 * short))
    )
    return _BUILT_S + protocol.warmup * run_s + min(_SECOND_LOOKS * samples, settings.run_s)


def _run_s(cell: Cell) -> float:
    """The estimated run time of a typical candidate; for a network, the mean over its tasks."""
    target = parse_target(cell.target)
    each = [least_s(parse(one.workload), target) for one in cell.searches if one.workload is not None]
    return _FROM_LEAST * sum(each) / max(1, len(each))
