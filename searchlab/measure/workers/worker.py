"""Worker: builds, checks and times candidates one after the other, in a dedicated server process.

    with Worker("w0", cores=(0,)) as worker:
        outcome = worker.run(job)          # whatever the candidate does, this returns an Outcome

It assumes nothing about its host: a script, the local measurer and a Ray actor use it in the same way.  It is not
thread-safe.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from searchlab import interpreter
from searchlab.backend import Artifact
from searchlab.errors import MeasureError
from searchlab.measure.job import Job, Outcome
from searchlab.measure.workers.wire import CANCEL, PREPARE_S, READY, Channel, Kind, Reply, Request
from searchlab.targets.cuda_devices import visible_device

__all__ = ["PREPARE_S", "Worker", "wait"]

_BOOT_S = 60.0
_BOOTS = 3
_GRACE_S = 10.0  # the server enforces limits itself; only a hanging one exceeds them by this much
_STOPPED_S = 5.0  # a server that has been stopped (by SIGSTOP) for longer is abandoned
_CANCEL_S = 2.0
_END_S = 1.0
# A server forks for candidates, and threads of a library would not survive a fork.
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}


class Worker:
    """A handle on a server process that measures candidates in forked children.

    The server is started at once, in the background, pinned to `cores` (no cores: not pinned), and replaced when it
    dies, after `recycle_jobs` jobs, or when it holds more than `recycle_bytes`.  A job whose server dies is retried on
    a fresh one; after `attempts` attempts it is quarantined.  `reuse` is the number of candidates that a child of the
    server may measure as long as none fails; with 1 each gets a new child, which costs some milliseconds.  `device` is
    the number of the only GPU that it sees, of those that this process does.
    """

    def __init__(
        self,
        name: str = "worker",
        cores: Sequence[int] = (),
        *,
        attempts: int = 3,
        reuse: int = 100,
        recycle_jobs: int = 10_000,
        recycle_bytes: int = 4 << 30,
        device: int | None = None,
    ) -> None:
        self.name = name
        self._environment = {} if device is None else visible_device(device)
        self.cores = tuple(cores)
        self._attempts, self._reuse = attempts, reuse
        self._recycle = (recycle_jobs, recycle_bytes)
        self._server: _Server | None = None
        self._job: Job | None = None
        self._request: Request | None = None
        self._tried = 0
        self._failed_boots = 0
        self._served = 0
        self._deadline = 0.0
        self._boot()

    # --- one job at a time, waiting for it ----------------------------------------------------------------------------

    def run(self, job: Job) -> Outcome:
        """Builds the job if it holds a program, checks and times it."""
        result = self._wait("run", job)
        assert isinstance(result, Outcome)
        return result

    def build(self, job: Job) -> Artifact | Outcome:
        """The object code of the job's program, or the outcome of the failed build."""
        return job.artifact or self._wait("build", job)

    def close(self) -> None:
        """Ends the server and its children; the worker cannot be used afterwards."""
        self._job = None
        if self._server is not None:
            self._server.end()
            self._server = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait(self, kind: Kind, job: Job) -> Artifact | Outcome:
        self.start(kind, job)
        try:
            while (reply := self.poll()) is None:
                wait([self], 1.0)
        except BaseException:  # also an interrupt: the server must not continue an abandoned job
            self.cancel()
            raise
        assert reply.result is not None
        return reply.result

    # --- the same without waiting, for one thread that serves several workers -----------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a job is in progress."""
        return self._job is not None

    @property
    def ready(self) -> bool:
        """Whether the server has finished starting."""
        return self._server is not None and self._server.ready

    @property
    def pid(self) -> int | None:
        """The process id of the server."""
        return None if self._server is None else self._server.process.pid

    def fileno(self) -> int:
        """The descriptor that is readable when `poll` has something to do; it changes with every restart."""
        if self._server is None:
            self._boot()
        assert self._server is not None
        return self._server.channel.fileno()

    def start(self, kind: Kind, job: Job, cores: Sequence[int] | None = None) -> None:
        """Starts to build or run a job, on different cores than before if `cores` is given."""
        if self.busy:
            raise MeasureError(f"{self.name} is busy with job '{self._job.id if self._job else ''}'")
        if job.workload.operator.path.startswith("__main__:"):
            raise MeasureError(
                f"{job.workload.name}: worker processes cannot import an operator that is defined in a script or"
                " notebook; move it to a module"
            )
        if cores is not None:
            self.cores = tuple(cores)
        self._request = Request.of(kind, job, self.cores)
        self._job, self._tried = job, 1
        self._send()

    def poll(self) -> Reply | None:
        """The reply to the job, once it is done; also restarts a dead server, so call it when `fileno` is readable."""
        if self._server is None:
            return None
        try:
            while (message := self._server.channel.receive()) is not None:
                if message != READY:
                    return self._finished(message)
                self._server.ready, self._failed_boots = True, 0
                self._set_deadline()
        except EOFError:
            return self._lost("died")
        if self._server.ready and not self.busy:
            return None
        if self._server.stopped_s() > _STOPPED_S:
            return self._lost(f"was stopped for more than {_STOPPED_S:g} s")
        return self._lost("did not answer") if time.monotonic() > self._deadline else None

    def cancel(self) -> None:
        """Stops and discards the current job, if any."""
        if self._job is None:
            return
        self._tried = self._attempts  # no retry if its server dies now
        until = time.monotonic() + _CANCEL_S
        try:
            if self._server is not None and self._server.ready:
                self._server.channel.send(CANCEL, _CANCEL_S)
                while self.busy and time.monotonic() < until:
                    wait([self], 0.1)
                    self.poll()
        except OSError:
            pass
        finally:
            if self.busy:
                self._drop()
            self._job = self._request = None

    # --- the server ---------------------------------------------------------------------------------------------------

    def _boot(self) -> None:
        self._server = _Server(self.cores, self._reuse, self._recycle[1], self._environment)
        self._served = 0
        self._set_deadline()

    def _drop(self) -> None:
        if self._server is not None:
            self._server.end()
            self._server = None

    def _set_deadline(self) -> None:
        boot = 0.0 if self.ready else _BOOT_S
        limits = self._job.limits if self._job is not None else None
        work = limits.build_s + limits.run_s + PREPARE_S + _GRACE_S if limits is not None else 0.0
        self._deadline = time.monotonic() + boot + work

    def _send(self) -> None:
        for _ in range(_BOOTS):
            if self._server is None:
                self._boot()
            assert self._server is not None
            try:
                self._server.channel.send(self._request, _GRACE_S if self._server.ready else _BOOT_S)
            except OSError:  # it died while idle, or was stopped
                self._died_idle()
                continue
            self._set_deadline()
            return
        raise MeasureError(f"{self.name}: its server dies again and again")

    def _died_idle(self) -> None:
        if self._server is not None and not self._server.ready:
            self._boot_failed("died")
        self._drop()

    def _finished(self, reply: Reply) -> Reply:
        reply = replace(reply, attempts=self._tried)
        if isinstance(reply.result, Outcome):
            reply = replace(reply, result=replace(self._signed(reply.result), build_s=reply.build_s))
        self._job = self._request = None
        self._served += 1
        if self._served >= self._recycle[0] or reply.resident > self._recycle[1]:
            self._drop()
            self._boot()
        return reply

    def _signed(self, outcome: Outcome) -> Outcome:
        assert self._job is not None
        return replace(outcome, id=self._job.id, worker=self.name, cores=self.cores, attempts=self._tried)

    def _lost(self, how: str) -> Reply | None:
        """Handles the loss of the server: retries the job on another one, up to the limit of attempts."""
        assert self._server is not None
        was_ready, reason = self._server.ready, self._server.obituary(how)
        if not was_ready:
            self._boot_failed(how)
        self._drop()
        if self._job is None:
            self._boot()
            return None
        if was_ready and self._tried >= self._attempts:
            self._boot()
            error = f"given up: its worker was lost {self._tried} times; the last time {reason}"
            outcome = self._signed(Outcome(self._job.id, "quarantined", error=error))
            self._job = self._request = None
            return Reply(outcome, attempts=self._tried)
        self._tried += was_ready
        self._send()
        return None

    def _boot_failed(self, how: str) -> None:
        assert self._server is not None
        self._failed_boots += 1
        if self._failed_boots >= _BOOTS:
            reason = self._server.obituary(how)
            self._drop()
            self._job = None
            raise MeasureError(f"{self.name} cannot start: {reason}")


class _Server:
    """The process, the connection to it, and its stderr."""

    def __init__(
        self, cores: tuple[int, ...], reuse: int, most_bytes: int, environment: Mapping[str, str] | None = None
    ) -> None:
        ours, theirs = socket.socketpair()
        self.ready = False
        self._stopped_since: float | None = None
        self.channel = Channel(ours)
        self.stderr = os.memfd_create("stderr")
        pin = f"os.sched_setaffinity(0, {set(cores)}); " if cores else ""
        call = f"main({theirs.fileno()}, {os.getpid()}, {reuse}, {most_bytes})"
        code = f"import os; {pin}from searchlab.measure.workers.server import main; {call}"
        with theirs:
            self.process = subprocess.Popen(
                interpreter.command("-c", code),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self.stderr,
                pass_fds=(theirs.fileno(),),
                env={**interpreter.environment(), **_ONE_THREAD, **(environment or {})},
                process_group=0,  # Ctrl-C goes to the host, which decides
            )
        self._finalizer = weakref.finalize(self, _kill, self.process, self.channel, self.stderr, os.getpid())

    def end(self) -> None:
        """Ends the process and its children."""
        self.channel.close()
        if self.ready:  # it exits by itself and ends its children instead of leaving them to init
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_S)
        self._finalizer()

    def stopped_s(self) -> float:
        """How long it has been observed in the stopped state, as by SIGSTOP; a traced process does not count."""
        now = time.monotonic()
        try:
            state = Path(f"/proc/{self.process.pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except FileNotFoundError:  # it has ended, which the connection will report
            state = b""
        self._stopped_since = (self._stopped_since or now) if state == b"T" else None
        return now - self._stopped_since if self._stopped_since is not None else 0.0

    def obituary(self, how: str) -> str:
        """Why the server has ended, as observed from outside."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(0.5)
        code = self.process.poll()
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        elif code:
            how = f"exited with code {code}"
        lines = os.pread(self.stderr, 1 << 16, 0).decode(errors="replace").strip().splitlines()
        return f"the server process {how}" + (f": {lines[-1]}" if lines else "")


def _kill(process: subprocess.Popen[bytes], channel: Channel, stderr: int, owner: int) -> None:
    channel.close()
    os.close(stderr)
    if os.getpid() != owner:  # a fork of the host must not end the host's servers
        return
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait(workers: Sequence[Worker], timeout_s: float) -> list[Worker]:
    """Waits until `poll` of at least one worker has something to do; returns these workers."""
    found = select.poll()
    files = {worker.fileno(): worker for worker in workers}
    for file in files:
        found.register(file, select.POLLIN)
    return [files[file] for file, _ in found.poll(max(0, round(timeout_s * 1000)))]
