"""What a study searches: a task on hardware, or a recorded table; both turn points into jobs and records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from searchlab.ir.program import Program
from searchlab.lab.records import Record
from searchlab.measure import Job, Limits, Outcome, Protocol
from searchlab.measure.recorded.replayer import TableJob
from searchlab.measure.recorded.tables import Table
from searchlab.search import Points, Space, Task


@dataclass(frozen=True, eq=False)
class Candidate:
    """A point on its way through a study: `digest` is the same for points that are the same program."""

    point: Points
    key: int
    digest: str
    job: Any
    predicted: float | None = None


class Subject(ABC):
    """A space whose points can be measured."""

    name: str
    space: Space

    @abstractmethod
    def candidate(self, point: Points, best_s: float | None) -> Candidate:
        """The point with the job that measures it."""

    @abstractmethod
    def record(self, candidate: Candidate, outcome: Outcome, cell: str, notes: Mapping[str, str]) -> Record:
        """What measuring it gave, ready to be stored."""

    def program(self, point: Points) -> Program:
        """The program of a point."""
        return self.space.program(point)


@dataclass(frozen=True, eq=False)
class TaskSubject(Subject):
    """A workload on a target."""

    task: Task
    space: Space
    protocol: Protocol = Protocol()
    limits: Limits = Limits()
    seed: int = 0

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.task.workload.key

    def candidate(self, point: Points, best_s: float | None) -> Candidate:
        program = self.space.program(point)
        key = int(self.space.key(point)[0])
        settings = {"seed": self.seed, "limits": self.limits, "protocol": self.protocol, "best_s": best_s}
        job = Job(f"{key:016x}", self.task.workload, self.task.target, program, **settings)  # type: ignore[arg-type]
        return Candidate(point, key, program.hash, job)

    def record(self, candidate: Candidate, outcome: Outcome, cell: str, notes: Mapping[str, str]) -> Record:
        space, choice = self.space, self.space.choice(candidate.point)
        noted = replace(outcome, notes={**outcome.notes, **notes})
        return Record.from_outcome(
            candidate.job, noted, space=space.name, space_version=space.version, knobs=choice, cell=cell
        )


@dataclass(frozen=True, eq=False)
class TableSubject(Subject):
    """A table of measurements that answers instead of hardware."""

    table: Table

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.table.name

    @property
    def space(self) -> Space:  # type: ignore[override]
        return self.table.space

    def candidate(self, point: Points, best_s: float | None) -> Candidate:
        key = int(self.space.key(point)[0])
        return Candidate(point, key, f"{key:016x}", TableJob(f"{key:016x}", tuple(point.rows()[0])))

    def record(self, candidate: Candidate, outcome: Outcome, cell: str, notes: Mapping[str, str]) -> Record:
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
            notes={**outcome.notes, **notes},
            **measured,
            **phases,
        )
