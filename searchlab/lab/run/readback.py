"""Reads a run folder, finished or not, back into values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from searchlab import jsonfile
from searchlab.errors import ConfigError
from searchlab.lab.config.experiment import Experiment
from searchlab.lab.config.restoring import restored
from searchlab.lab.config.text.including import read_file
from searchlab.lab.config.text.tree import unplaced
from searchlab.lab.folder.folder import Folder
from searchlab.lab.results import Run
from searchlab.lab.run.runoff.runoff import noise, results, run_offs


def load(folder: str | os.PathLike[str]) -> Run:
    """The run in a folder; cells that have not begun are in state waiting."""
    place = Folder(Path(folder))
    manifest = place.manifest()
    races = run_offs(place)
    cells = tuple(results(place, races).values())
    card = place.card() or {}
    experiment, config = _experiment(place)
    versions = dict(card.get("versions", {}))
    if card.get("revision"):
        versions["revision"] = card["revision"]
    return Run(
        name=manifest.name,
        cells=cells,
        experiment=experiment,
        config=config,
        source=place.written(),
        command=card.get("command", ""),
        machine=card.get("machine", {}),
        versions=versions,
        started=manifest.started,
        recorded=all(cell.recorded for cell in manifest.cells),
        folder=str(folder),
        noise=noise(races, cells),
    )


def _experiment(place: Folder) -> tuple[Experiment | None, dict[str, Any]]:
    """The experiment, and its file as plain data; components are not resolved, as they need not be installed here."""
    if not place.experiment.exists():
        return None, {}
    remedy = f"delete it, and `searchlab run EXPERIMENT.yaml -o {place.path}` writes it again"
    try:
        data = unplaced(read_file(place.experiment))
        return restored(data), data
    except ConfigError as e:
        raise ConfigError(f"{e}; {remedy}") from None
    except ValidationError as e:
        raise ConfigError(f"{place.experiment} is damaged: {jsonfile.reason(e)}; {remedy}") from None
