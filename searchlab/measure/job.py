"""Jobs and their outcomes: plain values that go to any worker, on this machine or another.

A failure is a value, not an exception: one candidate that crashes costs that candidate and nothing else.
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
    """How long building, running and waiting may take, and how much memory a candidate may use beyond its inputs."""

    build_s: float = 20.0
    run_s: float = 10.0
    queue_s: float | None = None
    memory_bytes: int | None = 4 << 30


@dataclass(frozen=True)
class Job:
    """One candidate to be measured: a program to build, or object code that was built elsewhere.

    `best_s` is the best time so far of those that it has to beat (infinite: there is none yet), which lets a measurer
    spend less on what is slower; None means that its own time is wanted, whatever others take.
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

    def __post_init__(self) -> None:
        if (self.program is None) == (self.artifact is None):
            raise ValueError(f"job '{self.id}' takes a program or an artifact, exactly one of them")

    def racing(self, best_s: float) -> Job:
        """The job when others of its batch have reached `best_s`."""
        return self if self.best_s is None or self.best_s <= best_s else replace(self, best_s=best_s)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job: all repeats in seconds per run, or a failure class with a message.

    build_s, check_s and run_s are the seconds the phases took, queue_s the seconds the job waited; `number` is how many
    runs a repeat had; `stopped_early` says that it was so slow that there are fewer repeats.  `pulses` are
    readings of the clock probe beside each repeat (the slower of before and after): how fast the core was then.
    A failure that is not the candidate's has `notes["environment"]`, which says what was wrong.
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
        """The figure that is reported: the median repeat, infinite for a failure."""
        return self.figure("median")

    @property
    def fastest(self) -> float:
        """The fastest repeat, infinite for a failure: other programs make a repeat slower, never faster."""
        return self.figure("fastest")

    def figure(self, which: Figure) -> float:
        """One figure of the repeats, infinite for a failure."""
        return figure_of(self.times, which) if self.ok else float("inf")


class Measurer(ABC, Generic[J]):
    """Measures jobs and answers as they finish; local processes, a Ray cluster and recorded tables are the same to use.

    A `Measurer[Job]` builds and runs programs; a recorded table looks up points, and has jobs of its own kind.

    with LocalMeasurer() as measurer:
        for outcome in measurer.measure(jobs):
            ...
    """

    @abstractmethod
    def measure(self, jobs: Sequence[J]) -> Iterator[Outcome]:
        """One outcome per job, in the order in which they finish."""

    def close(self) -> None:  # a recorded table has nothing to end
        """Ends all workers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
