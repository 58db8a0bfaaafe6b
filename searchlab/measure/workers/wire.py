"""Messages between a worker and its server: length-prefixed pickled values over a socket."""

from __future__ import annotations

import pickle
import select
import socket
import struct
from dataclasses import dataclass
from typing import Any, Literal

from searchlab.backend import Artifact
from searchlab.measure.job import Job, Limits, Outcome
from searchlab.measure.workers.inputs import DataKey
from searchlab.targets import Target

Kind = Literal["build", "run"]
READY = "ready"
CANCEL = "cancel"
PREPARE_S = 300.0  # for the inputs and the reference of a workload, which are not the candidate's fault

_HEADER = struct.Struct("<Q")
_PIECE = 1 << 18


@dataclass(frozen=True)
class Head:
    """The part of a job that a server reads itself; the rest is only forwarded."""

    data: DataKey
    limits: Limits
    target: Target
    built: bool


@dataclass(frozen=True)
class Request:
    """A request to a server, with the cores to use.

    Head and job are pickled separately: an unreadable job (unpickling imports its operator's module) fails alone.
    """

    kind: Kind
    head: bytes
    job: bytes
    cores: tuple[int, ...]

    @staticmethod
    def of(kind: Kind, job: Job, cores: tuple[int, ...]) -> Request:
        """The request to build or run a job."""
        data = DataKey(job.workload, job.seed, job.protocol.check)
        head = Head(data, job.limits, job.target, job.artifact is not None)
        return Request(kind, dumps(head), dumps(job), cores)


@dataclass(frozen=True)
class Reply:
    """The result of a request; None says that it was cancelled.

    `resident` is the server's current memory, `attempts` the number of servers on which the request was tried.
    """

    result: Artifact | Outcome | None
    build_s: float = 0.0
    resident: int = 0
    attempts: int = 1


def dumps(value: Any) -> bytes:
    """The value, pickled."""
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


class Channel:
    """One end of a connection that carries Python values."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._received = bytearray()

    def fileno(self) -> int:
        """The descriptor of the socket, for polling."""
        return self._socket.fileno()

    def send(self, value: Any, timeout_s: float | None = None) -> None:
        """Sends a value; raises OSError if the other end is closed, or does not receive all of it in time."""
        data = dumps(value)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.sendall(_HEADER.pack(len(data)) + data)
        finally:
            self._socket.settimeout(None)

    def receive(self) -> Any:
        """The next value, or None if it has not fully arrived (None is never sent); raises EOFError at the end."""
        while True:
            value = self._take()
            if value is not None:
                return value
            try:
                piece = self._socket.recv(_PIECE, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except OSError as error:
                raise EOFError(str(error)) from None
            if not piece:
                raise EOFError
            self._received += piece

    def wait(self) -> Any:
        """Waits for the next value."""
        while (value := self.receive()) is None:
            select.select([self], [], [])
        return value

    def _take(self) -> Any:
        if len(self._received) < _HEADER.size:
            return None
        end = _HEADER.size + _HEADER.unpack_from(self._received)[0]
        if len(self._received) < end:
            return None
        data = bytes(self._received[_HEADER.size : end])
        del self._received[:end]
        return pickle.loads(data)

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()
