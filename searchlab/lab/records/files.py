"""A file of lines that several processes may append to and that survives their crashes.

Writers take the file's lock, repair the torn line of a killed writer, and write whole lines at once.  Readers take the
lock only to determine the length of the file, so that a line being written is not mistaken for a torn one.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from searchlab.errors import RecordError
from searchlab.wholefile import sync_folder

_log = logging.getLogger(__name__)
_CHUNK = 1 << 16


class Appender:
    """Appends lines to a file; `keep` decides whether an unfinished last line stays."""

    def __init__(self, path: Path, keep: Callable[[bytes], bool], fsync: bool = False) -> None:
        self.path = path
        self._keep = keep
        self._fsync = fsync
        self._fd = -1
        self._pid = 0
        self._threads = threading.Lock()

    def write(self, lines: bytes) -> None:
        """Writes all lines or none; once this returns, they survive the death of the process."""
        with self._threads:
            try:
                self._write(lines)
            except OSError as e:
                reason = e.strerror or str(e)
                raise RecordError(f"{self.path}: cannot write: {reason}; files written so far are kept") from e

    def _write(self, lines: bytes) -> None:
        fd = self._open()
        with _locked(fd, fcntl.LOCK_EX):
            end = mend(fd, self.path, self._keep)
            try:
                _write_all(fd, lines)
                if self._fsync:
                    os.fsync(fd)
            except BaseException:
                # Half a line would be repaired later, but whole lines of a failed batch would stay.
                with suppress(OSError):
                    os.ftruncate(fd, end)
                raise

    def _open(self) -> int:
        # A lock belongs to an open file description, so a forked process has to reopen the file; so has every process
        # if the file was deleted, or lines would go to the unlinked file.
        if self._fd >= 0 and (self._pid != os.getpid() or os.fstat(self._fd).st_nlink == 0):
            self.close()
        if self._fd < 0:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._pid = os.getpid()
            if self._fsync:
                sync_folder(self.path.parent)
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def mend(fd: int, path: Path, keep: Callable[[bytes], bool]) -> int:
    """Ends an unfinished last line, or drops it; returns the offset of the next line. Requires the lock."""
    size = os.fstat(fd).st_size
    if size == 0 or os.pread(fd, 1, size - 1) == b"\n":
        return size
    start = _last_line(fd, size)
    if keep(os.pread(fd, size - start, start)):
        _write_all(fd, b"\n")
        return size + 1
    _log.warning("%s: dropped the last %d bytes, an incomplete record", path, size - start)
    os.ftruncate(fd, start)
    return start


def snapshot(path: Path) -> os.stat_result | None:
    """The status of the file while no write is in progress; None if the file does not exist."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise RecordError(f"{path}: cannot read: {e.strerror}") from e
    try:
        with suppress(OSError), _locked(fd, fcntl.LOCK_SH):  # without locks, read the file as it is
            return os.fstat(fd)
        return os.fstat(fd)
    finally:
        os.close(fd)


def lines(path: Path, start: int, end: int) -> Iterator[bytes]:
    """The lines between two offsets, including terminators; only the last may lack one."""
    if start >= end:
        return
    try:
        with path.open("rb", buffering=1 << 20) as file:
            file.seek(start)
            left = end - start
            for line in file:
                if len(line) >= left:
                    if left > 0:
                        yield line[:left]
                    return
                left -= len(line)
                yield line
    except OSError as e:
        raise RecordError(f"{path}: cannot read: {e.strerror}") from e


@contextmanager
def _locked(fd: int, kind: int) -> Iterator[None]:
    fcntl.flock(fd, kind)
    try:
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)


def _write_all(fd: int, data: bytes) -> None:
    written = os.write(fd, data)
    while written < len(data):  # interrupted by a signal, or a nearly full disk
        written += os.write(fd, data[written:])


def _last_line(fd: int, size: int) -> int:
    """The offset of the last line."""
    position = size
    while position > 0:
        start = max(0, position - _CHUNK)
        found = os.pread(fd, position - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        position = start
    return 0
