"""What an experiment gave, as values: cells with their trials, and the run that holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CellResult:
    """One combination on one task with one seed, trial by trial.

    `entry` names the combination (what is compared), `factors` says what it is made of ({"space": "sketch", ...}, as
    text).  Lists have one item per trial, in order.  `elapsed` is the wall time since the start of the cell (simulated
    time for recorded tables).  `best` describes the incumbent: its "trial", "knobs", "point" (text), and "seconds" as
    the run-off of its task measured it, or its own final race; that of a network has "parts", one for each task.
    `baselines` holds times of others on the same task, measured beside the best.
    """

    id: str
    entry: str
    task: str
    seed: int
    factors: Mapping[str, str]
    state: str  # done | failed | interrupted | waiting
    seconds: Floats  # of every trial; inf: it failed
    elapsed: Floats
    status: tuple[str, ...]  # "ok" or the class of the failure
    rounds: tuple[Mapping[str, Any], ...] = ()  # number, trials, best_s, quality ({} while there is no model)
    ledger: Mapping[str, float] = field(default_factory=dict)
    best: Mapping[str, Any] | None = None
    baselines: Mapping[str, float] = field(default_factory=dict)
    optimum_s: float | None = None  # known for recorded tables
    error: str = ""
    code: Mapping[str, str] = field(default_factory=dict)  # versions of its components, as far as they are known
    earlier: tuple[str, ...] = ()  # components of which the run has seen a later version since

    @cached_property
    def best_so_far(self) -> Floats:
        """The best time after each trial."""
        found: Floats = np.minimum.accumulate(self.seconds) if len(self.seconds) else np.empty(0)
        return found

    @property
    def final_s(self) -> float:
        """The time of what the cell found: of the run-off, else of the best trial; inf if nothing worked."""
        if self.best is not None and "seconds" in self.best:
            return float(self.best["seconds"])
        return float(self.best_so_far[-1]) if len(self.seconds) else np.inf

    @property
    def failures(self) -> dict[str, int]:
        """How many trials failed, by class."""
        found: dict[str, int] = {}
        for s in self.status:
            if s != "ok":
                found[s] = found.get(s, 0) + 1
        return found


@dataclass(frozen=True, eq=False)
class Run:
    """A finished or unfinished experiment: its cells and what is needed to repeat it."""

    name: str
    cells: tuple[CellResult, ...]
    config: Mapping[str, Any] = field(default_factory=dict)  # resolved
    source: str = ""  # the YAML text as written
    command: str = ""
    machine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    started: str = ""
    recorded: bool = False  # all measurements come from tables
    folder: str = ""
    noise: float | None = None  # of the times that are compared, relative; None where nobody has measured it

    @property
    def entries(self) -> tuple[str, ...]:
        """The combinations that are compared, in the order of the experiment."""
        return tuple(dict.fromkeys(c.entry for c in self.cells))

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks, in the order of the experiment."""
        return tuple(dict.fromkeys(c.task for c in self.cells))
