"""Makes a run folder ready: manifest first, then what is needed to repeat the run; refuses a folder of another run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from searchlab.errors import ConfigError
from searchlab.lab.cells import drift, manifest
from searchlab.lab.config import dump
from searchlab.lab.records.record import now
from searchlab.lab.run import files
from searchlab.lab.run.folder import Folder, Manifest
from searchlab.lab.run.machine import machine, revision, versions

if TYPE_CHECKING:
    from searchlab.lab.config import Experiment


def prepare(folder: Folder, experiment: Experiment, source: str, command: str, allow_drift: bool) -> Manifest:
    """Writes what is missing; an experiment that differs from the folder's is refused unless that is allowed."""
    data = {**manifest(experiment), "started": now()}
    changed = True
    if folder.exists:
        before = folder.manifest_data()
        difference = drift({"cells": [c for c in before["cells"] if not c.get("kept")]}, data)
        if difference and not allow_drift:
            raise ConfigError(
                f"{folder.path} holds another experiment: {difference}; --allow-drift adds the new cells and keeps the"
                " old ones, --fresh starts anew, -o names another folder"
            )
        changed, data = bool(difference), _joined(before, data)
    if changed:
        folder.write_manifest(data)
    if changed or not folder.experiment.exists() or not folder.source.exists():
        files.replace_text(folder.experiment, dump(experiment))
        files.replace_text(folder.source, source or dump(experiment))
    found = Manifest.of(data)
    _card(folder, command, allow_drift or all(cell.recorded for cell in found.cells))
    return found


def _joined(before: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a changed experiment: its cells, and after them the earlier ones, which are kept."""
    now = {c["id"] for c in data["cells"]}
    kept = [{**c, "kept": True} for c in before["cells"] if c["id"] not in now]
    return {**data, "started": before["started"], "cells": [*data["cells"], *kept]}


def _card(folder: Folder, command: str, anywhere: bool) -> None:
    """Writes what the run is made on, once; times of two machines do not mix."""
    card = folder.card()
    if card is None:
        card = {"command": command, "revision": revision(), "versions": versions(), "machine": machine()}
        files.replace_json(folder.machine, card)
    elif not anywhere and card["machine"]["fingerprint"] != (here := machine())["fingerprint"]:
        raise ConfigError(
            f"{folder.path} was begun on another machine ({card['machine']['processor']}, this one is"
            f" {here['processor']}), and times of two machines cannot be compared; -o names another folder,"
            " --allow-drift mixes them"
        )
