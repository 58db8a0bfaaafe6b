"""Functions run in forked children: whatever happens to the child, its parent learns about it and goes on."""

from __future__ import annotations

import ctypes
import fcntl
import gc
import math
import os
import pickle
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from searchlab.measure.fault import Board, Fault
from searchlab.measure.wire import CANCEL, Channel

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_PIPE_SIZE = 1031  # F_SETPIPE_SZ
_PIPE_BYTES = 1 << 20
_TURN_S = 1.0  # how often a parent makes sure that its own host still lives
_OUTPUT_BYTES = 400


class HostGone(Exception):
    """Nobody is left to answer to."""


@dataclass(frozen=True)
class Raised:
    """An exception that left the function, in words."""

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


@dataclass(frozen=True)
class Ended:
    """How a child ended: with a value (or an exception), by a signal or exit code, too late, or cancelled."""

    how: Literal["value", "raised", "signal", "exit", "timeout", "cancelled"]
    value: Any
    seconds: float
    fault: Fault
    output: str

    @property
    def crash(self) -> str:
        """What to tell people about a child that was killed or left without an answer."""
        if self.how == "signal":
            text = f"killed by {signal.Signals(self.value).name} (signal {self.value}) while {self.fault.phase}"
            parts = [text, self.fault.where()]
        else:
            parts = [f"exited with code {self.value} while {self.fault.phase}"]
        return "; ".join(p for p in (*parts, self.output) if p)


class Forks:
    """Runs functions in children of this process, which must have a single thread, while watching its own host."""

    def __init__(self, channel: Channel, host: int) -> None:
        self.board = Board()
        self._channel, self._host, self._self = channel, host, os.getpid()
        self._output = os.memfd_create("output")
        self._libc = ctypes.CDLL(None)

    def receive(self) -> Any:
        """The next message of the host, waiting for it; raises HostGone when there will be none."""
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
        while True:
            try:
                message = self._channel.receive()
            except EOFError:
                raise HostGone from None
            if message is not None:
                return message
            if os.getppid() != self._host:
                raise HostGone
            poller.poll(_TURN_S * 1000)

    def call(self, function: Callable[[], Any], limit_s: float) -> Ended:
        """What became of `function()` in a child that has `limit_s` seconds."""
        self.board.clear()
        os.ftruncate(self._output, 0)
        start = time.monotonic()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            self._live(function, reading, writing)
        os.close(writing)
        try:
            found = self._await(child, reading, start + limit_s)
        finally:
            os.close(reading)
        how, value = found
        return Ended(how, value, time.monotonic() - start, self.board.read(), self._said())

    # --- the parent ---------------------------------------------------------------------------------------------------

    def _await(self, child: int, reading: int, deadline: float) -> tuple[Any, Any]:
        try:
            data = self._collect(reading, deadline)
            status = None if isinstance(data, str) else _reap(child, deadline)
        except BaseException:
            _kill(child)
            raise
        if isinstance(data, str) or status is None:
            _kill(child)
            return (data if isinstance(data, str) else "timeout"), None
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            return "signal", -code
        try:
            value = pickle.loads(data)
        except Exception:
            return "exit", code
        return ("raised" if isinstance(value, Raised) else "value"), value

    def _collect(self, reading: int, deadline: float) -> bytearray | str:
        """All that the child wrote until it closed its end, or why that cannot be waited for."""
        data = bytearray()
        poller = select.poll()
        poller.register(reading, select.POLLIN)
        poller.register(self._channel, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0:
            ready = dict(poller.poll(math.ceil(min(left, _TURN_S) * 1000)))
            if self._channel.fileno() in ready and self._cancelled():
                return "cancelled"
            if reading in ready:
                piece = os.read(reading, _PIPE_BYTES)
                if not piece:
                    return data
                data += piece
            elif os.getppid() != self._host:
                raise HostGone
        return "timeout"

    def _cancelled(self) -> bool:
        try:
            return self._channel.receive() == CANCEL
        except EOFError:
            raise HostGone from None

    def _said(self) -> str:
        size = os.fstat(self._output).st_size
        text = os.pread(self._output, _OUTPUT_BYTES, max(0, size - _OUTPUT_BYTES)).decode(errors="replace")
        return " ".join(text.split())

    # --- the child ----------------------------------------------------------------------------------------------------

    def _live(self, function: Callable[[], Any], reading: int, writing: int) -> None:
        """Never returns: the code of the parent around the fork must not run twice."""
        try:
            self._libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != self._self:  # the parent died before it could take this child along
                os._exit(1)
            os.close(reading)
            self._channel.close()
            os.dup2(self._output, 1)
            os.dup2(self._output, 2)
            gc.disable()
            self.board.install()
            data = _outcome(function)
            self.board.enter("answering")
            _write(writing, data)
        finally:
            os._exit(0)


def _outcome(function: Callable[[], Any]) -> bytes:
    try:
        return pickle.dumps(function(), protocol=pickle.HIGHEST_PROTOCOL)
    except BaseException as error:
        return pickle.dumps(Raised(type(error).__name__, str(error)))


def _write(file: int, data: bytes) -> None:
    if len(data) > _PIPE_BYTES:
        fcntl.fcntl(file, _PIPE_SIZE, _PIPE_BYTES)
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _reap(child: int, deadline: float) -> int | None:
    """The status of a child that is about to end, or None if it does not."""
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        if time.monotonic() > deadline:
            return None
        time.sleep(100e-6)


def _kill(child: int) -> None:
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError):  # it has ended and was reaped
        pass
