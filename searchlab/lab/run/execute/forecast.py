"""What a run will take, roughly: from cells that are done, else from what a trial usually takes."""

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

_LOOKED_UP_S = 0.004  # a trial of a recorded table, with a model that learns
_CELL_S = 3.0  # making a space, the race of the finalists at the end
_BUILT_S = 0.35  # building, checking and proposing a candidate
_FROM_LEAST = 6.0  # how many times slower candidates are than the arithmetic alone would be
_SECOND_LOOKS = 1.5  # samples taken again, new incumbents measured beside old ones


@dataclass(frozen=True)
class Forecast:
    """Cells and trials that are still to come, and a guess of their seconds; `guessed` says that none were done yet."""

    cells: int
    trials: int
    seconds: float
    guessed: bool


def forecast(cells: Sequence[Cell], done: Iterable[CellResult], side_by_side: int = 1) -> Forecast:
    """The forecast for cells, given the results of others of the run."""
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
    """What a run of a usual candidate may take; of a network the mean of its tasks."""
    target = parse_target(cell.target)
    each = [least_s(parse(one.workload), target) for one in cell.searches if one.workload is not None]
    return _FROM_LEAST * sum(each) / max(1, len(each))
