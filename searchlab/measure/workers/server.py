"""The process behind a Worker: it holds inputs and references, and forks children that build, run and time candidates.

It is single-threaded, imports nothing heavy and never runs a candidate's code itself, so it survives all of them.  It
ends when its host closes the connection or dies.
"""

from __future__ import annotations

import gc
import os
import pickle
import resource
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from searchlab.backend import Artifact, backend_of
from searchlab.measure.job import Job, Limits, Outcome, Status
from searchlab.measure.workers.candidate import BuildBench, Checked, RunBench, RunTask
from searchlab.measure.workers.child import Child, ChildEnded, Host, HostGone, ParentAnswer, Work
from searchlab.measure.workers.fault import FaultPage
from searchlab.measure.workers.guard import oom_kills, resident_bytes
from searchlab.measure.workers.inputs import DataKey, JobData, Kept, make_data
from searchlab.measure.workers.wire import CANCEL, PREPARE_S, READY, Channel, Head, Reply, Request, dumps
from searchlab.targets import detect
from searchlab.timing.probe import Levels

# A child stops sampling this long before its deadline; on a busy machine its last sample may take far longer.
_SPARE_S, _SPARE_SHARE = 0.05, 0.1
# Failures that a child's earlier candidates may have caused; time-outs are not, and would cost too much to repeat.
_DOUBTFUL: tuple[Status, ...] = ("run", "crash", "wrong", "oom")


def main(connection: int, host: int, reuse: int, most_bytes: int) -> None:
    """Serves the process `host` until it has no more requests.

    A child measures up to `reuse` candidates, as long as it occupies no more than `most_bytes`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    channel = Channel(socket.socket(fileno=connection))
    server = Server(Host(channel, host), reuse, most_bytes)
    gc.collect()
    gc.freeze()  # children do not scan existing objects, which would copy their pages
    with suppress(HostGone, OSError):
        channel.send(READY)
        server.serve()
    server.end()
    os._exit(0)  # there is nothing to clean up, and the host is waiting


class Server:
    """Answers requests one after the other.

    Children are reused as long as nothing fails.  A candidate that fails in a used child is retried in a fresh one, so
    that it does not suffer from what an earlier candidate did to the process.
    """

    def __init__(self, host: Host, reuse: int, most_bytes: int) -> None:
        self._host = host
        self._board = FaultPage()
        here = detect(1)
        backend_of(here).warm_up(here)  # before children are forked, so that they need not load it
        self._levels = Levels()
        self._cores: tuple[int, ...] = ()
        self._kept = Kept()
        self._oom_kills = oom_kills()
        self._builder = _Lane(self._fork, reuse, most_bytes)
        self._runner = _Lane(self._fork, reuse, most_bytes)

    def serve(self) -> None:
        """Serves requests until the host is gone, which raises HostGone."""
        while True:
            message = self._host.receive()
            if message != CANCEL:  # a late one is ignored: its request has been answered
                self._host.channel.send(self._answer(message))

    def end(self) -> None:
        """Ends all children."""
        self._builder.end()
        self._runner.end()

    def _fork(self, make: Callable[[], Work]) -> Child:
        return Child(make, self._host, self._board)

    def _answer(self, request: Request) -> Reply:
        self._pin(request.cores)
        try:
            head: Head = pickle.loads(request.head)
            if head.built:
                return _reply(self._run(head, request.job))
            built, build_s = self._build(head, request.job)
            if request.kind == "build" or not isinstance(built, Artifact):
                return _reply(built, build_s)
            job: Job = pickle.loads(request.job)
            return _reply(self._run(head, dumps(replace(job, program=None, artifact=built))), build_s)
        except (HostGone, OSError):
            raise
        except Exception as error:  # an unreadable job, or a faulty workload
            status: Status = "build" if request.kind == "build" else "run"
            notes = {"environment": "the job cannot be read here"}
            return _reply(Outcome("", status, error=f"{type(error).__name__}: {error}", notes=notes))

    def _pin(self, cores: tuple[int, ...]) -> None:
        if cores and cores != self._cores:
            os.sched_setaffinity(0, cores)
            self._cores = cores
            self.end()  # threads that children have started would keep their cores

    # --- building -----------------------------------------------------------------------------------------------------

    def _build(self, head: Head, job: bytes) -> tuple[Artifact | Outcome | None, float]:
        ended = self._builder.call(lambda: BuildBench(self._board).work, None, lambda: job, head.limits.build_s)
        if ended.how == "value":
            return ended.value, ended.seconds
        return self._failure(ended, head.limits, building=True), ended.seconds

    # --- running ------------------------------------------------------------------------------------------------------

    def _run(self, head: Head, job: bytes) -> Outcome | None:
        begin = time.monotonic()
        data = self._data(head.data)
        if not isinstance(data, JobData):
            return data
        limit = head.limits.run_s
        review = _Review(data)

        def task() -> RunTask:
            data.expect()
            deadline = time.monotonic() + limit - max(_SPARE_S, _SPARE_SHARE * limit)
            return RunTask(job, deadline, self._levels.get(self._cores))

        backend_of(head.target).warm_up(head.target)
        prepared_s = time.monotonic() - begin
        ended = self._runner.call(lambda: RunBench(data, self._board).work, data, task, limit, review)
        found = self._outcome(ended, head.limits)
        if found is not None and found.pulses:
            self._levels.add(self._cores, min(found.pulses))
        return found and replace(found, check_s=review.seconds + prepared_s)

    def _data(self, key: DataKey) -> JobData | Outcome | None:
        kept = self._kept.get(key)
        if isinstance(kept, JobData):
            return kept
        if isinstance(kept, str):
            return _no_data(kept)
        child = self._fork(lambda: lambda task, ask: make_data(task))
        ended = child.call(key, PREPARE_S)
        child.end()
        if ended.how == "value":
            data = JobData.of(key, *ended.value)
            self._kept.put(data)
            return data
        if ended.how == "cancelled":
            return None
        late = f"they took more than {PREPARE_S:g} s"
        why = {"raised": str(ended.value), "timeout": late}.get(ended.how) or ended.crash
        message = f"inputs and reference of {key.workload.label}: {why}"
        self._kept.refuse(key, message)
        return _no_data(message)

    # --- how it went --------------------------------------------------------------------------------------------------

    def _outcome(self, ended: ChildEnded, limits: Limits) -> Outcome | None:
        """The outcome of a run; None if it was cancelled."""
        if ended.how == "value":
            found: Outcome = ended.value
            return found
        if ended.how == "refused":
            return Outcome("", "wrong", error=ended.value)
        return self._failure(ended, limits, building=False)

    def _failure(self, ended: ChildEnded, limits: Limits, *, building: bool) -> Outcome | None:
        """The outcome for a child that returned none; None if it was cancelled."""
        failed: Status = "build" if building else "crash"
        error = ended.crash
        if ended.how == "cancelled":
            return None
        if ended.how == "timeout":
            limit, seconds = ("build_s", limits.build_s) if building else ("run_s", limits.run_s)
            failed, error = "timeout", f"{limit}: killed after {seconds:g} s while {ended.fault.phase}"
        elif ended.how == "raised":
            failed, error = "build" if building else "run", str(ended.value)
        elif ended.fault.out_of_memory:
            failed, error = "oom", f"memory_bytes: nothing left of {limits.memory_bytes}; {ended.crash}"
        elif self._killed_by_system(ended):
            failed, error = "oom", f"killed while {ended.fault.phase}: the system ran out of memory"
        return Outcome("", failed, error=error, run_s=0.0 if building else ended.seconds)

    def _killed_by_system(self, ended: ChildEnded) -> bool:
        before, self._oom_kills = self._oom_kills, oom_kills()
        return ended.how == "signal" and ended.value == signal.SIGKILL and self._oom_kills > before


class _Lane:
    """A sequence of children, one at a time, with the rules for replacing them."""

    def __init__(self, fork: Callable[[Callable[[], Work]], Child], reuse: int, most_bytes: int) -> None:
        self._fork, self._reuse, self._most_bytes = fork, reuse, most_bytes
        self._child: Child | None = None
        self._about: object = None

    def call(
        self,
        make: Callable[[], Work],
        about: object,
        task: Callable[[], Any],
        limit_s: float,
        review: Callable[[Any], ParentAnswer] | None = None,
    ) -> ChildEnded:
        """Has a child execute a task; a child made for another `about`, compared by identity, is not reused."""
        if self._child is not None and self._worn_out(self._child, about):
            self.end()
        used = self._child is not None
        ended = self._try(make, about, task, limit_s, review)
        return self._try(make, about, task, limit_s, review) if used and _doubtful(ended) else ended

    def _worn_out(self, child: Child, about: object) -> bool:
        return self._about is not about or child.tasks >= self._reuse or child.resident_bytes > self._most_bytes

    def _try(
        self,
        make: Callable[[], Work],
        about: object,
        task: Callable[[], Any],
        limit_s: float,
        review: Callable[[Any], ParentAnswer] | None,
    ) -> ChildEnded:
        if self._child is None:
            self._child, self._about = self._fork(make), about
        ended = self._child.call(task(), limit_s, review)
        if ended.how != "value" or _doubtful(ended):
            self.end()
        return ended

    def end(self) -> None:
        if self._child is not None:
            self._child.end()
        self._child = self._about = None


class _Review:
    """Checks a candidate's outputs before it is timed, and accumulates the time of checking."""

    def __init__(self, data: JobData) -> None:
        self.seconds = 0.0
        self._data = data

    def __call__(self, checked: Checked) -> ParentAnswer:
        begin = time.monotonic()
        wrong = checked.wrong or self._data.damage()
        wrong = wrong or self._data.compare({n: g.array for n, g in self._data.outputs.items()})
        spent = time.monotonic() - begin
        self.seconds += checked.seconds + spent
        return ParentAnswer(spent, refused=wrong)


def _doubtful(ended: ChildEnded) -> bool:
    if ended.how == "value":
        return isinstance(ended.value, Outcome) and ended.value.status in _DOUBTFUL
    return ended.how not in ("timeout", "cancelled")


def _no_data(error: str) -> Outcome:
    return Outcome("", "run", error=error, notes={"environment": "the data of the workload could not be made"})


def _reply(result: Artifact | Outcome | None, build_s: float = 0.0) -> Reply:
    return Reply(result, build_s, resident_bytes())
