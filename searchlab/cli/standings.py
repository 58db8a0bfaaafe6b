"""What a run ends with: a short table of the entries in order, and for each task what there is to take home."""

from __future__ import annotations

import statistics
import textwrap
from typing import TYPE_CHECKING

from rich.markup import escape

from searchlab.bench import DEFAULT
from searchlab.cli.output import cost, out, print_table, table

if TYPE_CHECKING:
    from searchlab.lab.leaderboard import Leaderboard
    from searchlab.lab.results import Run

OVER_DEFAULT, OVER_LIBRARY = "over default", "over library"
_MOST_TASKS = 4  # columns beyond these are rows of `searchlab status`


def print_standings(run: Run) -> None:
    """Prints how the entries did, and what to take home; nothing if no cell is done."""
    from searchlab.lab.leaderboard import boards
    from searchlab.lab.statistics import ComparisonSettings

    for board in boards([run], ComparisonSettings.of([run])):
        _print(run, board)
    _print_taken(run)


def _print(run: Run, board: Leaderboard) -> None:
    from searchlab.lab.leaderboard.sheet_columns import with_interval

    tasks = board.tasks if len(board.tasks) <= _MOST_TASKS else ()
    headings = [_heading(t) for t in tasks]
    against = [n for n in (OVER_DEFAULT, OVER_LIBRARY) if any(_speed_up(run, s.entry, n) for s in board.standings)]
    found = table("entry", "rank", "score", *against, *headings, right=("rank", "score", *against, *headings))
    for s in board.standings:
        rank = "-" if s.rank is None else str(s.rank)
        ratios = (_speed_up(run, s.entry, n) or "-" for n in against)
        found.add_row(escape(s.entry), rank, with_interval(s.score), *ratios, *(_time(run, s.entry, t) for t in tasks))
    out.print()
    print_table(found)
    if against:
        means = "speed-up over the default schedule, and over the best library of each task; geometric means"
        out.print(f"[dim]{' and '.join(against)}: {means}[/]", soft_wrap=True)
    if not tasks:
        out.print(f"[dim]times of {len(board.tasks)} tasks: searchlab status {escape(run.folder)}[/]", soft_wrap=True)
    for note in board.notes:
        out.print(f"[dim]note: {escape(note)}[/]", soft_wrap=True)


def _speed_up(run: Run, entry: str, over: str) -> str:
    """The speed-up of what an entry found over the default schedule or the best library, as a geometric mean."""
    found = []
    for c in run.cells:
        if c.state == "done" and c.entry == entry and c.final_s < float("inf"):
            others = [s for name, s in c.baselines.items() if (name == DEFAULT) == (over == OVER_DEFAULT)]
            found += [min(others) / c.final_s] if others else []
    return f"{statistics.geometric_mean(found):.2f}x" if found else ""


def _print_taken(run: Run) -> None:
    """The best program of every task, whose it is, and how far it is ahead."""
    from searchlab.lab.results import to_take
    from searchlab.lab.statistics.wording import ahead, kept

    if run.recorded:
        return
    found = table("to take home", "time", "ahead of others", "found by", right=("time",))
    notes = []
    for task in run.tasks:
        best = to_take(c for c in run.cells if c.task == task)
        if best is None or best.best is None:
            continue
        own = best.best.origin == "search"
        others = {name: s for name, s in best.baselines.items() if own or name != DEFAULT}
        who = f"{escape(best.entry)} [dim]seed {best.seed}[/]" if own else "default schedule"
        found.add_row(escape(task), cost(best.taken_s, best.cell.modelled), ahead(best.taken_s, others) or "-", who)
        notes += [(task, kept(best.taken_s, best.final_s))] if not own else []
        parts = [p.best.origin for p in best.best.parts]
        if count := parts.count("default"):
            notes.append((task, f"default schedule kept for {count} of {len(parts)} tasks, where it was faster"))
    if found.row_count:
        out.print()
        print_table(found)
    for task, text in notes:
        out.print(f"[yellow]{escape(task)}:[/] {text}", soft_wrap=True)


def _heading(task: str) -> str:
    """A task's label in narrow lines, so that the names of entries have room."""
    name, _, parameters = task.partition("(")
    return escape("\n".join([name, *textwrap.wrap(parameters.rstrip(")"), 20)]))


def _time(run: Run, entry: str, task: str) -> str:
    """The median over seeds of the best times."""
    done = [c for c in run.cells if c.state == "done" and (c.entry, c.task) == (entry, task)]
    middle = statistics.median(c.final_s for c in done) if done else float("inf")
    return cost(middle, done[0].cell.modelled) if middle < float("inf") else "-"
