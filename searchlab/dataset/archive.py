"""Data set files: a ZIP archive with a compressed part for each task.

While a data set is recorded, its parts are files in a folder beside it, written one by one; at the end they are packed
into one file, which takes the place of an older one in one step.  What ends a recording costs at most one task.
"""

from __future__ import annotations

import hashlib
import io
import json
import warnings
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

import numpy as np

from searchlab.dataset.stored import STORED_VIEWS, StoredTask
from searchlab.errors import RecordError
from searchlab.search import Task
from searchlab.wholefile import replace_file

FORMAT = 1
_COLUMNS = tuple(f.name for f in fields(StoredTask) if f.name not in ("about", "features"))
# what a damaged part raises, wherever the damage is
_DAMAGE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError)


def part_name(task: Task) -> str:
    """The name of a task's part: the operator, for people, and a hash of the workload and the machine."""
    text = json.dumps([task.workload.spec, task.target.to_dict()], sort_keys=True)
    return f"{task.workload.name}-{hashlib.blake2b(text.encode(), digest_size=6).hexdigest()}.npz"


class Recording:
    """A data set that is being recorded: the file, and beside it a folder `FILE.parts` with a part for each task."""

    def __init__(self, path: Path, resume: bool = False) -> None:
        self.path, self.folder = path, path.with_name(f"{path.name}.parts")
        if not resume and (path.exists() or self.folder.exists()):
            there = path if path.exists() else self.folder
            raise RecordError(f"{there} exists; --resume adds the tasks that it lacks")
        self._packed = dict(_members(path)) if path.exists() else {}

    def has(self, name: str) -> bool:
        """Whether a task with this name of its part is recorded; a damaged part is not, and is removed."""
        if name in self._packed:
            return True
        path = self.folder / name
        if not path.exists():
            return False
        try:
            decoded(path.read_bytes())
        except _DAMAGE as e:
            warnings.warn(f"{path} is damaged and is recorded again: {e}", stacklevel=2)
            path.unlink()
            return False
        return True

    def add(self, name: str, stored: StoredTask) -> None:
        """Writes the part of a task; it is complete, or not there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        raw = encoded(stored)
        replace_file(self.folder / name, lambda file: file.write(raw))

    def pack(self) -> int:
        """Packs all parts into the file, removes the folder, and returns the number of tasks."""
        parts = {p.name: p.read_bytes() for p in sorted(self.folder.glob("*.npz")) if self.has(p.name)}
        whole = {**self._packed, **parts}
        if not whole:
            raise RecordError(f"{self.path}: no task was recorded, so there is nothing to pack")

        def write(file: IO[bytes]) -> None:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                for name in sorted(whole):
                    archive.writestr(zipfile.ZipInfo(name), whole[name])

        replace_file(self.path, write)
        self._packed = whole
        for name in parts:
            (self.folder / name).unlink()
        with suppress(OSError):  # something else is in it, which is not ours to remove
            self.folder.rmdir()
        return len(whole)


def load(path: str | Path, views: Collection[str] = STORED_VIEWS) -> list[StoredTask]:
    """The tasks of a data set with the features of some views; a damaged part is left out, with a warning."""
    path = Path(path)
    found = []
    for name, raw in _members(path):
        try:
            found.append(decoded(raw, views))
        except _DAMAGE as e:
            warnings.warn(f"{path}: the part {name} is damaged and is left out: {e}", stacklevel=2)
    if not found:
        raise RecordError(f"{path} has no task that can be read")
    return found


def encoded(stored: StoredTask) -> bytes:
    """A task as the bytes of a compressed part."""
    columns: dict[str, Any] = {name: getattr(stored, name) for name in _COLUMNS}
    columns["about"] = np.array(json.dumps({"format": FORMAT, **stored.about}))
    raw = io.BytesIO()
    columns |= stored.features
    np.savez_compressed(raw, **columns)
    return raw.getvalue()


def decoded(raw: bytes, views: Collection[str] = STORED_VIEWS) -> StoredTask:
    """The task in a part; ValueError or another error that tells of damage if it is not one."""
    with np.load(io.BytesIO(raw), allow_pickle=False) as arrays:
        about: dict[str, Any] = json.loads(str(arrays["about"]))
        if about.get("format") != FORMAT:
            raise ValueError(f"format {about.get('format')}, where {FORMAT} is known")
        features = {n: arrays[n] for n in arrays.files if n.partition("_")[0] in views and n not in _COLUMNS}
        stored = StoredTask(about, **{n: arrays[n] for n in _COLUMNS}, features=features)
    if {len(getattr(stored, n)) for n in _COLUMNS} != {len(stored)}:
        raise ValueError("its columns differ in length")
    return stored


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """The names and bytes of all parts of a file; those that cannot be read are left out, with a warning."""
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                try:
                    yield name, archive.read(name)
                except _DAMAGE as e:
                    warnings.warn(f"{path}: the part {name} is damaged and is left out: {e}", stacklevel=2)
    except FileNotFoundError:
        raise RecordError(f"there is no data set {path}; `searchlab models record -o {path}` records one") from None
    except (zipfile.BadZipFile, OSError) as e:
        raise RecordError(f"{path} is not a data set of `searchlab models record`: {e}") from None
