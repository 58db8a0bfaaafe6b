"""The recorded tables that runs searched, for scores against random search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from searchlab.errors import SearchLabError
from searchlab.lab.results import Floats, Run


def recorded_tables(runs: Sequence[Run]) -> tuple[dict[str, Floats], tuple[str, ...]]:
    """The times of all rows of the tables by task, and the tasks whose tables are not here or hold something else."""
    from searchlab.measure.recorded.tables import load

    found: dict[str, Floats] = {}
    missing: dict[str, None] = {}
    for run in runs:
        optima = {c.task: c.optimum_s for c in run.cells if c.optimum_s is not None}
        references = {_label(r): r for r in _references(run.config)}
        networks = _networks(run.config)
        for task, optimum in optima.items():
            if task in networks:  # no row of any table is one
                continue
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
    return [str(w["table"]) for w in _workloads(config) if "table" in w]


def _networks(config: Mapping[str, Any]) -> set[str]:
    return {str(w["network"]["name"]) for w in _workloads(config) if "network" in w}


def _workloads(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those that are more than a text."""
    workloads = config.get("workloads")
    return [w for w in (workloads if isinstance(workloads, list) else []) if isinstance(w, Mapping)]


def _label(reference: str) -> str:
    """What the task of a table is called."""
    from pathlib import Path

    from searchlab.measure.recorded.tables import shipped

    if reference in shipped():
        return reference
    return Path(reference).name.partition(".json")[0].removesuffix(".csv.xz")
