"""Several runs as one set of cells in which a name means one thing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from searchlab.lab.results import CellResult, Run

_SETTINGS = {"target", "budget", "measure"}  # of a run; what else decides a cell is among its factors


def pooled(runs: Sequence[Run]) -> tuple[CellResult, ...]:
    """The cells of all runs, each once.

    A cell that several runs hold (by entry and id) is taken where it is finished.  Entries of the same name that are
    not the same thing, because they were made of something else, with other settings, on another machine, or have
    other cells in the same place, get the names of their runs.
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
    """What makes two machines the same: the target's fingerprint and the host, as far as the run says."""
    return " ".join(str(run.machine[k]) for k in ("fingerprint", "cpu", "host") if run.machine.get(k))


def _clashing(runs: Sequence[Run]) -> set[str]:
    """Names that mean several things."""
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
