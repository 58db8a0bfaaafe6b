"""Several runs pooled into one set of cells with unambiguous names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from searchlab.lab.results import CellResult, Run

_SETTINGS = {"target", "budget", "measure"}  # of a run; what else decides a cell is among its factors


def pooled(runs: Sequence[Run]) -> tuple[CellResult, ...]:
    """The cells of all runs, each once.

    If several runs hold a cell (same entry and id), the finished one is taken.  Entries of the same name that differ,
    because of their components, settings or machine, or because they have different cells for the same task and seed,
    are qualified by the names of their runs.
    """
    clashing = _clashing(runs)
    found: dict[tuple[str, str], CellResult] = {}
    for run in runs:
        for cell in run.cells:
            name = f"{cell.entry} ({run.name})" if cell.entry in clashing else cell.entry
            known = found.get((name, cell.id))
            if known is None or (known.state != "done" and cell.state == "done"):
                found[name, cell.id] = replace(cell, cell=replace(cell.cell, entry=name))
    return tuple(found.values())


def machine_key(run: Run) -> str:
    """The identity of a machine: the target's fingerprint and, if recorded, the host."""
    return " ".join(str(run.machine[k]) for k in ("fingerprint", "cpu", "host") if run.machine.get(k))


def _clashing(runs: Sequence[Run]) -> set[str]:
    """Ambiguous names."""
    meanings: dict[str, set[str]] = {}
    ids: dict[tuple[str, str, int], set[str]] = {}
    for run in runs:
        where = "" if run.recorded else machine_key(run)
        settings = {} if run.experiment is None else run.experiment.model_dump(mode="json", include=_SETTINGS)
        for c in run.cells:
            meaning = json.dumps([where, settings, dict(c.factors)], sort_keys=True, default=str)
            meanings.setdefault(c.entry, set()).add(meaning)
            ids.setdefault((c.entry, c.task, c.seed), set()).add(c.id)
    several = {entry for entry, found in meanings.items() if len(found) > 1}
    return several | {entry for (entry, _, _), found in ids.items() if len(found) > 1}
