"""The process behind a Worker: it keeps inputs and references, and forks one child for every build and every run.

It has one thread, imports nothing heavy, and runs no candidate's code itself, so it outlives all of them.  It ends when
its host closes the connection or dies.
"""

from __future__ import annotations

import gc
import os
import pickle
import resource
import signal
import socket
import time
from collections import OrderedDict
from contextlib import suppress
from functools import cache

from searchlab.codegen.jit import compile_ir
from searchlab.codegen.kernel import Artifact
from searchlab.codegen.pool import parallel_for_address
from searchlab.errors import SearchLabError
from searchlab.measure.candidate import Data, build_candidate, make_data, run_candidate
from searchlab.measure.child import Ended, Forks, HostGone
from searchlab.measure.guard import resident_bytes
from searchlab.measure.job import Job, Outcome
from searchlab.measure.wire import CANCEL, READY, Channel, Reply, Request
from searchlab.measure.worker import PREPARE_S
from searchlab.targets import Target
from searchlab.workloads import Workload

KEPT_BYTES = 1 << 30
KEPT_FAILURES = 64
_SPARE_S = 0.05  # a child stops repeating this long before it would be killed


def main(connection: int, host: int) -> None:
    """Serves the process `host` until it has no more requests."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    channel = Channel(socket.socket(fileno=connection))
    server = Server(channel, host)
    gc.collect()
    gc.freeze()  # so that children do not copy pages for the sake of reference counts of garbage
    with suppress(HostGone, OSError):
        channel.send(READY)
        server.serve()


class Server:
    """Answers requests one after the other."""

    def __init__(self, channel: Channel, host: int) -> None:
        self._channel = channel
        self._forks = Forks(channel, host)
        self._cores: tuple[int, ...] = ()
        self._data = _Kept()

    def serve(self) -> None:
        """Until the host is gone, which raises HostGone."""
        while True:
            message = self._forks.receive()
            if message == CANCEL:  # it came too late: what it meant is done
                continue
            self._channel.send(self._answer(message))

    def _answer(self, request: Request) -> Reply:
        if request.cores and request.cores != self._cores:
            os.sched_setaffinity(0, request.cores)
            self._cores = request.cores
        try:
            job: Job = pickle.loads(request.job)
        except Exception as error:  # reading a job imports the module of its operator
            status = "build" if request.kind == "build" else "run"
            return self._reply(Outcome("", status, error=f"the job cannot be read: {type(error).__name__}: {error}"))
        built, build_s = (job.artifact, 0.0) if job.artifact is not None else self._build(job)
        if request.kind == "build" or not isinstance(built, Artifact):
            return self._reply(built, build_s)
        return self._reply(self._run(job, built), build_s)

    def _reply(self, result: Artifact | Outcome | None, build_s: float = 0.0) -> Reply:
        return Reply(result, build_s, resident_bytes())

    # --- phases -------------------------------------------------------------------------------------------------------

    def _build(self, job: Job) -> tuple[Artifact | Outcome | None, float]:
        _warm_compiler(job.target)
        ended = self._forks.call(lambda: build_candidate(job, self._forks.board), job.limits.build_s)
        if ended.how == "value":
            return ended.value, ended.seconds
        return _failure(job, ended, "build_s", job.limits.build_s), ended.seconds

    def _run(self, job: Job, artifact: Artifact) -> Outcome | None:
        begin = time.monotonic()
        data = self._data_of(job)
        if not isinstance(data, Data):
            return data
        prepared_s = time.monotonic() - begin
        if artifact.parallel:
            parallel_for_address(1)  # loads the pool once for all children; threads start in the children
        limit = job.limits.run_s
        deadline = time.monotonic() + limit - _SPARE_S
        board = self._forks.board
        ended = self._forks.call(lambda: run_candidate(job, artifact, data, board, deadline), limit)
        if ended.how != "value":
            return _failure(job, ended, "run_s", limit)
        found: Outcome = ended.value
        return _add_check_seconds(found, prepared_s)

    def _data_of(self, job: Job) -> Data | Outcome | None:
        check = job.protocol.check
        kept = self._data.get(job.workload, job.seed, check)
        if isinstance(kept, str):
            return Outcome(job.id, "run", error=kept)
        if kept is not None:
            return kept
        ended = self._forks.call(lambda: make_data(job.workload, job.seed, check), PREPARE_S)
        if ended.how == "value":
            data = Data.of(job.workload, *ended.value)
            self._data.put(job.seed, check, data)
            return data
        if ended.how == "cancelled":
            return None
        why = {"raised": str(ended.value), "timeout": f"they took more than {PREPARE_S:g} s"}.get(ended.how, "")
        message = f"inputs and reference of {job.workload.label}: {why or ended.crash}"
        self._data.refuse(job.workload, job.seed, check, message)
        return Outcome(job.id, "run", error=message)


class _Kept:
    """The data of the workloads used last, as many as fit; also why data could not be made, so as not to try again."""

    def __init__(self) -> None:
        self._data: OrderedDict[tuple[Workload, int, bool], Data] = OrderedDict()
        self._failures: OrderedDict[tuple[Workload, int, bool], str] = OrderedDict()

    def get(self, workload: Workload, seed: int, check: bool) -> Data | str | None:
        key = (workload, seed, check)
        if key in self._data:
            self._data.move_to_end(key)
            return self._data[key]
        return self._failures.get(key)

    def put(self, seed: int, check: bool, data: Data) -> None:
        self._data[data.workload, seed, check] = data
        while len(self._data) > 1 and sum(d.nbytes for d in self._data.values()) > KEPT_BYTES:
            self._data.popitem(last=False)

    def refuse(self, workload: Workload, seed: int, check: bool, why: str) -> None:
        self._failures[workload, seed, check] = why
        while len(self._failures) > KEPT_FAILURES:
            self._failures.popitem(last=False)


def _failure(job: Job, ended: Ended, limit: str, seconds: float) -> Outcome | None:
    """The outcome of a child that gave none; None if it was told to stop."""
    spent = ended.seconds if limit == "run_s" else 0.0
    building = limit == "build_s"
    if ended.how == "cancelled":
        return None
    if ended.how == "timeout":
        text = f"{limit}: killed after {seconds:g} s while {ended.fault.phase}"
        return Outcome(job.id, "timeout", error=text, run_s=spent)
    if ended.fault.out_of_memory and ended.how == "signal":
        text = f"memory_bytes: no memory left of {job.limits.memory_bytes}; {ended.crash}"
        return Outcome(job.id, "oom", error=text, run_s=spent)
    if ended.how == "raised":
        status = "oom" if ended.value.kind == "MemoryError" else "build" if building else "run"
        return Outcome(job.id, status, error=str(ended.value), run_s=spent)
    return Outcome(job.id, "build" if building else "crash", error=ended.crash, run_s=spent)


def _add_check_seconds(outcome: Outcome, seconds: float) -> Outcome:
    from dataclasses import replace

    return replace(outcome, check_s=outcome.check_s + seconds)


@cache
def _warm_compiler(target: Target) -> None:
    """Lets children inherit LLVM's description of the target instead of making it every time."""
    with suppress(SearchLabError):
        compile_ir("define void @nothing() {\n  ret void\n}\n", target)
