"""LocalMeasurer: measures on this machine, in worker processes on dedicated cores.

    with LocalMeasurer() as measurer:
        for outcome in measurer.measure(jobs):
            ...

Nothing is compiled on a core that is timing a candidate.  If the kernels leave cores free, builders use these to work
ahead; if they need all cores, phases of building and timing alternate.
"""

from __future__ import annotations

import math
import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from searchlab.backend import Artifact, backend_of
from searchlab.errors import MeasureError
from searchlab.ir.program import Program
from searchlab.measure.job import Job, Measurer, Outcome
from searchlab.measure.workers.wire import Reply
from searchlab.measure.workers.worker import Worker, wait
from searchlab.targets import Target
from searchlab.timing.corelock import CoreLock
from searchlab.workloads import Workload

_MOST_BUILDERS = 4
_TURN_S = 1.0
_KEPT = 512  # cached builds: incumbents are re-measured often, and searches with the same seed begin alike


@dataclass(eq=False)
class _Batch:
    """The jobs of one call of `measure`."""

    threads: int
    impatient: bool
    left: int
    done: deque[Outcome] = field(default_factory=deque)
    best_s: dict[tuple[Workload, Target], float] = field(default_factory=dict)


@dataclass(eq=False)
class _Ticket:
    """An unanswered job: its total time in queues, and when it entered the current one.

    `lost` is the number of workers that died on it so far.
    """

    job: Job
    batch: _Batch
    since: float
    waited: float = 0.0
    build_s: float = 0.0
    lost: int = 0

    @property
    def rivals(self) -> tuple[Workload, Target]:
        """The workload and target; jobs that agree in these have comparable times."""
        return self.job.workload, self.job.target


def _spare(cores: int, timing: int) -> bool:
    return cores - timing >= 2 * timing


class LocalMeasurer(Measurer[Job]):
    """Measures jobs in local processes.

    workers      number of candidates timed concurrently, each on as many cores as its target has threads.  One by
                 default: concurrent candidates slow each other down, as caches and memory are shared
    builders     number of concurrent builds, at most 4; by default on all cores that never time, or on all cores in
                 alternation with timing if too few would be left
    cores        which cores to use; by default all that this process may use
    devices      which GPUs to use, with a worker for each; by default the first
    run_ahead    number of built candidates that may be queued for timing
    lock         whether to keep other searchlab processes from measuring on these cores; `lock_timeout_s` limits the
                 wait for one that does, of which `on_wait` is informed
    attempts     how often a job whose worker dies is tried
    reuse        number of candidates that one process measures as long as none fails (see Worker); workers are
                 replaced after `recycle_jobs` jobs, or beyond `recycle_bytes` of memory
    """

    def __init__(
        self,
        workers: int | None = None,
        builders: int | None = None,
        cores: Sequence[int] | None = None,
        *,
        run_ahead: int = 8,
        lock: bool = True,
        lock_timeout_s: float | None = None,
        on_wait: Callable[[str], None] | None = None,
        attempts: int = 3,
        reuse: int = 100,
        recycle_jobs: int = 10_000,
        recycle_bytes: int = 4 << 30,
        devices: Sequence[int] | None = None,
    ) -> None:
        self._devices = tuple(devices or (0,))
        if devices is not None and workers not in (None, 1, len(devices)):
            raise MeasureError(f"{len(devices)} devices have a worker each: leave out workers={workers}")
        self._usable = tuple(sorted(os.sched_getaffinity(0)) if cores is None else cores)
        self._workers, self._wanted_builders = len(devices) if devices else workers or 1, builders
        self._run_ahead = max(1, run_ahead)
        self._locking, self._lock_timeout_s, self._on_wait = lock, lock_timeout_s, on_wait
        self._options = {
            "attempts": attempts, "reuse": reuse, "recycle_jobs": recycle_jobs, "recycle_bytes": recycle_bytes
        }  # fmt: skip
        self._locks: list[CoreLock] = []
        self._cores = self._usable  # those currently locked
        self._batches: list[_Batch] = []
        self._waiting: deque[_Ticket] = deque()
        self._built: deque[_Ticket] = deque()
        self._artifacts: OrderedDict[tuple[str, Target], Artifact] = OrderedDict()
        self._running: dict[Worker, _Ticket] = {}
        self._building = True  # the current phase, if building and timing alternate
        self._closed = False
        # Starting takes some tenths of a second, which the caller can use to prepare its first jobs.
        own: Sequence[int | None] = devices or [None] * self._workers
        self._runners = [self._worker("run", i, self._usable[i : i + 1], own[i]) for i in range(self._workers)]
        self._builders = [self._worker("build", 0, self._usable[-1:])] if builders != 0 else []

    # --- the interface ------------------------------------------------------------------------------------------------

    def measure(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Yields one outcome per job, in order of completion; closing the iterator cancels unfinished jobs."""
        if not jobs:
            return
        batch = self._submit(jobs)
        try:
            while batch.left or batch.done:
                while batch.done:
                    yield batch.done.popleft()
                if batch.left:
                    self._step()
        finally:
            self._abandon(batch)

    def code_bytes(self, program: Program, target: Target) -> int | None:
        """The size of a program's object code; None if it was not built, or too many were built since."""
        found = self._artifacts.get((program.hash, target))
        return None if found is None else found.size

    def close(self) -> None:
        """Ends all workers and their children."""
        self._closed = True
        for batch in list(self._batches):
            self._abandon(batch)
        for worker in (*self._runners, *self._builders):
            worker.close()

    # --- coming and going ---------------------------------------------------------------------------------------------

    def _submit(self, jobs: Sequence[Job]) -> _Batch:
        if self._closed:
            raise MeasureError("this measurer is closed")
        impatient = any(job.limits.queue_s is not None for job in jobs)
        batch = _Batch(max(job.target.threads for job in jobs), impatient, len(jobs))
        need = self._workers * batch.threads
        if need > len(self._usable):
            raise MeasureError(
                f"{self._workers} worker{'s' * (self._workers > 1)} with {batch.threads} threads need {need} cores,"
                f" this process may use {len(self._usable)}"
            )
        kinds = {backend_of(target).device_kind for target in {job.target for job in jobs}} - {""}
        self._reserve(need + self._builder_count(batch.threads, len(self._usable)), kinds)
        self._batches.append(batch)
        now = time.monotonic()
        for job in map(self._with_artifact, jobs):
            (self._waiting if job.artifact is None else self._built).append(_Ticket(job, batch, now))
        most = min(self._builder_count(self._threads, len(self._cores)), len(self._waiting))  # each takes time to start
        while len(self._builders) < most:
            cores = self._build_cores
            self._builders.append(self._worker("build", i := len(self._builders), (cores[i % len(cores)],)))
        return batch

    def _reserve(self, count: int, kinds: Collection[str]) -> None:
        if self._batches or not self._locking:
            return
        try:
            for kind in kinds:  # before cores, so that nobody who waits for a device keeps others from measuring
                self._locked(self._devices, len(self._devices), kind)
            self._cores = self._locked(self._usable, min(count, len(self._usable)))
        except BaseException:  # also an interrupt
            self._release()
            raise

    def _locked(self, numbers: Sequence[int], count: int, kind: str = "core") -> tuple[int, ...]:
        lock = CoreLock(numbers, count, timeout_s=self._lock_timeout_s, on_wait=self._on_wait, kind=kind)
        held = lock.acquire()
        self._locks.append(lock)
        return held

    def _abandon(self, batch: _Batch) -> None:
        if batch not in self._batches:
            return
        self._batches.remove(batch)
        self._waiting = deque(t for t in self._waiting if t.batch is not batch)
        self._built = deque(t for t in self._built if t.batch is not batch)
        for worker in [w for w, ticket in self._running.items() if ticket.batch is batch]:
            del self._running[worker]
            worker.cancel()
        if not self._batches:
            self._release()

    def _release(self) -> None:
        while self._locks:
            self._locks.pop().release()

    def _worker(self, role: str, number: int, cores: Sequence[int], device: int | None = None) -> Worker:
        return Worker(f"{role}{number}", cores, device=device, **self._options)

    # --- who works where ----------------------------------------------------------------------------------------------

    @property
    def _threads(self) -> int:
        return max((b.threads for b in self._batches), default=1)

    @property
    def _apart(self) -> bool:
        """Whether to reserve cores for building: worthwhile if they build faster than all cores do in alternation."""
        return _spare(len(self._cores), self._workers * self._threads)

    @property
    def _build_cores(self) -> tuple[int, ...]:
        return self._cores[self._workers * self._threads :] if self._apart else self._cores

    def _builder_count(self, threads: int, cores: int) -> int:
        timing = self._workers * threads
        most = min(cores - timing if _spare(cores, timing) else cores, _MOST_BUILDERS)
        return most if self._wanted_builders is None else max(1, min(self._wanted_builders, most))

    def _busy_cores(self) -> set[int]:
        """The cores in use, including those of workers that are starting."""
        busy = [w for w in (*self._runners, *self._builders) if w.busy or not w.ready]
        return {core for worker in busy for core in worker.cores}

    # --- the loop -----------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        """Starts all jobs that can start, waits for events, and handles them."""
        if self._closed:
            raise MeasureError("this measurer was closed before all was measured")
        with _away_from(self._cores[: self._workers * self._threads] if self._apart else ()):
            self._expire()
            self._change_phase()
            self._start_runs()
            self._start_builds()
            watched = [w for w in (*self._runners, *self._builders) if w.busy or not w.ready]
            wait(watched, min([_TURN_S, *self._patience()]))
            for worker in watched:
                reply = worker.poll()
                if reply is not None and worker in self._running:
                    self._finished(worker, self._running.pop(worker), reply)

    def _change_phase(self) -> None:
        building = sum(w.busy for w in self._builders)
        if not self._waiting or len(self._built) + building >= self._run_ahead:
            self._building = False
        elif not self._built and not any(w.busy for w in self._runners):
            self._building = True

    def _start_runs(self) -> None:
        if self._building and not self._apart:
            return
        for i, worker in enumerate(self._runners):
            if not self._built:
                return
            count = self._built[0].job.target.threads
            cores = self._cores[i * self._threads :][:count]
            if worker.ready and not worker.busy and not self._busy_cores().intersection(cores):
                ticket = self._begin(self._built.popleft())
                self._running[worker] = ticket  # before the start, so that an interrupt finds it
                worker.start("run", ticket.job.racing(ticket.batch.best_s.get(ticket.rivals, math.inf)), cores)

    def _start_builds(self) -> None:
        if not self._building and not self._apart:
            return
        for worker in self._builders:
            room = self._run_ahead - len(self._built) - sum(w.busy for w in self._builders)
            free = [c for c in self._build_cores if c not in self._busy_cores()]
            if not (self._waiting and room > 0 and free):
                return
            if worker.ready and not worker.busy:
                core = worker.cores[0] if worker.cores[0] in free else free[0]
                ticket = self._begin(self._waiting.popleft())
                self._running[worker] = ticket  # first, as above
                worker.start("build", ticket.job, (core,))

    @staticmethod
    def _begin(ticket: _Ticket) -> _Ticket:
        ticket.waited += time.monotonic() - ticket.since
        return ticket

    def _finished(self, worker: Worker, ticket: _Ticket, reply: Reply) -> None:
        result = reply.result
        if isinstance(result, Artifact):
            self._keep(ticket.job, result)
            ticket.job = replace(ticket.job, program=None, artifact=result)
            ticket.build_s, ticket.since, ticket.lost = reply.build_s, time.monotonic(), reply.attempts - 1
            self._built.append(ticket)
        elif result is not None:
            self._complete(ticket, result)

    def _complete(self, ticket: _Ticket, outcome: Outcome) -> None:
        ticket.batch.left -= 1
        best = ticket.batch.best_s
        best[ticket.rivals] = min(best.get(ticket.rivals, math.inf), outcome.fastest)
        build_s, attempts = ticket.build_s + outcome.build_s, ticket.lost + outcome.attempts
        ticket.batch.done.append(replace(outcome, build_s=build_s, queue_s=ticket.waited, attempts=attempts))

    # --- what was built before ----------------------------------------------------------------------------------------

    def _with_artifact(self, job: Job) -> Job:
        if job.program is None or (found := self._artifacts.get((job.program.hash, job.target))) is None:
            return job
        return replace(job, program=None, artifact=found)

    def _keep(self, job: Job, artifact: Artifact) -> None:
        assert job.program is not None
        self._artifacts[job.program.hash, job.target] = artifact
        while len(self._artifacts) > _KEPT:
            self._artifacts.popitem(last=False)

    # --- patience -----------------------------------------------------------------------------------------------------

    def _limited(self) -> list[tuple[_Ticket, float]]:
        """The tickets with a queue limit, and when it expires."""
        if not any(batch.impatient for batch in self._batches):
            return []
        limits = [(t, t.job.limits.queue_s) for t in (*self._waiting, *self._built)]
        return [(t, t.since + limit - t.waited) for t, limit in limits if limit is not None]

    def _patience(self) -> list[float]:
        now = time.monotonic()
        return [max(0.0, end - now) + 0.001 for _, end in self._limited()]

    def _expire(self) -> None:
        now = time.monotonic()
        for ticket, end in self._limited():
            if now >= end:
                (self._waiting if ticket.job.artifact is None else self._built).remove(ticket)
                self._begin(ticket)
                error = f"queue_s: waited longer than {ticket.job.limits.queue_s:g} s for its turn"
                self._complete(ticket, Outcome(ticket.job.id, "timeout", error=error))


@contextmanager
def _away_from(cores: Sequence[int]) -> Iterator[None]:
    """Keeps this thread off the timing cores while none of the caller's code runs."""
    before = os.sched_getaffinity(0)
    elsewhere = before.difference(cores)
    if not elsewhere or elsewhere == before:
        yield
        return
    os.sched_setaffinity(0, elsewhere)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
