"""The short table that a run ends with: entries, best first."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from rich.markup import escape

from searchlab.cli.output import duration, print_table, table

if TYPE_CHECKING:
    from searchlab.lab.results import CellResult, Run

_MOST_TASKS = 4


def print_standings(run: Run) -> None:
    """Prints how the entries did."""
    tasks = run.tasks if len(run.tasks) <= _MOST_TASKS else ()
    found = table("entry", "score", *tasks, right=("score", *tasks))
    cells: dict[str, list[CellResult]] = defaultdict(list)
    for cell in run.cells:
        if cell.state == "done":
            cells[cell.entry].append(cell)
    scores = {entry: _score(own, _fastest(run)) for entry, own in cells.items()}
    for entry in sorted(cells, key=lambda e: -scores[e]):
        times = [_median(cells[entry], task) for task in tasks]
        found.add_row(escape(entry), f"{scores[entry]:.3f}", *times)
    print_table(found)


def _fastest(run: Run) -> dict[str, float]:
    """The best time of each task that anybody found, or that is known."""
    found: dict[str, float] = defaultdict(lambda: np.inf)
    for cell in run.cells:
        if cell.state == "done":
            found[cell.task] = min(found[cell.task], cell.final_s, cell.optimum_s or np.inf)
    return found


def _score(cells: list[CellResult], fastest: dict[str, float]) -> float:
    """The geometric mean of the share of the best speed; 0 if a cell found nothing."""
    shares = np.array([fastest[c.task] / c.final_s for c in cells])
    return float(np.exp(np.log(shares).mean())) if (shares > 0).all() else 0.0


def _median(cells: list[CellResult], task: str) -> str:
    times = [c.final_s for c in cells if c.task == task]
    middle = float(np.median(times)) if times else np.inf
    return duration(middle) if np.isfinite(middle) else "-"
