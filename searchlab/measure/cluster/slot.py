"""The code that runs on the nodes: the actor of a slot, which measures, and the task that builds.

Both get everything in their arguments: they need no shared folder and no memory of the driver, only an installed
searchlab.
"""

from __future__ import annotations

import os
import pickle
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

from searchlab.backend import Artifact
from searchlab.errors import MeasureError
from searchlab.measure.job import Job, Outcome, Status
from searchlab.measure.workers.worker import Worker
from searchlab.timing.corelock import CoreLock

_LOCK_S = 30.0  # the wait for others who measure on this node, such as the previous slot


class Runner(Protocol):
    """The methods of a worker that a slot needs; `Worker` has them, and so has a fake for tests."""

    def run(self, job: Job) -> Outcome:
        """Builds if need be, checks and times a job."""

    def build(self, job: Job) -> Artifact | Outcome:
        """Builds the program of a job."""


Factory = Callable[[str, tuple[int, ...]], Runner]


@dataclass(frozen=True)
class Kit:
    """How a node creates workers: a pickled factory, and the driver's module search path, which comes last here."""

    factory: bytes
    path: tuple[str, ...]

    def unpack(self) -> None:
        """Makes the driver's modules importable here, if the node has its folders."""
        sys.path.extend(folder for folder in self.path if folder not in sys.path)

    def make(self, name: str, cores: tuple[int, ...]) -> Runner:
        """A worker with a name, on cores of this node."""
        self.unpack()
        factory: Factory = pickle.loads(self.factory)
        return factory(name, cores)


@dataclass(frozen=True)
class Parcel:
    """A job in transit.  It stays pickled, so that an unreadable one fails alone."""

    number: int
    job: bytes


@dataclass(frozen=True)
class SlotPlace:
    """The place of a slot."""

    host: str
    pid: int
    cores: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Built:
    """The job with its object code, or the outcome of a build that failed."""

    job: bytes | None
    outcome: Outcome | None
    seconds: float


class Slot:
    """An actor with `workers` workers (one, unless they only wait), each with `cores` dedicated cores.

    The driver always has one `exchange` in progress: it brings jobs and returns all outcomes as soon as there are any.
    Thus a busy driver gets few large answers, and an idle one gets each immediately.
    """

    def __init__(self, name: str, workers: int, cores: int, kit: Kit) -> None:
        host = socket.gethostname()
        allowed = sorted(os.sched_getaffinity(0))
        self._locks = [CoreLock(allowed, cores, timeout_s=_LOCK_S) for _ in range(workers)]
        self._place = SlotPlace(host, os.getpid(), tuple(lock.acquire() for lock in self._locks))
        self._inbox: queue.SimpleQueue[tuple[Parcel, float]] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[tuple[int, Outcome] | MeasureError] = queue.SimpleQueue()
        for i, held in enumerate(self._place.cores):
            label = f"{name}.{i}@{host}" if workers > 1 else f"{name}@{host}"
            threading.Thread(target=self._serve, args=(kit.make(label, held),), daemon=True).start()

    def begin(self) -> SlotPlace:
        """Returns once the slot exists."""
        return self._place

    def give(self, parcels: Sequence[Parcel]) -> None:
        """Takes jobs while an `exchange` is waiting."""
        now = time.monotonic()
        for parcel in parcels:
            self._inbox.put((parcel, now))

    def exchange(self, parcels: Sequence[Parcel]) -> list[tuple[int, Outcome]]:
        """Takes jobs and waits for at least one outcome."""
        self.give(parcels)
        found = [self._outbox.get()]
        while not self._outbox.empty():
            found.append(self._outbox.get())
        return [_checked(each) for each in found]

    def _serve(self, worker: Runner) -> None:
        while True:
            parcel, arrived = self._inbox.get()
            waited = time.monotonic() - arrived
            try:
                outcome = worker.run(pickle.loads(parcel.job))
            except MeasureError as error:  # the slot is broken, not the candidate: the driver tries another slot
                self._outbox.put(error)
                return
            except Exception as error:  # a job of another process: reading it may import and run anything
                outcome = _unusable("run", "the job cannot be run", error)
            self._outbox.put((parcel.number, replace(outcome, queue_s=outcome.queue_s + waited)))


def build(job: bytes, kit: Kit) -> Built:
    """Builds a job's program, away from the cores that slots on this node measure on."""
    begin = time.monotonic()
    kit.unpack()
    try:
        made: Job = pickle.loads(job)
    except Exception as error:  # as above
        return Built(None, _unusable("build", "the job cannot be read", error), 0.0)
    builder = _builder(kit, _free_cores())
    result = builder.build(made)
    seconds = time.monotonic() - begin
    if isinstance(result, Outcome):
        return Built(None, replace(result, build_s=result.build_s or seconds), seconds)
    return Built(pickle.dumps(replace(made, program=None, artifact=result), pickle.HIGHEST_PROTOCOL), None, seconds)


def _unusable(status: Status, what: str, error: Exception) -> Outcome:
    """The outcome of a job that this node cannot process."""
    return Outcome("", status, error=f"{what}: {type(error).__name__}: {error}", notes={"environment": f"{what} here"})


def default_worker(name: str, cores: tuple[int, ...]) -> Runner:
    """The worker that measures for real."""
    return Worker(name, cores)


@lru_cache(maxsize=1)
def _builder(kit: Kit, cores: tuple[int, ...]) -> Runner:
    # Ray reuses a process for many tasks, so the worker is kept; slots, and with them the free cores, change rarely.
    return kit.make(f"builder@{socket.gethostname()}", cores)


def _free_cores() -> tuple[int, ...]:
    """The cores of this node on which no slot measures; all of them if there are none."""
    allowed = sorted(os.sched_getaffinity(0))
    free = []
    for core in allowed:
        with suppress(MeasureError), CoreLock([core], timeout_s=0):
            free.append(core)
    return tuple(free or allowed)


def _checked(each: tuple[int, Outcome] | MeasureError) -> tuple[int, Outcome]:
    if isinstance(each, MeasureError):
        raise each
    return each
