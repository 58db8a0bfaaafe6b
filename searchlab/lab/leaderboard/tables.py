"""The recorded tables that runs searched, for scores against random search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from searchlab.errors import SearchLabError
from searchlab.lab.results import Floats, Run


def recorded_tables(runs: Sequence[Run]) -> tuple[dict[str, Floats], tuple[str, ...]]:
    """The times of all rows of the tables by task, and the tasks whose tables are not here or hold something else."""
    from searchlab.measure.tables import load

    found: dict[str, Floats] = {}
    missing: dict[str, None] = {}
    for run in runs:
        optima = {c.task: c.optimum_s for c in run.cells if c.optimum_s is not None}
        references = {_label(r): r for r in _references(run.config)}
        for task, optimum in optima.items():
            try:
                table = load(references.get(task, task))
            except (SearchLabError, OSError):
                missing[task] = None
                continue
            if table.best == optimum:
                found[task] = table.seconds
            else:
                missing[task] = None
    return found, tuple(missing)


def _references(config: Mapping[str, Any]) -> list[str]:
    """Names and paths of tables in a resolved experiment."""
    workloads = config.get("workloads")
    items = workloads if isinstance(workloads, list) else []
    return [str(w["table"]) for w in items if isinstance(w, Mapping) and "table" in w]


def _label(reference: str) -> str:
    """What the task of a table is called."""
    from pathlib import Path

    from searchlab.measure.tables import shipped

    if reference in shipped():
        return reference
    return Path(reference).name.partition(".json")[0].removesuffix(".csv.xz")
