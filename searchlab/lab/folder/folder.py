"""The folder of a run: its layout, and writes that never leave it in an unusable state.

    runs/<name>/
      manifest.json        the cells, in order, with their resolved settings; written first
      experiment.yaml      the experiment, resolved
      source.yaml          the experiment as it was written
      machine.json         machine, versions, revision, command line of the first start
      records/<cell>.jsonl every measurement of a cell, in order
      cells/<cell>.json    the result of a cell, replaced atomically
      runoffs/<hash>.json  interleaved times of the programs that all cells of a task found
      earlier/<n>/         records/ and cells/ of cells that ran earlier code and were run again
      log.txt              everything that happened

Each cell has its own records file, so that records do not depend on the number of concurrent cells.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from searchlab import jsonfile
from searchlab.errors import ConfigError
from searchlab.lab.code import changed
from searchlab.lab.folder import atomic, cellfile
from searchlab.lab.folder.file_forms import CardForm, CellFile, FileForm, ManifestForm
from searchlab.lab.manifest import FORMAT, Cell, Manifest
from searchlab.lab.records import RecordStore
from searchlab.lab.results import CellResult

_log = logging.getLogger(__name__)
_NO_MANIFEST = "put back a copy of it, or give `searchlab run --fresh` the experiment's YAML file to start over"
_NO_CARD = "it says which machine took the times; delete it if that was this one, and `searchlab run` writes it again"
LOG_FORMAT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


@dataclass(frozen=True)
class Folder:
    """A run folder; creating the object writes nothing."""

    path: Path

    @property
    def lock(self) -> Path:
        """The file that a run locks while it works in the folder."""
        return self.path / ".lock"

    @property
    def log(self) -> Path:
        """The log of all runs in the folder."""
        return self.path / "log.txt"

    @property
    def experiment(self) -> Path:
        """The experiment, resolved."""
        return self.path / "experiment.yaml"

    @property
    def source(self) -> Path:
        """The experiment as it was written."""
        return self.path / "source.yaml"

    @property
    def machine(self) -> Path:
        """The file that describes the machine and software of the run."""
        return self.path / "machine.json"

    def written(self) -> str:
        """The text of the experiment as it was written; empty if unknown."""
        remedy = f"delete it, and `searchlab run EXPERIMENT.yaml -o {self.path}` writes it again"
        return atomic.read_text(self.source, remedy)

    def card(self) -> dict[str, Any] | None:
        """The machine and software of the run; None before they are known."""
        return atomic.read_json(self.machine, CardForm, _NO_CARD)

    # --- the manifest -------------------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether a run has begun here."""
        return self._manifest.exists()

    @property
    def _manifest(self) -> Path:
        return self.path / "manifest.json"

    def manifest(self) -> Manifest:
        """The manifest; refuses a folder without one, which is not a run folder."""
        data = self.manifest_data()
        try:
            return Manifest.of(data)
        except ValidationError as e:
            raise ConfigError(f"{self._manifest} is damaged: {jsonfile.reason(e)}; {_NO_MANIFEST}") from None

    def manifest_data(self) -> dict[str, Any]:
        """The manifest as stored, as plain data."""
        path = self._manifest
        data = atomic.read_json(path, FileForm, _NO_MANIFEST)
        if data is None:
            raise ConfigError(f"{self.path} is not a run folder: it has no manifest.json; `searchlab run` makes one")
        if (data.get("format"), data.get("version")) != (FORMAT, 1):
            raise ConfigError(f"{path} is not a manifest of version 1, the version that is supported")
        atomic.read_json(path, ManifestForm, _NO_MANIFEST)
        return data

    def write_manifest(self, data: Mapping[str, Any]) -> None:
        """Writes a manifest from plain data."""
        atomic.replace_json(self._manifest, data)

    # --- cells --------------------------------------------------------------------------------------------------------

    def records_path(self, cell: str) -> Path:
        """The file with the measurements of a cell."""
        return self.path / "records" / f"{cell}.jsonl"

    def records(self, cell: str, fsync: bool = False) -> RecordStore:
        """The measurements of a cell."""
        return RecordStore(self.records_path(cell), fsync)

    def result(self, cell: Cell) -> CellResult | None:
        """The result of a cell so far; None if it has not begun or its file is damaged."""
        path = self.path / "cells" / f"{cell.id}.json"
        data = atomic.known_json(path, CellFile, f"`searchlab run {self.path}` runs the cell again from its records")
        if data is not None and data["id"] != cell.id:
            _log.warning("%s holds the result of cell %s and is left out", path, data["id"])
            return None
        return None if data is None else cellfile.from_json(data, cell)

    def write_result(self, result: CellResult, sync: bool = True) -> None:
        """Replaces the stored result of a cell."""
        atomic.replace_json(self.path / "cells" / f"{result.id}.json", cellfile.to_json(result), sync)

    def results(self) -> Iterator[CellResult]:
        """The results of all cells in the order of the manifest."""
        manifest = self.manifest()
        for cell in manifest.cells:
            found = self.result(cell) or CellResult.waiting(cell)
            yield replace(found, earlier=changed(cell.code, manifest.code))

    def begun(self, cell: Cell) -> bool:
        """Whether a cell has measurements that the next run keeps; an unfinished table is searched from the start."""
        result = self.result(cell)
        if result is not None and (result.state == "done" or (len(result.seconds) and not cell.recorded)):
            return True
        records = self.records_path(cell.id)
        return not cell.recorded and records.exists() and records.stat().st_size > 0

    def set_aside(self, cells: Iterable[str]) -> Path:
        """Moves the files of these cells to a subfolder, so that the cells can be run again."""
        aside = _numbered(self.path / "earlier", "")
        for cell in cells:
            for file in (self.records_path(cell), self.path / "cells" / f"{cell}.json"):
                if file.exists():
                    (aside / file.parent.name).mkdir(parents=True, exist_ok=True)
                    os.rename(file, aside / file.parent.name / file.name)
        return aside

    def move_aside(self) -> Path:
        """Renames the folder to make room for a new run."""
        aside = _numbered(self.path.parent, f"{self.path.name}.old-")
        os.rename(self.path, aside)
        return aside


def _numbered(folder: Path, name: str) -> Path:
    """The path of a name with the first number not yet used in a folder."""
    number = 1
    while (found := folder / f"{name}{number}").exists():
        number += 1
    return found
