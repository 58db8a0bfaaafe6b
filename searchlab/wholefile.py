"""Whole files: written under a temporary name beside their place, then moved there in one step."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO


def replace_file(path: Path, write: Callable[[IO[bytes]], object], sync: bool = True) -> None:
    """Replaces a file by what `write` writes; readers see either the old contents or the new.

    With `sync` the new contents survive a power failure once this returns.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            write(file)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:  # also an interrupt: no file is left beside the place
        with suppress(OSError):
            beside.unlink()
        raise
    if sync:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names of files that were created or renamed in a folder durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
