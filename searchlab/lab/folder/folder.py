"""The folder of a run: what is where in it, written so that no moment leaves it unusable.

    runs/<name>/
      manifest.json        the cells, in order, with their resolved settings; written first
      experiment.yaml      the experiment, resolved
      source.yaml          the experiment as it was written
      machine.json         machine, versions, revision, command line of the first start
      records/<cell>.jsonl every measurement of a cell, in order
      cells/<cell>.json    what a cell gave, replaced as a whole
      runoffs/<hash>.json  times of what all cells of a task found, side by side
      earlier/<n>/         records/ and cells/ of cells that ran earlier code and were run again
      log.txt              everything that happened

Each cell has a file of records of its own, so that records are the same however many cells run side by side.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from searchlab.errors import ConfigError
from searchlab.lab.cells import FORMAT
from searchlab.lab.code import Code, changed
from searchlab.lab.folder import atomic, cellfile
from searchlab.lab.folder.file_forms import CardForm, CellFile, FileForm, ManifestForm
from searchlab.lab.records import RecordStore
from searchlab.lab.results import CellResult

_log = logging.getLogger(__name__)
_NO_MANIFEST = "put back a copy of it, or give `searchlab run --fresh` the experiment's YAML file to start over"
_NO_CARD = "it says which machine took the times; delete it if that was this one, and `searchlab run` writes it again"
LOG_FORMAT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


@dataclass(frozen=True)
class ManifestCell:
    """A cell as the manifest has it; `kept` cells belong to an earlier form of the experiment and are not run.

    `code` has the versions of its components that it ran with, or will run with, as far as they are known.
    """

    id: str
    entry: str
    task: str
    seed: int
    factors: Mapping[str, str]
    config: Mapping[str, Any]
    table: str | None = None
    tables: Sequence[str] = ()
    kept: bool = False
    code: Code = field(default_factory=dict)

    @staticmethod
    def of(data: Mapping[str, Any]) -> ManifestCell:
        """The cell that plain data describes; what later versions write besides is left out."""
        return ManifestCell(**{f.name: data[f.name] for f in fields(ManifestCell) if f.name in data})

    @property
    def trials(self) -> int:
        """Its budget; 0 where only time limits it."""
        return int(self.config["budget"]["trials"] or 0) * len(self.parts)

    @property
    def recorded(self) -> bool:
        """Whether it searches recorded tables."""
        return self.table is not None or bool(self.tables)

    @cached_property
    def parts(self) -> tuple[ManifestCell, ...]:
        """What it searches, task by task: itself, or the tasks of its network as cells that keep records with it."""
        given = self.config.get("parts")
        if given is None:
            return (self,)
        tables: Sequence[str | None] = self.tables or [None] * len(given)
        settings = {k: v for k, v in self.config.items() if k not in ("network", "parts")}
        return tuple(
            replace(self, task=part["task"], config={**settings, **part}, table=table, tables=())
            for part, table in zip(given, tables, strict=True)
        )

    def waiting(self) -> CellResult:
        """Its result before it has begun."""
        return cellfile.waiting(self.id, self.entry, self.task, self.seed, self.factors)


@dataclass(frozen=True)
class Manifest:
    """What a run consists of; `code` has the latest versions of all components that it has seen."""

    name: str
    started: str
    cells: tuple[ManifestCell, ...]
    code: Code = field(default_factory=dict)

    @staticmethod
    def of(data: Mapping[str, Any]) -> Manifest:
        """The manifest that plain data describes (see `searchlab.lab.cells.manifest`)."""
        return Manifest(data["name"], data["started"], tuple(map(ManifestCell.of, data["cells"])), data.get("code", {}))


@dataclass(frozen=True)
class Folder:
    """A run folder; nothing is written before it is asked for."""

    path: Path

    @property
    def lock(self) -> Path:
        return self.path / ".lock"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def experiment(self) -> Path:
        return self.path / "experiment.yaml"

    @property
    def source(self) -> Path:
        return self.path / "source.yaml"

    @property
    def machine(self) -> Path:
        return self.path / "machine.json"

    def written(self) -> str:
        """The experiment as it was written; nothing where that is not known."""
        remedy = f"delete it, and `searchlab run EXPERIMENT.yaml -o {self.path}` writes it again"
        return atomic.read_text(self.source, remedy)

    def card(self) -> dict[str, Any] | None:
        """What the run was made on and with; None before it is known."""
        return atomic.read_json(self.machine, CardForm, _NO_CARD)

    # --- the manifest -------------------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether a run has begun here."""
        return (self.path / "manifest.json").exists()

    def manifest(self) -> Manifest:
        """The manifest; a folder without one is no run."""
        return Manifest.of(self.manifest_data())

    def manifest_data(self) -> dict[str, Any]:
        """The manifest as it is written."""
        path = self.path / "manifest.json"
        data = atomic.read_json(path, FileForm, _NO_MANIFEST)
        if data is None:
            raise ConfigError(f"{self.path} is not a run folder: it has no manifest.json; `searchlab run` makes one")
        if (data.get("format"), data.get("version")) != (FORMAT, 1):
            raise ConfigError(f"{path} is not a manifest of version 1, the version that is supported")
        atomic.read_json(path, ManifestForm, _NO_MANIFEST)
        return data

    def write_manifest(self, data: Mapping[str, Any]) -> None:
        """Writes a manifest from plain data."""
        atomic.replace_json(self.path / "manifest.json", data)

    # --- cells --------------------------------------------------------------------------------------------------------

    def records_path(self, cell: str) -> Path:
        return self.path / "records" / f"{cell}.jsonl"

    def records(self, cell: str, fsync: bool = False) -> RecordStore:
        """The measurements of a cell."""
        return RecordStore(self.records_path(cell), fsync)

    def result(self, cell: str) -> CellResult | None:
        """What a cell gave so far; None if it has not begun or its file cannot be trusted."""
        path = self.path / "cells" / f"{cell}.json"
        data = atomic.known_json(path, CellFile, f"`searchlab run {self.path}` runs the cell again from its records")
        if data is not None and data["id"] != cell:
            _log.warning("%s holds the result of cell %s and is left out", path, data["id"])
            return None
        return None if data is None else cellfile.from_json(data)

    def write_result(self, result: CellResult, sync: bool = True) -> None:
        atomic.replace_json(self.path / "cells" / f"{result.id}.json", cellfile.to_json(result), sync)

    def results(self) -> Iterator[CellResult]:
        """All cells in the order of the manifest."""
        manifest = self.manifest()
        for cell in manifest.cells:
            found = self.result(cell.id) or cell.waiting()
            yield replace(found, code=cell.code, earlier=changed(cell.code, manifest.code))

    def begun(self, cell: ManifestCell) -> bool:
        """Whether it has measurements that the next run keeps; a table that is not done is searched from its start."""
        result = self.result(cell.id)
        if result is not None and (result.state == "done" or (len(result.seconds) and not cell.recorded)):
            return True
        records = self.records_path(cell.id)
        return not cell.recorded and records.exists() and records.stat().st_size > 0

    def set_aside(self, cells: Iterable[str]) -> Path:
        """Makes place for these cells to be run again; what they gave stays in a folder inside this one."""
        aside = _numbered(self.path / "earlier", "")
        for cell in cells:
            for file in (self.records_path(cell), self.path / "cells" / f"{cell}.json"):
                if file.exists():
                    (aside / file.parent.name).mkdir(parents=True, exist_ok=True)
                    os.rename(file, aside / file.parent.name / file.name)
        return aside

    def move_aside(self) -> Path:
        """Makes place for a new run; the old folder stays beside it."""
        aside = _numbered(self.path.parent, f"{self.path.name}.old-")
        os.rename(self.path, aside)
        return aside


def _numbered(folder: Path, name: str) -> Path:
    """The name with the first number that is free in a folder."""
    number = 1
    while (found := folder / f"{name}{number}").exists():
        number += 1
    return found
