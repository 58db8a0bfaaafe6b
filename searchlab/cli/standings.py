"""The short table that a run ends with: the entries in order, and their times."""

from __future__ import annotations

import statistics
import textwrap
from typing import TYPE_CHECKING

from rich.markup import escape

from searchlab.cli.output import duration, out, print_table, table

if TYPE_CHECKING:
    from searchlab.lab.leaderboard import Leaderboard
    from searchlab.lab.results import Run

_MOST_TASKS = 4  # columns beyond these are rows of `searchlab status`


def print_standings(run: Run) -> None:
    """Prints how the entries did; nothing if no cell is done."""
    from searchlab.lab.leaderboard import boards
    from searchlab.lab.statistics import ComparisonSettings

    for board in boards([run], ComparisonSettings.of([run])):
        _print(run, board)


def _print(run: Run, board: Leaderboard) -> None:
    from searchlab.lab.leaderboard.sheet_columns import with_interval

    tasks = board.tasks if len(board.tasks) <= _MOST_TASKS else ()
    headings = [_heading(t) for t in tasks]
    found = table("entry", "rank", "score", *headings, right=("rank", "score", *headings))
    for s in board.standings:
        rank = "-" if s.rank is None else str(s.rank)
        found.add_row(escape(s.entry), rank, with_interval(s.score), *(_time(run, s.entry, t) for t in tasks))
    out.print()
    print_table(found)
    if not tasks:
        out.print(f"[dim]times of {len(board.tasks)} tasks: searchlab status {escape(run.folder)}[/]", soft_wrap=True)
    for note in board.notes:
        out.print(f"[dim]note: {escape(note)}[/]", soft_wrap=True)


def _heading(task: str) -> str:
    """A task's label in narrow lines, so that the names of entries have room."""
    name, _, parameters = task.partition("(")
    return escape("\n".join([name, *textwrap.wrap(parameters.rstrip(")"), 20)]))


def _time(run: Run, entry: str, task: str) -> str:
    """The median over seeds of the best times."""
    times = [c.final_s for c in run.cells if c.state == "done" and (c.entry, c.task) == (entry, task)]
    middle = statistics.median(times) if times else float("inf")
    return duration(middle) if middle < float("inf") else "-"
