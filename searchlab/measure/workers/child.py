"""Forked children that do work which may kill them: whatever happens to one, its parent learns about it and goes on."""

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
_TURN_S = 1.0  # how often a parent makes sure that its own host still lives
_SAID_BYTES = 400


class HostGone(Exception):
    """Nobody is left to answer to."""


@dataclass(frozen=True)
class Question:
    """Something a child wants its parent to look at before it goes on."""

    value: Any


@dataclass(frozen=True)
class ParentAnswer:
    """The parent's verdict: go on, with a value, or stop, for a reason."""

    value: Any = None
    refused: Any = None


@dataclass(frozen=True)
class ChildResult:
    """The value of a task."""

    value: Any


@dataclass(frozen=True)
class Raised:
    """An exception that left a task, in words."""

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


@dataclass(frozen=True)
class ChildEnded:
    """How a task ended: with a value or an exception, refused, by a signal or exit code, too late, or cancelled."""

    how: How
    value: Any
    seconds: float
    fault: Fault
    said: str

    @property
    def crash(self) -> str:
        """A message about a child that was killed or went away."""
        if self.how == "signal":
            parts = [f"killed by {_signal_name(self.value)} while {self.fault.phase}", self.fault.where()]
        else:
            parts = [f"its process left with code {self.value} while {self.fault.phase}"]
        return "; ".join(p for p in (*parts, self.said) if p)


class Host:
    """The process that this one works for: its messages, and whether it is still there."""

    def __init__(self, channel: Channel, pid: int) -> None:
        self.channel, self.pid = channel, pid

    def receive(self) -> Any:
        """Its next message, waiting for it; raises HostGone when there will be none."""
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
        """Raises HostGone if it died; a fork of it may have kept the connection open."""
        if os.getppid() != self.pid:
            raise HostGone

    def cancels(self) -> bool:
        """Whether it has just sent that it is not interested any more."""
        try:
            return bool(self.channel.receive() == CANCEL)
        except EOFError:
            raise HostGone from None


class Child:
    """A fork of this process, which must have a single thread, that works through tasks one after the other.

    `make()` is called in the child and gives the function that does tasks; it may `ask(value)` the parent something.
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
        """Has the child do a task within `limit_s` seconds; after anything but a value or exception the child is gone.

        `review` answers what the child asks; the time that takes is not the child's.
        """
        self.tasks += 1
        self._board.clear()
        os.ftruncate(self._said, 0)
        start = time.monotonic()
        dialogue = _Dialogue(self._channel, review, start + limit_s)
        try:
            found = self._converse(task, dialogue)
        except BaseException:  # also an interrupt: whoever leaves here leaves no child behind
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
        """The memory that the child occupies."""
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
        """How the task ends, as far as the child or the clock can tell; None if the child fell silent."""
        if self._host.cancels():  # it may have come along with the request, and then no poll would ever tell
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
                except Exception:  # the end of file, or rubbish that a wild write has made of a message
                    return None
                if found is not None:
                    return found
            else:
                self._host.check()
        return "timeout", None

    def _gone(self, deadline: float) -> tuple[How, Any]:
        """How a child that is silent ended."""
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
        """Never returns: what the parent does after the fork must not be done twice."""
        try:
            libc = ctypes.CDLL(None)
            libc.prctl(_DIE_WITH_PARENT, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != parent:  # it died before it could take this child along
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
    """The state of a parent that listens to its child."""

    channel: Channel
    review: Callable[[Any], ParentAnswer] | None
    deadline: float

    def hear(self) -> tuple[How, Any] | None:
        """Takes one message of the child; how its task ends, if the message says so."""
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
