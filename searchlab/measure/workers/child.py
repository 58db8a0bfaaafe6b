"""Forked children for work that may crash: the parent learns how a child ended, and survives."""

from __future__ import annotations

import ctypes
import fcntl
import math
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from searchlab.measure.workers.fault import Fault, FaultPage
from searchlab.measure.workers.guard import resident_bytes
from searchlab.measure.workers.wire import CANCEL, Channel

Ask = Callable[[Any], Any]
Work = Callable[[Any, Ask], Any]
How = Literal["value", "raised", "refused", "signal", "exit", "timeout", "cancelled"]

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_TURN_S = 1.0  # how often a parent checks that its own host is alive
_SAID_BYTES = 400


class HostGone(Exception):
    """The host process is gone."""


@dataclass(frozen=True)
class Question:
    """A value that a child asks its parent to review before it continues."""

    value: Any


@dataclass(frozen=True)
class ParentAnswer:
    """The parent's verdict: continue with a value, or stop for a reason."""

    value: Any = None
    refused: Any = None


@dataclass(frozen=True)
class ChildResult:
    """The result of a task."""

    value: Any


@dataclass(frozen=True)
class Raised:
    """An exception raised by a task, as text."""

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


@dataclass(frozen=True)
class ChildEnded:
    """How a task ended: with a value or an exception, refused, by a signal or exit code, by timeout, or cancelled."""

    how: How
    value: Any
    seconds: float
    fault: Fault
    said: str

    @property
    def crash(self) -> str:
        """A message about a child that was killed or exited."""
        if self.how == "signal":
            parts = [f"killed by {_signal_name(self.value)} while {self.fault.phase}", self.fault.where()]
        else:
            parts = [f"its process left with code {self.value} while {self.fault.phase}"]
        return "; ".join(p for p in (*parts, self.said) if p)


class Host:
    """The process that this one serves: its messages, and whether it is alive."""

    def __init__(self, channel: Channel, pid: int) -> None:
        self.channel, self.pid = channel, pid

    def receive(self) -> Any:
        """Waits for its next message; raises HostGone if there will be none."""
        poller = select.poll()
        poller.register(self.channel, select.POLLIN)
        while True:
            try:
                message = self.channel.receive()
            except EOFError:
                raise HostGone from None
            if message is not None:
                return message
            self.check()
            poller.poll(_TURN_S * 1000)

    def check(self) -> None:
        """Raises HostGone if it has died, even if a fork of it keeps the connection open."""
        if os.getppid() != self.pid:
            raise HostGone

    def cancels(self) -> bool:
        """Whether it has just sent a cancellation."""
        try:
            return bool(self.channel.receive() == CANCEL)
        except EOFError:
            raise HostGone from None


class Child:
    """A fork of this process, which must be single-threaded; it executes tasks one after the other.

    `make()` is called in the child and returns the function that executes tasks, which may `ask(value)` the parent.
    """

    def __init__(self, make: Callable[[], Work], host: Host, board: FaultPage) -> None:
        self.tasks = 0
        self._host, self._board = host, board
        self._said = os.memfd_create("said")
        fcntl.fcntl(self._said, fcntl.F_SETFL, os.O_APPEND)
        parent = os.getpid()
        ours, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            self._live(make, Channel(theirs), parent)
        theirs.close()
        self._channel = Channel(ours)

    def call(self, task: Any, limit_s: float, review: Callable[[Any], ParentAnswer] | None = None) -> ChildEnded:
        """Has the child execute a task within `limit_s` seconds; the child is gone unless it returned or raised.

        `review` answers the child's questions; its time does not count against the limit.
        """
        self.tasks += 1
        self._board.clear()
        os.ftruncate(self._said, 0)
        start = time.monotonic()
        dialogue = _Dialogue(self._channel, review, start + limit_s)
        try:
            found = self._converse(task, dialogue)
        except BaseException:  # also an interrupt: no child may be left behind
            self.end()
            raise
        how, value = found if found is not None else self._gone(dialogue.deadline)
        said = self._last_words() if how in ("signal", "exit") else ""
        ended = ChildEnded(how, value, time.monotonic() - start, self._board.read(), said)
        if how not in ("value", "raised"):
            self.end()
        return ended

    @property
    def resident_bytes(self) -> int:
        """The resident memory of the child."""
        return resident_bytes(self._pid)

    def end(self) -> None:
        """Kills the child if it still lives."""
        if self._pid:
            try:
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
            except (ProcessLookupError, ChildProcessError):  # it has ended and was reaped
                pass
            self._pid = 0
            self._channel.close()
            os.close(self._said)

    # --- the parent's side --------------------------------------------------------------------------------------------

    def _converse(self, task: Any, dialogue: _Dialogue) -> tuple[How, Any] | None:
        """How the task ended, by the child's messages or the clock; None if the child closed the connection."""
        if self._host.cancels():  # it may have arrived with the request, in which case poll would not report it
            return "cancelled", None
        try:
            self._channel.send(task)
        except OSError:
            return None
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
        poller.register(self._host.channel, select.POLLIN)
        while (left := dialogue.deadline - time.monotonic()) > 0:
            ready = dict(poller.poll(math.ceil(min(left, _TURN_S) * 1000)))
            if self._host.channel.fileno() in ready and self._host.cancels():
                return "cancelled", None
            if self._channel.fileno() in ready:
                try:
                    found = dialogue.hear()
                except Exception:  # end of file, or a message corrupted by a wild write
                    return None
                if found is not None:
                    return found
            else:
                self._host.check()
        return "timeout", None

    def _gone(self, deadline: float) -> tuple[How, Any]:
        """How a child that closed its connection ended."""
        while True:
            found, status = os.waitpid(self._pid, os.WNOHANG)
            if found:
                code = os.waitstatus_to_exitcode(status)
                return ("signal", -code) if code < 0 else ("exit", code)
            if time.monotonic() > deadline:
                return "timeout", None
            time.sleep(100e-6)

    def _last_words(self) -> str:
        size = os.fstat(self._said).st_size
        text = os.pread(self._said, _SAID_BYTES, max(0, size - _SAID_BYTES)).decode(errors="replace")
        return " ".join(text.split())

    # --- the child's side ---------------------------------------------------------------------------------------------

    def _live(self, make: Callable[[], Work], channel: Channel, parent: int) -> None:
        """Serves tasks and never returns: the child must not run the parent's code after the fork."""
        try:
            libc = ctypes.CDLL(None)
            libc.prctl(_DIE_WITH_PARENT, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != parent:  # it died before PR_SET_PDEATHSIG was set
                os._exit(1)
            self._host.channel.close()
            os.dup2(self._said, 1)
            os.dup2(self._said, 2)
            self._board.install()
            work = make()
            while True:
                channel.send(self._do(work, channel, channel.wait()))
        finally:
            os._exit(0)

    def _do(self, work: Work, channel: Channel, task: Any) -> ChildResult | Raised:
        def ask(value: Any) -> Any:
            channel.send(Question(value))
            return channel.wait()

        try:
            return ChildResult(work(task, ask))
        except EOFError:  # the parent is gone
            os._exit(1)
        except BaseException as error:  # a candidate may raise anything, and its parent wants to know
            return Raised(type(error).__name__, str(error))


@dataclass
class _Dialogue:
    """The state of a parent's dialogue with its child."""

    channel: Channel
    review: Callable[[Any], ParentAnswer] | None
    deadline: float

    def hear(self) -> tuple[How, Any] | None:
        """Handles one message of the child; returns how its task ended, if the message says so."""
        message = self.channel.receive()
        if isinstance(message, Question):
            begin = time.monotonic()
            answer = self.review(message.value) if self.review is not None else ParentAnswer()
            if answer.refused is not None:
                return "refused", answer.refused
            self.channel.send(answer.value)
            self.deadline += time.monotonic() - begin
        elif isinstance(message, ChildResult):
            return "value", message.value
        elif isinstance(message, Raised):
            return "raised", message
        return None


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"
