"""Reads a run folder back as values, finished or not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from searchlab import jsonfile
from searchlab.errors import ConfigError
from searchlab.lab.config.experiment import Claim, ReportSettings
from searchlab.lab.config.text.including import read_file
from searchlab.lab.config.text.tree import plain
from searchlab.lab.folder.file_forms import FileForm
from searchlab.lab.folder.folder import Folder
from searchlab.lab.results import Run
from searchlab.lab.run.runoff.runoff import noise, results, run_offs


def load(folder: str | os.PathLike[str]) -> Run:
    """The run in a folder; cells that have not begun are there as waiting ones."""
    place = Folder(Path(folder))
    manifest = place.manifest()
    races = run_offs(place)
    cells = tuple(results(place, races).values())
    card = place.card() or {}
    versions = dict(card.get("versions", {}))
    if card.get("revision"):
        versions["revision"] = card["revision"]
    return Run(
        name=manifest.name,
        cells=cells,
        config=_config(place),
        source=place.written(),
        command=card.get("command", ""),
        machine=card.get("machine", {}),
        versions=versions,
        started=manifest.started,
        recorded=all(cell.recorded for cell in manifest.cells),
        folder=str(folder),
        noise=noise(races, cells),
    )


def _config(place: Folder) -> dict[str, Any]:
    """The experiment as plain data; its components are not looked at, as they need not be installed here."""
    if not place.experiment.exists():
        return {}
    remedy = f"delete it, and `searchlab run EXPERIMENT.yaml -o {place.path}` writes it again"
    try:
        return jsonfile.parse(json.dumps(plain(read_file(place.experiment))).encode(), ExperimentForm)
    except ConfigError as e:
        raise ConfigError(f"{e}; {remedy}") from None
    except ValueError as e:
        raise ConfigError(f"{place.experiment} is damaged: {e}; {remedy}") from None


class _Network(FileForm):
    name: str


class _Workload(FileForm):
    table: str | None = None
    network: _Network | None = None


class ExperimentForm(FileForm):
    """What is asked of an experiment once it has run."""

    name: str
    workloads: list[str | _Workload]
    report: ReportSettings = ReportSettings()
    expect: tuple[Claim, ...] = ()
