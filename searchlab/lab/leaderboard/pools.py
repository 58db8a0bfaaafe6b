"""Pools of runs that may be ranked together: measured on one machine, or replayed on the same recorded tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from searchlab.lab.results import Run
from searchlab.lab.statistics.pooling import machine_key


@dataclass(frozen=True)
class RunPool:
    """Runs whose times can be compared, and the machine or tables behind them."""

    where: str
    recorded: bool
    runs: tuple[Run, ...]


def pools(runs: Sequence[Run], together: bool = False) -> tuple[RunPool, ...]:
    """The runs grouped by machine; recorded ones together, as long as the tables agree on their optima.

    With `together`, machines are ignored.
    """
    found: list[list[Run]] = []
    for run in runs:
        fitting = next((pool for pool in found if all(_comparable(run, other, together) for other in pool)), None)
        if fitting is None:
            found.append([run])
        else:
            fitting.append(run)
    return tuple(RunPool(" and ".join(dict.fromkeys(map(_where, p))), p[0].recorded, tuple(p)) for p in found)


def machine_name(run: Run) -> str:
    """A readable name of a machine."""
    named = [str(run.machine[k]) for k in ("model", "cpu", "host") if run.machine.get(k)]
    return ", ".join(dict.fromkeys(named)) or "an unknown machine"


def _where(run: Run) -> str:
    return "recorded tables" if run.recorded else machine_name(run)


def _comparable(run: Run, other: Run, together: bool) -> bool:
    if run.recorded != other.recorded:
        return False
    if run.recorded:
        return _same_tables(run, other)
    return together or machine_key(run) == machine_key(other)


def _same_tables(run: Run, other: Run) -> bool:
    """Whether tables of the same name have the same optimum."""
    one, two = ({c.task: c.optimum_s for c in r.cells if c.optimum_s is not None} for r in (run, other))
    return all(one[task] == two[task] for task in one.keys() & two.keys())
