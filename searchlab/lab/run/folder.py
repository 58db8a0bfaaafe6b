"""The folder of a run: what is where in it, written so that no moment leaves it unusable.

    runs/<name>/
      manifest.json        the cells, in order, with their resolved settings; written first
      experiment.yaml      the experiment, resolved
      source.yaml          the experiment as it was written
      machine.json         machine, versions, revision, command line of the first start
      records/<cell>.jsonl every measurement of a cell, in order
      cells/<cell>.json    what a cell gave, replaced as a whole
      runoffs/<hash>.json  times of what all cells of a task found, side by side
      log.txt              everything that happened

Each cell has a file of records of its own, so that records are the same however many cells run side by side.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from searchlab.errors import ConfigError
from searchlab.lab.cells import FORMAT
from searchlab.lab.records import Store
from searchlab.lab.results import CellResult
from searchlab.lab.run import cellfile, files

LOG_FORMAT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


@dataclass(frozen=True)
class Entry:
    """A cell as the manifest has it; `kept` cells belong to an earlier form of the experiment and are not run."""

    id: str
    entry: str
    task: str
    seed: int
    factors: Mapping[str, str]
    config: Mapping[str, Any]
    table: str | None = None
    tables: Sequence[str] = ()
    kept: bool = False

    @property
    def trials(self) -> int:
        """Its budget; 0 where only time limits it."""
        return int(self.config["budget"]["trials"] or 0) * len(self.parts)

    @property
    def recorded(self) -> bool:
        """Whether it searches recorded tables."""
        return self.table is not None or bool(self.tables)

    @cached_property
    def parts(self) -> tuple[Entry, ...]:
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
    """What a run consists of."""

    name: str
    started: str
    cells: tuple[Entry, ...]

    @staticmethod
    def of(data: Mapping[str, Any]) -> Manifest:
        """The manifest that plain data describes (see `searchlab.lab.cells.manifest`)."""
        return Manifest(data["name"], data["started"], tuple(Entry(**cell) for cell in data["cells"]))


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

    # --- the manifest -------------------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether a run has begun here."""
        return (self.path / "manifest.json").exists()

    def manifest(self) -> Manifest:
        """The manifest; a folder without one is no run."""
        try:
            return Manifest.of(self.manifest_data())
        except (KeyError, TypeError) as e:
            raise ConfigError(f"{self.path}/manifest.json is damaged: {e}") from None

    def manifest_data(self) -> dict[str, Any]:
        """The manifest as it is written."""
        data = files.read_json(self.path / "manifest.json")
        if not isinstance(data, dict):
            raise ConfigError(f"{self.path} is no run folder: it has no manifest.json; `searchlab run` makes one")
        if (data.get("format"), data.get("version")) != (FORMAT, 1):
            raise ConfigError(f"{self.path}/manifest.json is no manifest of version 1, which this version reads")
        return data

    def write_manifest(self, data: Mapping[str, Any]) -> None:
        """Writes a manifest from plain data."""
        files.replace_json(self.path / "manifest.json", data)

    # --- cells --------------------------------------------------------------------------------------------------------

    def records_path(self, cell: str) -> Path:
        return self.path / "records" / f"{cell}.jsonl"

    def records(self, cell: str, fsync: bool = False) -> Store:
        """The measurements of a cell."""
        return Store(self.records_path(cell), fsync)

    def result(self, cell: str) -> CellResult | None:
        """What a cell gave so far; None if it has not begun or its file cannot be trusted."""
        return cellfile.from_json(files.read_json(self.path / "cells" / f"{cell}.json"))

    def write_result(self, result: CellResult, sync: bool = True) -> None:
        files.replace_json(self.path / "cells" / f"{result.id}.json", cellfile.to_json(result), sync)

    def results(self) -> Iterator[CellResult]:
        """All cells in the order of the manifest."""
        for cell in self.manifest().cells:
            yield self.result(cell.id) or cell.waiting()

    def move_aside(self) -> Path:
        """Makes place for a new run; the old folder stays beside it."""
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.old-{number}")).exists():
            number += 1
        os.rename(self.path, aside)
        return aside
