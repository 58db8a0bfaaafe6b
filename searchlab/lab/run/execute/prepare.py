"""Prepares a run folder: the manifest, then everything needed to repeat the run; refuses the folder of another run.

For each cell, the manifest records the version of every component at the time when the cell began.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from searchlab.errors import ConfigError
from searchlab.lab.code import Code, Outdated, changed, codes, outdated
from searchlab.lab.config import dump
from searchlab.lab.folder import atomic
from searchlab.lab.folder.folder import Folder
from searchlab.lab.folder.provenance import machine, revision, versions
from searchlab.lab.manifest import Cell, Drift, Manifest, drift, manifest_data
from searchlab.lab.records.record import now

if TYPE_CHECKING:
    from searchlab.lab.config import Experiment


def prepare(
    folder: Folder, experiment: Experiment, cells: Sequence[Cell], source: str, command: str, allow_drift: bool
) -> Manifest:
    """Writes missing files; refuses a different experiment or changed code unless drift is allowed."""
    data = _manifest(experiment.name, cells)
    before: Mapping[str, Any] = {}
    difference: Drift | bool = True
    if folder.exists:
        before = folder.manifest_data()
        difference = _difference(before, data)
        if not allow_drift:
            seen: Code = before.get("code", {})  # drift that was allowed once is not refused again
            old = code_drift(folder, cells).without(n for n, v in data["code"].items() if seen.get(n) == v)
            _refuse(folder, difference, old)
        data = _joined(folder, before, data)
    if json.loads(json.dumps(data)) != before:
        folder.write_manifest(data)
    if difference or not folder.experiment.exists() or not folder.source.exists():
        atomic.replace_text(folder.experiment, dump(experiment))
        atomic.replace_text(folder.source, source or dump(experiment))
    found = Manifest.of(data)
    _card(folder, command, allow_drift or all(cell.recorded for cell in found.cells))
    return found


def renew(folder: Folder, experiment: Experiment, cells: Sequence[Cell], allow_drift: bool) -> str:
    """Clears results for a fresh start: all of them, or only those of cells whose code has changed since they ran.

    Returns a message that names these cells; empty if all results were cleared.
    """
    try:
        old = code_drift(folder, cells)
        another = _difference(folder.manifest_data(), _manifest(experiment.name, cells))
    except ConfigError:  # an unreadable manifest does not prevent a fresh start
        old, another = Outdated(), None
    if not old or (another and not allow_drift):
        folder.move_aside()
        return ""
    aside = folder.set_aside(old.cells)
    return f"cells that ran an earlier version are run again: {old}; their earlier results are in {aside}"


def code_drift(folder: Folder, cells: Sequence[Cell]) -> Outdated:
    """The cells among `cells` whose code has changed since they began."""
    now = dict(zip((c.id for c in cells), codes(c.config for c in cells), strict=True))
    return outdated_in(folder, now)


def outdated_in(folder: Folder, now: Mapping[str, Code]) -> Outdated:
    """The cells whose code has changed since they began; `now` has the current code by cell id."""
    listed = (c for c in folder.manifest().cells if c.id in now and changed(c.code, now[c.id]))
    ran = (c for c in listed if folder.begun(c))
    return outdated(((c.id, str(c), c.code) for c in ran), now)


def _manifest(name: str, cells: Sequence[Cell]) -> dict[str, Any]:
    data = {**manifest_data(name, cells), "started": now()}
    found = codes(row["config"] for row in data["cells"])
    rows = [{**row, "code": code} for row, code in zip(data["cells"], found, strict=True)]
    return {**data, "cells": rows, "code": {k: v for code in found for k, v in code.items()}}


def _difference(before: Mapping[str, Any], data: Mapping[str, Any]) -> Drift:
    return drift({"cells": [c for c in before["cells"] if not c.get("kept")]}, data)


def _refuse(folder: Folder, difference: Drift, old: Outdated) -> None:
    other_code = f"code that has changed since cells ran: {old}"
    if difference:
        also = f"; it also has results of {other_code}" if old else ""
        raise ConfigError(
            f"{folder.path} holds another experiment: {difference}{also}; --allow-drift adds the new cells and keeps"
            " the old ones, --fresh starts over, -o chooses another folder"
        )
    if old:
        raise ConfigError(
            f"{folder.path} has results of {other_code}; --fresh runs these cells again and moves their results to"
            f" {folder.path}/earlier, --allow-drift keeps their results, and every table and report then says so"
        )


def _joined(folder: Folder, before: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Merges the manifest of a folder with a new one; cells of an earlier experiment are kept, after the new ones.

    Cells that have begun keep their code versions.
    """
    old = {c.id: c for c in Manifest.of(before).cells}

    def code_of(row: Mapping[str, Any]) -> Code:
        cell = old.get(row["id"])
        if cell is None or cell.code == row["code"] or not folder.begun(cell):
            return dict(row["code"])
        return cell.code

    rows = [{**c, "code": code_of(c)} for c in data["cells"]]
    now = {c["id"] for c in rows}
    kept = [{**c, "kept": True} for c in before["cells"] if c["id"] not in now]
    code = {**before.get("code", {}), **data["code"]}
    return {**data, "started": before["started"], "cells": [*rows, *kept], "code": code}


def _card(folder: Folder, command: str, anywhere: bool) -> None:
    """Writes the description of the machine, once; times of two machines must not be mixed."""
    card = folder.card()
    if card is None:
        card = {"command": command, "revision": revision(), "versions": versions(), "machine": machine()}
        atomic.replace_json(folder.machine, card)
    elif not anywhere and card["machine"]["fingerprint"] != (here := machine())["fingerprint"]:
        raise ConfigError(
            f"{folder.path} was started on another machine ({card['machine']['processor']}, this one is"
            f" {here['processor']}), and times of two machines cannot be compared; -o chooses another folder,"
            " --allow-drift mixes them"
        )
