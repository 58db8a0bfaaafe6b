"""Several runs as one set of cells in which a name means one thing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from searchlab.lab.results import CellResult, Run


def pooled(runs: Sequence[Run]) -> tuple[CellResult, ...]:
    """The cells of all runs, each once.

    A cell that several runs hold (by its id) is taken where it is finished.  If two runs have different cells of one
    entry for the same task and seed, they are different things: their names get the name of the run.
    """
    clashing = _clashing(runs)
    found: dict[str, CellResult] = {}
    for run in runs:
        for cell in run.cells:
            known = found.get(cell.id)
            if known is None or (known.state != "done" and cell.state == "done"):
                name = f"{cell.entry} ({run.name})" if cell.entry in clashing else cell.entry
                found[cell.id] = replace(cell, entry=name)
    return tuple(found.values())


def _clashing(runs: Sequence[Run]) -> set[str]:
    """Entries of which two runs have different cells in the same place."""
    ids: dict[tuple[str, str, int], str] = {}
    clashing = set()
    for run in runs:
        for c in run.cells:
            place = (c.entry, c.task, c.seed)
            if ids.setdefault(place, c.id) != c.id:
                clashing.add(c.entry)
    return clashing
