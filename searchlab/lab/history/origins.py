"""The sources of a history: the record files of a run folder or a path, and a digest of their contents."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from searchlab.errors import ConfigError
from searchlab.lab.folder.folder import Folder
from searchlab.lab.records import RecordStore


@dataclass(frozen=True)
class RecordFile:
    """A file of records; the file of a cell also has the cell's id and settings."""

    file: Path
    cell: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)


def parts(path: str) -> tuple[RecordFile, ...]:
    """The record files of a run folder in the order of its cells, without recorded tables; or the file at the path."""
    place = Path(path)
    if place.is_dir():
        return _of_run(place)
    if not place.is_file():
        raise ConfigError(f"{path}: no such run folder or file of records; `searchlab run` makes run folders")
    if place.suffix != ".jsonl":
        raise ConfigError(f"{path} is not a file of records; accepted: a run folder, or a file that ends in .jsonl")
    return (RecordFile(place),)


def check(path: str) -> None:
    """Refuses a path without measurements of programs."""
    if not any(record.workload for part in parts(path) for record in RecordStore(part.file).records()):
        raise ConfigError(f"{path} holds no measurements of programs yet; run its experiment first")


def digest(path: str) -> str:
    """Twelve hex digits of the measurements, independent of their location."""
    try:
        return _digest(tuple((p.cell, str(p.file), *_state(p.file)) for p in parts(path)))
    except OSError as e:
        raise ConfigError(f"the history {path} cannot be read: {e.strerror or e}") from None


def _of_run(place: Path) -> tuple[RecordFile, ...]:
    folder = Folder(place)
    cells = [cell for cell in folder.manifest().cells if cell.builds]
    return tuple(RecordFile(file, c.id, c.config) for c in cells if (file := folder.records_path(c.id)).is_file())


def _state(file: Path) -> tuple[int, int, int]:
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


@lru_cache(maxsize=64)
def _digest(files: tuple[tuple[str, str, int, int, int], ...]) -> str:
    """The cached digest: unmodified files are not read again for every combination of an experiment."""
    found = hashlib.sha256()
    for cell, file, *_ in files:
        content = Path(file).read_bytes()
        found.update(f"{cell} {len(content)}\n".encode() + content)
    return found.hexdigest()[:12]
