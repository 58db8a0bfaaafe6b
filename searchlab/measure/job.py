"""Jobs and their outcomes: plain values that can be sent to any worker, on this machine or another.

A failure is a value, not an exception: a crashing candidate affects no other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Generic, Literal, Self, TypeVar

from searchlab.backend import Artifact
from searchlab.ir.program import Program
from searchlab.targets import Target
from searchlab.timing.protocol import Figure, Protocol, figure_of
from searchlab.workloads import Workload

Status = Literal["ok", "build", "run", "crash", "timeout", "wrong", "oom", "constraints", "quarantined"]
J = TypeVar("J", contravariant=True)
FAILURES: tuple[Status, ...] = ("build", "run", "crash", "timeout", "wrong", "oom", "constraints", "quarantined")


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits for building, running and waiting, and the memory limit of a candidate beyond its inputs."""

    build_s: float = 20.0
    run_s: float = 10.0
    queue_s: float | None = None
    memory_bytes: int | None = 4 << 30


@dataclass(frozen=True)
class Job:
    """One candidate to be measured: a program to build, or object code that was built elsewhere.

    `best_s` is the best time so far among its rivals (infinite: there is none yet), which lets a measurer spend less
    on slower candidates; None means that its time is wanted regardless of rivals.  A `modelled` job is run for its
    results only: its cost comes from a model of the target, and its outcome has `notes["modelled"]`.
    """

    id: str
    workload: Workload
    target: Target
    program: Program | None = None
    artifact: Artifact | None = None
    seed: int = 0
    limits: Limits = Limits()
    protocol: Protocol = Protocol()
    best_s: float | None = None
    modelled: bool = False

    def __post_init__(self) -> None:
        if (self.program is None) == (self.artifact is None):
            raise ValueError(f"job '{self.id}' takes a program or an artifact, exactly one of them")

    def racing(self, best_s: float) -> Job:
        """The job updated with the best time that others of its batch have reached."""
        return self if self.best_s is None or self.best_s <= best_s else replace(self, best_s=best_s)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job: all repeats in seconds per run, or a failure class with a message.

    build_s, check_s and run_s are the durations of the phases, queue_s is the time the job waited; `number` is the
    number of runs per repeat; `stopped_early` says that a slow candidate was repeated less often.  `pulses` are the
    readings of the clock probe beside each repeat (the slower of before and after), which show the core's speed.
    A failure not caused by the candidate has `notes["environment"]` with the cause; times that an emulator took, which
    say nothing about the target, have `notes["emulated"]`.
    """

    id: str
    status: Status
    times: tuple[float, ...] = ()
    error: str = ""
    number: int = 0
    build_s: float = 0.0
    check_s: float = 0.0
    run_s: float = 0.0
    queue_s: float = 0.0
    worker: str = ""
    cores: tuple[int, ...] = ()
    attempts: int = 1
    stopped_early: bool = False
    notes: dict[str, str] = field(default_factory=dict)
    pulses: tuple[float, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it has times."""
        return self.status == "ok"

    @property
    def seconds(self) -> float:
        """The reported figure: the median repeat, infinite for a failure."""
        return self.figure("median")

    @property
    def fastest(self) -> float:
        """The fastest repeat, infinite for a failure: other programs make a repeat slower, never faster."""
        return self.figure("fastest")

    def figure(self, which: Figure) -> float:
        """One figure of the repeats, infinite for a failure."""
        return figure_of(self.times, which) if self.ok else float("inf")


class Measurer(ABC, Generic[J]):
    """Measures jobs and yields outcomes as they finish; local processes, Ray clusters and tables share this interface.

    A `Measurer[Job]` builds and runs programs; a recorded table looks up points, with its own type of jobs.

    with LocalMeasurer() as measurer:
        for outcome in measurer.measure(jobs):
            ...
    """

    @abstractmethod
    def measure(self, jobs: Sequence[J]) -> Iterator[Outcome]:
        """Yields one outcome per job, in order of completion."""

    def code_bytes(self, program: Program, target: Target) -> int | None:
        """The size of a program's object code, if it was built here and not long ago."""
        return None

    def close(self) -> None:  # a recorded table has no workers
        """Ends all workers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
