"""The recorded tables that runs searched, for scores against random search."""

from __future__ import annotations

from collections.abc import Sequence

from searchlab.errors import SearchLabError
from searchlab.lab.results import Floats, Run
from searchlab.measure.recorded.tables import load


def recorded_tables(runs: Sequence[Run]) -> tuple[dict[str, Floats], tuple[str, ...]]:
    """The times of all rows of the tables by task, and the tasks whose tables are not here or hold something else."""
    found: dict[str, Floats] = {}
    missing: dict[str, None] = {}
    for run in runs:
        # a network is in no table, and its optimum is the sum of several
        searched = {c.task: c for c in run.cells if c.optimum_s is not None and not c.cell.parts}
        for task, cell in searched.items():
            try:
                table = load(cell.cell.table or task)
            except (SearchLabError, OSError):
                missing[task] = None
                continue
            if table.best == cell.optimum_s:
                found[task] = table.seconds
            else:
                missing[task] = None
    return found, tuple(missing)
