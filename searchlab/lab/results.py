"""Results of an experiment as values: cells with their trials, and the run that contains them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from searchlab.lab.config.experiment import Experiment, ReportSettings
from searchlab.lab.study.fallback import Fallback, Origin, origin_of, taken_s
from searchlab.lab.study.objective import Latency
from searchlab.lab.study.size_dispatch import FamilyTable

if TYPE_CHECKING:
    from searchlab.lab.code import Code
    from searchlab.lab.manifest import Cell
    from searchlab.lab.study import IncumbentLook, Quality, Round

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Winner:
    """The result of a search: the trial, the knob settings, the point as text, and its time.

    The time is that of the run-off of its task, or of the final race of its cell; `fallback` is the default schedule in
    the same race, which is taken home where it was faster.  A network has `parts`, one for each of its tasks; a family
    has one for each of its representative sizes, and the `table` that is taken home, whose time counts.
    """

    trial: int
    knobs: Mapping[str, Any]
    point: str
    seconds: float
    parts: tuple[PartWinner, ...] = ()
    fallback: Fallback | None = None
    table: FamilyTable | None = None

    @property
    def origin(self) -> Origin:
        """Where the program to take home comes from; the tasks of a network have their own origins."""
        return origin_of(self.fallback)

    @property
    def taken_s(self) -> float:
        """The time of what is taken home; `seconds` is that of what the search found."""
        if self.table is not None:
            return self.seconds
        if self.parts:
            return Latency(tuple(p.weight for p in self.parts))([p.best.taken_s for p in self.parts])
        return taken_s(self.fallback, self.seconds)

    def with_parts(self, parts: Sequence[PartWinner]) -> Winner:
        """The same with other times of its tasks.

        How a family's table compares with programs for single sizes is known from one race, so its times follow theirs.
        """
        latency = Latency(tuple(p.weight for p in parts))
        if self.table is None:
            seconds = latency([p.best.seconds for p in parts])
        else:
            pairs = zip(parts, self.table.factors, strict=True)
            seconds = latency([p.best.taken_s * factor for p, factor in pairs])
        return replace(self, seconds=seconds, parts=tuple(parts))

    @property
    def default_s(self) -> float | None:
        """The time of the default schedule for the sizes of a family; None for everything else."""
        if self.table is None:
            return None
        pairs = zip(self.parts, self.table.times, strict=True)
        return Latency(tuple(p.weight for p in self.parts))(
            [p.best.taken_s * t.default_s / t.alone_s for p, t in pairs]
        )


@dataclass(frozen=True)
class PartWinner:
    """The result for one task of a network, how often the task occurs, and the times of baselines on it."""

    task: str
    weight: float
    best: Winner
    baselines: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RoundSummary:
    """One batch of a search: the trials and the best time after it, and the quality of the model's predictions.

    `part` is the number of the task in a network, `looks` are the re-measurements of potential incumbents.
    """

    number: int
    trials: int
    best_s: float
    quality: Quality | None = None
    part: int | None = None
    looks: tuple[IncumbentLook, ...] = ()

    @staticmethod
    def of(done: Round) -> RoundSummary:
        """The summary of a round of a study."""
        return RoundSummary(done.number, done.trials, done.best_s, done.quality, done.part, done.looks)


@dataclass(frozen=True, eq=False)
class CellResult:
    """The result of a cell, trial by trial.

    Lists have one item per trial, in order.  `elapsed` is the wall time since the start of the cell (simulated time for
    recorded tables).  `baselines` holds times of baselines on the same task, interleaved with the best.
    """

    cell: Cell
    state: str  # done | failed | interrupted | waiting
    seconds: Floats  # of every trial; inf: it failed
    elapsed: Floats
    status: tuple[str, ...]  # "ok" or the class of the failure
    rounds: tuple[RoundSummary, ...] = ()
    ledger: Mapping[str, float] = field(default_factory=dict)
    best: Winner | None = None
    baselines: Mapping[str, float] = field(default_factory=dict)
    optimum_s: float | None = None  # known for recorded tables
    error: str = ""
    earlier: tuple[str, ...] = ()  # components that have changed since in this run

    @staticmethod
    def waiting(cell: Cell) -> CellResult:
        """The result of a cell that has not begun."""
        return CellResult(cell, "waiting", np.empty(0), np.empty(0), ())

    @property
    def id(self) -> str:
        """The id of the cell."""
        return self.cell.id

    @property
    def entry(self) -> str:
        """The name of the combination, the unit of comparison."""
        return self.cell.entry

    @property
    def task(self) -> str:
        """The label of the subject."""
        return self.cell.task

    @property
    def seed(self) -> int:
        """The seed of the search."""
        return self.cell.seed

    @property
    def factors(self) -> Mapping[str, str]:
        """The settings that make up the entry, as text."""
        return self.cell.factors

    @property
    def code(self) -> Code:
        """The known versions of its components."""
        return self.cell.code

    @property
    def searches(self) -> tuple[CellResult, ...]:
        """The result itself, or one result for each task of a network."""
        if not self.cell.parts:
            return (self,)
        known: Sequence[PartWinner | None] = self.best.parts if self.best is not None else [None] * len(self.cell.parts)
        return tuple(
            replace(self, cell=cell, best=part.best if part else None, baselines=part.baselines if part else {})
            for cell, part in zip(self.cell.searches, known, strict=True)
        )

    @cached_property
    def best_so_far(self) -> Floats:
        """The best time after each trial."""
        found: Floats = np.minimum.accumulate(self.seconds) if len(self.seconds) else np.empty(0)
        return found

    @property
    def final_s(self) -> float:
        """The time of what the search found: of the run-off, else of the best trial; inf if nothing worked."""
        if self.best is not None:
            return self.best.seconds
        return float(self.best_so_far[-1]) if len(self.seconds) else np.inf

    @property
    def taken_s(self) -> float:
        """The time of what is taken home: that of the search, or of the default schedule where it was faster."""
        return self.final_s if self.best is None else self.best.taken_s

    @property
    def failures(self) -> dict[str, int]:
        """The number of failed trials by class."""
        found: dict[str, int] = {}
        for s in self.status:
            if s != "ok":
                found[s] = found.get(s, 0) + 1
        return found


def to_take(results: Iterable[CellResult]) -> CellResult | None:
    """The result to take home from finished searches of one task; None if none of them found anything.

    It is the fastest of those that the default schedule did not beat; if it beat them all, the fastest with it.
    """
    ended = [r for r in results if r.state == "done" and r.best is not None and np.isfinite(r.final_s)]
    ahead = [r for r in ended if r.best is not None and r.best.origin == "search"]
    return min(ahead or ended, key=lambda r: (r.taken_s, r.final_s), default=None)


@dataclass(frozen=True, eq=False)
class Run:
    """A finished or unfinished experiment: its cells and everything needed to repeat it."""

    name: str
    cells: tuple[CellResult, ...]
    experiment: Experiment | None = None  # None if the folder no longer has it
    config: Mapping[str, Any] = field(default_factory=dict)  # the resolved experiment as in its file, for display
    source: str = ""  # the YAML text as written
    command: str = ""
    machine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    started: str = ""
    recorded: bool = False  # all measurements come from tables
    folder: str = ""
    noise: float | None = None  # of the compared times, relative; None if it was not measured

    @property
    def report(self) -> ReportSettings:
        """The report settings of the experiment."""
        return ReportSettings() if self.experiment is None else self.experiment.report

    @property
    def entries(self) -> tuple[str, ...]:
        """The combinations that are compared, in the order of the experiment."""
        return tuple(dict.fromkeys(c.entry for c in self.cells))

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks, in the order of the experiment."""
        return tuple(dict.fromkeys(c.task for c in self.cells))
