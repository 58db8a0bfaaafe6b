"""What goes between a run and the processes that run its cells: cells and words there, events back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Word(Enum):
    """What is said to a process instead of giving it a cell."""

    STOP = "end the cell after the measurement that is under way"
    LEAVE = "there are no more cells"


@dataclass(frozen=True, slots=True)
class Started:
    """A cell has begun, or goes on."""

    cell: str


@dataclass(frozen=True, slots=True)
class CellProgress:
    """How far a cell is: trials so far, how many of them were measured now, the best of them."""

    cell: str
    trials: int
    measured: int
    best_s: float = math.inf
    failures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Doing:
    """What a cell is busy with while nothing is measured, such as making its space."""

    cell: str
    text: str


@dataclass(frozen=True, slots=True)
class Noted:
    """Something that the user should know, such as who keeps the cores busy."""

    cell: str
    text: str


@dataclass(frozen=True, slots=True)
class CellEnded:
    """A cell has ended: its result is in its file; `error` and `trace` say why it failed, `fatal` that all would."""

    cell: str
    state: str
    trials: int = 0
    measured: int = 0
    best_s: float = math.inf
    failures: Mapping[str, int] = field(default_factory=dict)
    baselines: Mapping[str, float] = field(default_factory=dict)
    optimum_s: float | None = None
    error: str = ""
    trace: str = ""
    fatal: bool = False


Event = Started | Doing | CellProgress | Noted | CellEnded
