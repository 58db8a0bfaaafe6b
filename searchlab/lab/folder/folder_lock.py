"""Exclusive access to a run folder: a lock that the processes of a run share, released when the last of them ends."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from searchlab.errors import ConfigError

_PATIENCE_S = 5.0  # the processes of a killed run notice it within moments
_POLL_S = 0.05


class FolderLock:
    """Locks a run folder; processes that write into it inherit `fd`, and the lock lasts as long as any of them."""

    def __init__(self, path: Path, patience_s: float = _PATIENCE_S) -> None:
        self.path, self._patience_s = path, patience_s
        self.fd = -1

    def __enter__(self) -> Self:
        self.fd = _opened(self.path)
        end = time.monotonic() + self._patience_s
        while not _take(self.fd):
            if time.monotonic() >= end:
                pid = os.pread(self.fd, 20, 0).decode(errors="replace").strip() or "?"
                self._close()
                folder = self.path.parent
                raise ConfigError(
                    f"{folder} is being run by process {pid}; `searchlab status {folder} --watch` shows its progress"
                )
            time.sleep(_POLL_S)
        with suppress(OSError):  # on a full disk the lock still holds, but its owner is not recorded
            os.ftruncate(self.fd, 0)
            os.pwrite(self.fd, str(os.getpid()).encode(), 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        os.close(self.fd)
        self.fd = -1


def _opened(path: Path) -> int:
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        raise ConfigError(f"{folder} is a file, but a run needs a folder; choose one with -o") from None
    except OSError as e:
        raise ConfigError(f"{folder} cannot be written: {e.strerror or e}; choose another folder with -o") from None


def owner(path: Path) -> int | None:
    """The process that currently runs in a folder; None if there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if _take(fd, fcntl.LOCK_SH):
            return None
        text = os.pread(fd, 20, 0).decode(errors="replace").strip()
        return int(text) if text.isdecimal() else 0
    finally:
        os.close(fd)


def _take(fd: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
