"""Subjects of searches: a task on hardware, a recorded table, or a network of either, behind one interface."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from searchlab.backend import Kernel, compile
from searchlab.errors import SpaceError
from searchlab.ir.program import Program
from searchlab.lab.records import Record, SearchPlace
from searchlab.lab.study.finish import Finish, final_race
from searchlab.lab.study.objective import Latency
from searchlab.measure import Job, Limits, LocalMeasurer, Measurer, Outcome, Protocol
from searchlab.measure.recorded.replayer import ReplayMeasurer, TableJob
from searchlab.measure.recorded.tables import Table
from searchlab.registry import Component
from searchlab.search import Points, Space, SpaceGenerator, Task
from searchlab.search.generator import space as space_of
from searchlab.timing.protocol import Figure


@dataclass(frozen=True, eq=False)
class Candidate:
    """A point on its way through a study; points with the same program have the same `digest`.

    `part` is the number of its task in a joint study; a `seed` was given by the space, not proposed by the strategy.
    """

    point: Points
    key: int
    digest: str
    job: Any
    predicted: float | None = None
    part: int = 0
    seed: bool = False


class Subject(ABC):
    """The subject of a search; if `recorded`, all its times are looked up, on a simulated clock.

    `optimum_s` is its best possible time, if known.  `raced` says whether the search ends with a race on this machine.
    `parts` are the tasks or tables it consists of: the subject itself unless it is a network.
    """

    name: str
    recorded: bool
    raced: bool
    optimum_s: float | None
    parts: tuple[SpaceSubject, ...]

    @abstractmethod
    def now(self) -> float:
        """The time on the clock of its searches: wall time or simulated time."""


class SpaceSubject(Subject):
    """A subject with one space, whose points can be measured.

    `figure` is the figure of a measurement that counts; `confirmed` says whether a re-measurement may differ.
    """

    space: Space
    figure: Figure
    confirmed: bool

    @abstractmethod
    def candidate(self, point: Points, best_s: float | None) -> Candidate:
        """The point with the job that measures it."""

    @abstractmethod
    def record(self, candidate: Candidate, outcome: Outcome, cell: str, place: SearchPlace) -> Record:
        """The measurement of a candidate, ready to be stored."""

    @abstractmethod
    def measurer(self, shared: Measurer[Any] | None = None) -> Measurer[Any]:
        """The measurer of its candidates: `shared`, if the subject can use any measurer of programs, or its own."""

    @abstractmethod
    def final(self, finalists: Sequence[Points], best_s: float, seconds: float, most: float) -> Finish:
        """Decides between finalists, of which the first is the incumbent with its time `best_s`."""

    @property
    @abstractmethod
    def default(self) -> Program:
        """The default schedule, which needs no search."""

    @abstractmethod
    def kernel(self, program: Program) -> Kernel:
        """A program, compiled."""

    @property
    @abstractmethod
    def kind(self) -> tuple[str, float]:
        """The kind of work and the number of operations: subjects with similar values reach similar speeds."""

    @property
    def parts(self) -> tuple[SpaceSubject, ...]:  # type: ignore[override]
        """The subject itself."""
        return (self,)

    def program(self, point: Points) -> Program:
        """The program of a point."""
        return self.space.program(point)


@dataclass(frozen=True, eq=False)
class TaskSubject(SpaceSubject):
    """A workload on a target; `raced` is False if candidates are timed on other machines."""

    task: Task
    space: Space
    protocol: Protocol = Protocol()
    limits: Limits = Limits()
    seed: int = 0
    raced: bool = True
    confirmed: bool = True
    modelled: bool = False  # costs come from a model, see `Job.modelled`

    recorded = False
    optimum_s = None
    figure = "fastest"

    @property
    def name(self) -> str:  # type: ignore[override]
        """The key of the workload."""
        return self.task.workload.key

    @property
    def kind(self) -> tuple[str, float]:
        """The name of the workload and its number of operations."""
        return self.task.workload.name, max(1.0, float(self.task.workload.flops))  # what only moves data counts, too

    def now(self) -> float:
        """The wall time."""
        return time.perf_counter()

    def candidate(self, point: Points, best_s: float | None) -> Candidate:
        """The point with its program as a job."""
        program = self.space.program(point)
        key = int(self.space.key(point)[0])
        settings = {"seed": self.seed, "limits": self.limits, "protocol": self.protocol, "best_s": best_s}
        settings["modelled"] = self.modelled
        job = Job(f"{key:016x}", self.task.workload, self.task.target, program, **settings)  # type: ignore[arg-type]
        return Candidate(point, key, program.hash, job)

    def record(self, candidate: Candidate, outcome: Outcome, cell: str, place: SearchPlace) -> Record:
        """The measurement with everything needed to repeat it."""
        space, choice = self.space, self.space.choice(candidate.point)
        noted = replace(outcome, notes={**outcome.notes, **place.notes})
        return Record.from_outcome(
            candidate.job, noted, space=space.name, space_version=space.version, knobs=choice, cell=cell
        )

    def measurer(self, shared: Measurer[Any] | None = None) -> Measurer[Any]:
        """The shared measurer, or a local one."""
        return LocalMeasurer() if shared is None else shared

    def final(self, finalists: Sequence[Points], best_s: float, seconds: float, most: float) -> Finish:
        """A race of the finalists beside the default schedule and the libraries."""
        if not self.raced:
            return Finish(0, best_s)
        programs = [self.program(point) for point in finalists]
        return final_race(self.task.workload, self.task.target, programs, self.default, seconds, most)

    @property
    def default(self) -> Program:
        """The default schedule of the workload for the target."""
        return self.task.default

    def kernel(self, program: Program) -> Kernel:
        """A program, compiled for the target."""
        return compile(program, self.task.target)


@dataclass(frozen=True, eq=False)
class TableSubject(SpaceSubject):
    """A table of measurements that replaces the hardware; `replay` holds options of its ReplayMeasurer."""

    table: Table
    replay: Mapping[str, Any] = field(default_factory=dict)

    recorded = True
    raced = False
    figure = "median"
    confirmed = False

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the table."""
        return self.table.name

    @property
    def space(self) -> Space:  # type: ignore[override]
        """The space of the table."""
        return self.table.space

    @property
    def optimum_s(self) -> float:  # type: ignore[override]
        """The best time in the table."""
        return self.table.best

    @property
    def kind(self) -> tuple[str, float]:
        """A kind that differs for every table: tables are not similar to each other."""
        return self.name, 1.0

    @cached_property
    def _replayer(self) -> ReplayMeasurer:
        return ReplayMeasurer(self.table, **self.replay)

    def now(self) -> float:
        """The simulated time."""
        return self._replayer.clock_s

    def candidate(self, point: Points, best_s: float | None) -> Candidate:
        """The point with a job for a table lookup."""
        key = int(self.space.key(point)[0])
        return Candidate(point, key, f"{key:016x}", TableJob(f"{key:016x}", tuple(point.rows()[0])))

    def record(self, candidate: Candidate, outcome: Outcome, cell: str, place: SearchPlace) -> Record:
        """The measurement as recorded in the table."""
        measured = {n: getattr(outcome, n) for n in ("status", "times", "error", "number", "worker")}
        phases = {n: getattr(outcome, n) for n in ("build_s", "check_s", "run_s", "queue_s")}
        return Record(
            task=self.name,
            label=self.name,
            space=self.space.name,
            space_version=self.space.version,
            knobs=self.space.choice(candidate.point),
            program=candidate.digest,
            cell=cell,
            job=outcome.id,
            notes={**outcome.notes, **place.notes},
            **measured,
            **phases,
        )

    def measurer(self, shared: Measurer[Any] | None = None) -> Measurer[Any]:
        """The replayer of the table; `shared` is not used."""
        return self._replayer

    def final(self, finalists: Sequence[Points], best_s: float, seconds: float, most: float) -> Finish:
        """The incumbent with its noise-free time from the table."""
        row = int(self.table.space.row(finalists[0])[0])
        return Finish(0, float(self.table.seconds[row]))

    @property
    def default(self) -> Program:
        """Raises SpaceError: a table has no programs."""
        raise SpaceError(f"{self.name} is a table of measurements: it has no programs")

    def kernel(self, program: Program) -> Kernel:
        """Raises SpaceError: a table has no programs."""
        raise SpaceError(f"{self.name} is a table of measurements: it has no programs")


@dataclass(frozen=True, eq=False)
class NetworkSubject(Subject):
    """Subjects that share one budget; `weights` says how often each occurs in one run of the network."""

    name: str
    parts: tuple[SpaceSubject, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.parts) != len(self.weights) or not self.parts:
            raise SpaceError(
                f"a network has a weight for each of its tasks, not {len(self.weights)} for {len(self.parts)}"
            )

    @property
    def latency(self) -> Latency:
        """The time of one run of the network as a function of its tasks' times."""
        return Latency(self.weights)

    @property
    def recorded(self) -> bool:  # type: ignore[override]
        """Whether its parts are tables."""
        return any(part.recorded for part in self.parts)

    @property
    def raced(self) -> bool:  # type: ignore[override]
        """Whether its parts are raced."""
        return any(part.raced for part in self.parts)

    @property
    def optimum_s(self) -> float | None:  # type: ignore[override]
        """The time of one run with the optimum of every part."""
        known = [s for part in self.parts if (s := part.optimum_s) is not None]
        return self.latency(known) if len(known) == len(self.parts) else None

    def now(self) -> float:
        """The sum of simulated clocks, each of which stops while another task is measured."""
        return sum(part.now() for part in self.parts) if self.recorded else time.perf_counter()


def subject(
    given: Task | Table | SpaceSubject,
    space: Component | SpaceGenerator,
    protocol: Protocol | None = None,
    limits: Limits | None = None,
) -> SpaceSubject:
    """The subject of a study from any of its forms; a table needs no `space`."""
    if isinstance(given, SpaceSubject):
        return given
    if isinstance(given, Table):
        return TableSubject(given)
    return TaskSubject(given, space_of(space, given), protocol or Protocol(), limits or Limits())
