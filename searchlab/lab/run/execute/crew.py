"""The worker pool that runs cells: each process has a socket, writes to the run's log, and never outlives the run."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Self

from searchlab import interpreter
from searchlab.lab.folder.folder import Folder
from searchlab.lab.manifest import Cell
from searchlab.lab.results import CellResult
from searchlab.lab.run.execute.cell import run_cell
from searchlab.lab.run.execute.events import CellEnded, Event, Word
from searchlab.lab.run.execute.measurers import Measurers
from searchlab.lab.run.processes import how_it_ended

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_STARTS = 3  # attempts to start a process for a cell before it counts as failed
_START_S = 180.0  # until a silent process counts as lost
_PATIENCE_S = 20.0  # for a process to close its resources, such as a local Ray


@dataclass(eq=False)
class _Member:
    """One process, the cores it may use, and the cell it works on."""

    process: subprocess.Popen[bytes]
    connection: Connection
    cores: Sequence[int]
    late: float  # when a process that has sent nothing yet counts as lost
    cell: Cell | None = None
    began: bool = False  # whether it has sent anything yet

    def hangs(self) -> bool:
        """Whether it has missed its deadline to start."""
        return not self.began and time.monotonic() > self.late

    def send(self, message: Cell | Word) -> None:
        with suppress(OSError):  # a dead process is noticed when its connection is read
            self.connection.send(message)


class Crew:
    """A pool of processes that run cells concurrently, one for each item of `cores`, the cores it may use.

    `lock` is the descriptor of the folder's lock, which they share with their parent.  With `single`, libraries are
    restricted to one thread: the results of concurrent cells must not depend on the number of cells.
    """

    def __init__(self, folder: Folder, cores: Sequence[Sequence[int]], lock: int, single: bool) -> None:
        self._folder, self._lock, self._single = folder, lock, single
        self._cores = list(cores)
        self._members: list[_Member] = []
        self._lost_starts: Counter[str] = Counter()  # by cell
        self._hopeless = False  # a cell was given up because its processes did not start, and none has started since
        self._stopping = False
        self._unstarted: list[CellEnded] = []
        self.size = len(cores)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        patience_s = _PATIENCE_S if error is None else 0.0
        for member in self._members:
            member.send(Word.LEAVE)
        for member in self._members:
            with suppress(subprocess.TimeoutExpired):
                member.process.wait(patience_s)
            member.process.kill()
            member.process.wait()
            member.connection.close()
        self._members = []

    @property
    def busy(self) -> int:
        """The number of running cells; one without a process counts until its failure is reported."""
        return sum(m.cell is not None for m in self._members) + len(self._unstarted)

    def start(self, cell: Cell) -> None:
        """Gives a cell to an idle member; there must be one, or room for one."""
        try:
            member = next((m for m in self._members if m.cell is None), None) or self._hire()
        except OSError as e:  # out of processes, memory or file descriptors
            self._unstarted.append(self._failed(cell, f"no process could be started for it: {e.strerror or e}"))
            return
        member.cell = cell
        member.send(cell)

    def stop(self) -> None:
        """Asks all members to end their cells after the measurement in flight."""
        self._stopping = True
        for member in self._members:
            member.send(Word.STOP)

    def events(self, seconds: float) -> Iterator[Event]:
        """The events of members within `seconds`; if a member died or did not start, the failure of its cell."""
        while self._unstarted:
            yield self._unstarted.pop()
        for member in self._members:
            if member.hangs():
                member.process.kill()  # closes its connection
        ready = wait([m.connection for m in self._members], seconds)
        for member in [m for m in self._members if m.connection in ready]:
            try:
                event: Event = member.connection.recv()
            except (EOFError, OSError):
                yield from self._lost(member)
                continue
            member.began, self._hopeless = True, False
            if isinstance(event, CellEnded):
                member.cell = None
            yield event

    def _lost(self, member: _Member) -> Iterator[Event]:
        self._members.remove(member)
        self._cores.append(member.cores)
        code = member.process.wait()
        member.connection.close()
        cell = member.cell
        if cell is None or (self._stopping and not member.began):
            return
        how = f"ended {how_it_ended(code)}"
        if member.began:
            yield self._failed(cell, f"its process {how}")
        else:
            yield from self._not_begun(cell, how)

    def _not_begun(self, cell: Cell, how: str) -> Iterator[Event]:
        """Starts another process for a cell, or gives it up: at once if others were given up and none has started."""
        self._lost_starts[cell.id] += 1
        if not self._hopeless and self._lost_starts[cell.id] < _STARTS:
            self.start(cell)
            return
        self._hopeless = True
        tries = self._lost_starts.pop(cell.id)
        started = f"{tries} processes were started for it, and the last one" if tries > 1 else "its process"
        yield self._failed(cell, f"{started} {how} before it began")

    def _failed(self, cell: Cell, why: str) -> CellEnded:
        error = f"{why}; {self._folder.log} may say why"
        so_far = self._folder.result(cell) or CellResult.waiting(cell)
        self._folder.write_result(replace(so_far, state="failed", error=error))
        return CellEnded(cell.id, "failed", len(so_far.seconds), error=error)

    def _hire(self) -> _Member:
        ours, theirs = Pipe()
        cores = self._cores[0]
        words = [str(theirs.fileno()), str(self._folder.path), ",".join(map(str, cores))]
        command = interpreter.command("-m", "searchlab.lab.run.execute.cell_worker", *words)
        with self._folder.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(), self._lock),
                env=self._environment(),
                start_new_session=True,  # Ctrl-C goes to the run, which stops them
            )
        theirs.close()
        self._cores.pop(0)
        member = _Member(process, ours, cores, time.monotonic() + _START_S)
        self._members.append(member)
        return member

    def _environment(self) -> dict[str, str]:
        return interpreter.environment() | (dict.fromkeys(_THREADS, "1") if self._single else {})


class Here:
    """Runs cells in this process, one at a time: for debuggers, and for components registered only in this process."""

    size = 1

    def __init__(self, folder: Folder, stop: threading.Event) -> None:
        self._folder, self._stop = folder, stop
        self._measurers = Measurers()
        self._cell: Cell | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._measurers.close()

    @property
    def busy(self) -> int:
        """1 if a cell is waiting to be run, else 0."""
        return int(self._cell is not None)

    def start(self, cell: Cell) -> None:
        """Accepts a cell, which runs on the next call of `events`."""
        self._cell = cell

    def stop(self) -> None:
        """Does nothing: these cells check the same flag as the run."""

    def events(self, seconds: float) -> Iterator[Event]:
        """Runs the cell, then yields its events."""
        if (cell := self._cell) is not None:
            said: list[Event] = []
            run_cell(cell, self._folder, self._stop, said.append, self._measurers)
            self._cell = None
            yield from said
