"""Messages between a run and its worker processes: cells and commands to the workers, events back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Word(Enum):
    """A command to a worker process."""

    STOP = "end the cell after the measurement that is under way"
    LEAVE = "there are no more cells"


@dataclass(frozen=True, slots=True)
class Started:
    """A cell has started or resumed."""

    cell: str


@dataclass(frozen=True, slots=True)
class CellProgress:
    """The progress of a cell: trials so far, how many of them were measured in this run, and the best time."""

    cell: str
    trials: int
    measured: int
    best_s: float = math.inf
    failures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Doing:
    """The activity of a cell while nothing is measured, such as generating its space."""

    cell: str
    text: str


@dataclass(frozen=True, slots=True)
class Noted:
    """A note for the user, such as which process keeps the cores busy."""

    cell: str
    text: str


@dataclass(frozen=True, slots=True)
class CellEnded:
    """A cell has ended: its result is saved; `taken_s` is below `best_s` where the default schedule was faster.

    `error` and `trace` say why it failed, `fatal` that all others would.
    """

    cell: str
    state: str
    trials: int = 0
    measured: int = 0
    best_s: float = math.inf
    failures: Mapping[str, int] = field(default_factory=dict)
    baselines: Mapping[str, float] = field(default_factory=dict)
    optimum_s: float | None = None
    taken_s: float = math.inf
    error: str = ""
    trace: str = ""
    fatal: bool = False


Event = Started | Doing | CellProgress | Noted | CellEnded
