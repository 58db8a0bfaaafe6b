"""What a run shows while it lasts: a live view on terminals, plain lines elsewhere, next to nothing when quiet."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from searchlab.cli.output import cost, err, three_digits
from searchlab.lab.run.execute.events import CellEnded, CellProgress, Doing, Noted
from searchlab.lab.run.execute.observer import Observer
from searchlab.lab.statistics.wording import kept

if TYPE_CHECKING:
    from rich.console import RenderableType

    from searchlab.lab.run.execute.events import Event
    from searchlab.lab.run.execute.run_state import CellRow, RunState

_REFRESH_S = 0.25
_STILL_S = {False: 30.0, True: 2.0}  # between two signs of life of plain lines, by verbosity
_BUSY_S = 3.0  # the same while nothing is measured
_MOST_ROWS = 12


def span(seconds: float) -> str:
    """A length of time as people say it: 45 s, 3 min, 2 h 5 min."""
    if seconds < 100:
        return f"{max(0.0, seconds):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def view(quiet: bool, verbose: bool) -> Observer:
    """The observer that suits the output."""
    if quiet:
        return Errors()
    return Live() if err.is_terminal and not verbose else Lines(verbose)


class Errors(Observer):
    """Says only what went wrong or keeps the run waiting, at once."""

    _last_note = ""  # the same thing is not said twice

    def changed(self, row: CellRow, event: Event, board: RunState) -> None:
        """Shows what is new of a cell."""
        if isinstance(event, CellEnded) and event.state == "failed":
            err.print(f"[bold red]failed:[/] {_name(row)}: {escape(_line(event.error))}", soft_wrap=True)
        elif isinstance(event, Noted):
            self.noted(event.text)

    def noted(self, text: str) -> None:
        """Shows a note, once."""
        if text != self._last_note:
            self._last_note = text
            err.print(f"[yellow]note:[/] {escape(_line(text))}", soft_wrap=True)

    def retried(self, row: CellRow, attempt: int, board: RunState) -> None:
        """Says that a failed cell is tried again."""
        err.print(f"[yellow]retrying:[/] {_name(row)}: {escape(_line(row.error))}", soft_wrap=True)

    def stopping(self) -> None:
        """Says that the run ends soon."""
        err.print("stopping after the measurements in flight; Ctrl-C again stops at once")


class Lines(Errors):
    """One line for each cell that ends, and signs of life of those that take long."""

    def __init__(self, verbose: bool = False) -> None:
        self._still_s = _STILL_S[verbose]
        self._last = time.monotonic()

    def began(self, board: RunState) -> None:
        """Shows what was there already."""
        done, total = board.count("done"), len(board.rows)
        err.print(f"{total} cells{f', {done} of them done before' if done else ''}", soft_wrap=True)

    def changed(self, row: CellRow, event: Event, board: RunState) -> None:
        """Shows what is new of a cell."""
        super().changed(row, event, board)
        if isinstance(event, CellEnded) and event.state != "failed":
            self._last = time.monotonic()
            place = f"[{board.count('done', 'failed')}/{len(board.rows)}]"
            what = "" if event.state == "done" else f" ({event.state})"
            err.print(f"{escape(place)} {_name(row)}: {_found(row, board)}{what}", soft_wrap=True)
        elif isinstance(event, CellProgress) and time.monotonic() - self._last >= self._still_s:
            self._last = time.monotonic()
            trials = f"{row.trials}/{row.cell.trials or '?'} trials"
            err.print(f"  {_name(row)}: {trials}, {_found(row, board)}; {_pace(board)}", soft_wrap=True)
        elif isinstance(event, Doing) and time.monotonic() - self._last >= min(self._still_s, _BUSY_S):
            self._last = time.monotonic()
            err.print(f"  {_name(row)}: {escape(event.text)}", soft_wrap=True)


class Live(Errors):
    """A bar, the cells under way, and the figures of the run; drawn only when something happened."""

    def __init__(self) -> None:
        from rich.live import Live as Area

        # It draws when it is told to: a thread that animates something would need a core while times are taken.
        self._area = Area(console=err, auto_refresh=False, transient=True)
        self._drawn = 0.0

    def began(self, board: RunState) -> None:
        """Shows what was there already."""
        self._area.start()
        self._draw(board)

    def changed(self, row: CellRow, event: Event, board: RunState) -> None:
        """Shows what is new of a cell."""
        super().changed(row, event, board)
        if time.monotonic() - self._drawn >= _REFRESH_S:
            self._draw(board)

    def idle(self, board: RunState) -> None:
        """Draws the time that has passed."""
        if time.monotonic() - self._drawn >= 4 * _REFRESH_S:
            self._draw(board)

    def ended(self) -> None:
        """Clears the live view."""
        self._area.stop()

    def _draw(self, board: RunState) -> None:
        self._drawn = time.monotonic()
        self._area.update(drawing(board), refresh=True)


def drawing(board: RunState) -> RenderableType:
    """The live view of a board."""
    whole = Table.grid(padding=(0, 2))
    ended, total = board.count("done", "failed"), len(board.rows)
    bar = Table.grid(padding=(0, 2))
    bar.add_row(
        ProgressBar(total=max(1, total), completed=ended, width=32), f"[bold]{ended}/{total}[/] cells", _pace(board)
    )
    whole.add_row(bar)
    rows = Table.grid(padding=(0, 2))
    for row in board.running[:_MOST_ROWS]:
        trials = f"{row.trials}/{row.cell.trials}" if row.cell.trials else str(row.trials)
        what = f"[dim]{escape(row.doing)}[/]" if row.doing else _found(row, board)
        rows.add_row(f"[dim]>[/] {_name(row)}", f"[dim]{trials}[/]", what)
    whole.add_row(rows)
    if failures := board.failures:
        named = ", ".join(f"{count} {kind}" for kind, count in failures.most_common())
        whole.add_row(f"[dim]candidates that failed: {escape(named)}[/]")
    return whole


def _name(row: CellRow) -> str:
    cell = row.cell
    return f"[bold]{escape(cell.entry)}[/] [dim]on[/] {escape(cell.task)} [dim]seed {cell.seed}[/]"


def _found(row: CellRow, board: RunState) -> str:
    if row.best_s == float("inf"):
        network = len(row.cell.parts) > 1
        if row.state == "running":
            return "not every task has a program yet" if network else "nothing worked yet"
        return "a task has no working program" if network else f"none of {row.trials} candidates worked"
    against = board.against(row)
    home = f"; [yellow]{kept(row.taken_s, row.best_s)}[/]" if row.taken_s < row.best_s else ""
    return f"{cost(row.best_s, row.cell.modelled)}{f' [green]{escape(against)}[/]' if against else ''}{home}"


def _pace(board: RunState) -> str:
    rate, eta = board.rate, board.eta_s
    left = "" if eta is None else f", {span(eta)} left"
    return f"[dim]{three_digits(rate)} trials/s{left}[/]" if rate else "[dim]starting[/]"


def _line(text: str) -> str:
    return " ".join(text.split())
