"""CoreLock: keeps searchlab processes from timing on the same cores at the same time and disturbing each other.

    with CoreLock([0, 1]) as lock:         # waits until both are free
        ...

There is one lock file per core and user; file locks are released when their process ends, in whatever way.  Devices are
locked in the same way, as another kind.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from searchlab.errors import MeasureError

_POLL_S = 0.02
_logger = logging.getLogger(__name__)


class CoreLock:
    """Locks cores against other processes of the same user, and against other locks of this process.

    `cores` are the eligible ones in order of preference; `count` is the number needed (None: all).  If they are not
    free, `on_wait` is called once with their owners, and after `timeout_s` seconds MeasureError is raised.  `kind` is
    what the numbers count: "core", or a kind of device.
    """

    def __init__(
        self,
        cores: Sequence[int],
        count: int | None = None,
        *,
        timeout_s: float | None = None,
        on_wait: Callable[[str], None] | None = None,
        directory: Path | None = None,
        kind: str = "core",
    ) -> None:
        self._kind = kind
        self.held: tuple[int, ...] = ()
        self._cores, self._count = tuple(cores), len(cores) if count is None else count
        if not 0 <= self._count <= len(self._cores):
            raise MeasureError(f"{self._count} {kind}s are wanted, only {self._names(self._cores)} will do")
        self._timeout_s, self._on_wait = timeout_s, on_wait or _logger.warning
        self._directory = directory
        self._files: list[int] = []
        self._refused: list[int] = []
        _locks.add(self)

    @classmethod
    def all(cls, on_wait: Callable[[str], None] | None = None) -> Self:
        """A lock on all cores that this process may use."""
        return cls(sorted(os.sched_getaffinity(0)), on_wait=on_wait)

    def acquire(self) -> tuple[int, ...]:
        """Waits for the cores and returns them."""
        if self.held:
            raise MeasureError(f"this lock already holds {self._names(self.held)}")
        directory = _prepared(self._directory or runtime_directory())
        begin, told = time.monotonic(), False
        while not self._try(directory):
            owners = self._owners(directory)
            if self._timeout_s is not None and time.monotonic() - begin >= self._timeout_s:
                raise MeasureError(f"waited {self._timeout_s:g} s for {self._kind}s to measure on: {owners}")
            if not told:
                self._on_wait(f"waiting for {self._kind}s to measure on: {owners}")
                told = True
            time.sleep(_POLL_S)
        return self.held

    def release(self) -> None:
        """Releases the cores."""
        for file in self._files:
            os.close(file)  # its content matters only while it is locked
        self._files, self.held = [], ()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _try(self, directory: Path) -> bool:
        """Takes all cores or none, so that two processes never deadlock."""
        taken: list[int] = []
        self._refused = []
        for core in self._cores:
            if len(taken) == self._count:
                break
            file = os.open(self._path(directory, core), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._files.append(file)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._files.pop())
                self._refused.append(core)
                continue
            os.ftruncate(file, 0)
            os.pwrite(file, str(os.getpid()).encode(), 0)
            taken.append(core)
        if len(taken) < self._count:
            self.release()
            return False
        self.held = tuple(taken)
        return True

    def _owners(self, directory: Path) -> str:
        found: dict[str, list[int]] = {}
        for core in self._refused:
            with suppress(OSError):
                pid = self._path(directory, core).read_text() or "?"
                owner = "this process" if pid == str(os.getpid()) else f"process {pid}"
                found.setdefault(owner, []).append(core)
        return "; ".join(f"{owner} measures on {self._names(cores)}" for owner, cores in found.items())

    def _path(self, directory: Path, number: int) -> Path:
        return directory / f"{self._kind}-{number}.lock"

    def _names(self, numbers: Sequence[int]) -> str:
        return f"{self._kind}{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers))}"


def runtime_directory() -> Path:
    """The directory that processes of one user share."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    return Path(given) / "searchlab" if given else Path(tempfile.gettempdir()) / f"searchlab-{os.getuid()}"


def _prepared(directory: Path) -> Path:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise MeasureError(f"{directory} belongs to somebody else; set XDG_RUNTIME_DIR to a folder of your own")
    return directory


# A fork inherits the locks of its parent and would keep them alive; closing its copies does not affect the parent's.
_locks: weakref.WeakSet[CoreLock] = weakref.WeakSet()


def _forget() -> None:
    for lock in list(_locks):
        lock.release()


os.register_at_fork(after_in_child=_forget)
