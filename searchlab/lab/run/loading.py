"""Reads a run folder back as values, finished or not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from searchlab.lab.results import Run
from searchlab.lab.run import files
from searchlab.lab.run.folder import Folder
from searchlab.lab.run.runoff import noise, results, run_offs


def load(folder: str | os.PathLike[str]) -> Run:
    """The run in a folder; cells that have not begun are there as waiting ones."""
    place = Folder(Path(folder))
    manifest = place.manifest()
    races = run_offs(place)
    cells = tuple(results(place, races).values())
    card: dict[str, Any] = files.read_json(place.machine) or {}
    versions = dict(card.get("versions", {}))
    if card.get("revision"):
        versions["revision"] = card["revision"]
    return Run(
        name=manifest.name,
        cells=cells,
        config=_config(place),
        source=files.read_text(place.source),
        command=card.get("command", ""),
        machine=card.get("machine", {}),
        versions=versions,
        started=manifest.started,
        recorded=all(cell.recorded for cell in manifest.cells),
        folder=str(folder),
        noise=noise(races, cells),
    )


def _config(place: Folder) -> dict[str, Any]:
    import yaml

    found = yaml.safe_load(files.read_text(place.experiment))
    return found if isinstance(found, dict) else {}
