"""`searchlab status`: the progress of a run, from its folder alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from searchlab.cli.output import AsCsv, OutputForm, cost, form, hint, made_of, out, print_rows, print_table, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from searchlab.lab.run.status import Status

_EVERY_S = 1.0
_MARKS = {"done": "green", "failed": "red", "interrupted": "yellow", "running": "cyan", "waiting": "dim"}


def status_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The run folder.")],
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing it until the run is over or Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object (per second with --watch).")] = False,
    as_csv: AsCsv = False,
) -> None:
    """Show the progress of a run: cells done, the best of each combination, failures and their reasons."""
    from searchlab.lab.run.status import status

    wanted = form(as_json, as_csv)
    if not watch:
        _print(status(folder), wanted)
        return
    try:
        _watch(folder, wanted)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _watch(folder: Path, form: OutputForm | None) -> None:
    from searchlab.lab.run.status import status

    if form or not out.is_terminal:
        while True:
            found = status(folder)
            _print(found, form)
            if found.over:
                return
            time.sleep(_EVERY_S)
    from rich.live import Live

    with Live(console=out, auto_refresh=False, transient=True) as area:
        while not (found := status(folder)).over:
            area.update(_drawing(found), refresh=True)
            time.sleep(_EVERY_S)
    _print(found, None)


def _print(found: Status, form: OutputForm | None) -> None:
    if form:
        rows = found.to_json()
        print_rows(rows["rows"] if form is OutputForm.csv else [rows], form)
        return
    print_table(_drawing(found))
    if found.owner is None and not found.complete:
        hint(f"searchlab run {found.folder}      [dim]resumes it[/]")
    elif found.complete:
        hint(f"searchlab report {found.folder}", f"searchlab leaderboard {found.folder}")
    else:
        hint(f"searchlab status {found.folder} --watch")


def _drawing(found: Status) -> RenderableType:
    from rich.console import Group
    from rich.markup import escape

    from searchlab.cli.views import span

    who = "not running" if found.owner is None else f"running as process {found.owner}"
    counts = ", ".join(f"[{_MARKS[s]}]{n} {s}[/]" for s, n in found.states.items() if n)
    left = f"; about {span(found.left_s)} left" if found.left_s is not None else ""
    lines: list[RenderableType] = [
        f"[bold]{escape(found.name)}[/] [dim]({who})[/]",
        f"{found.total} cells: {counts}; {found.trials} trials{left}",
        *([f"[dim]all with {escape(made_of(found.shared))}[/]"] if found.shared else []),
        "",
        _table(found),
    ]
    lines += [f"[yellow]{escape(r.entry)} on {escape(r.task)}:[/] {r.kept}" for r in found.rows if r.kept]
    if found.failures:
        named = ", ".join(f"{n} {kind}" for kind, n in found.failures.items())
        lines += ["", f"candidates that failed: {escape(named)}"]
    lines += [f"[yellow]changed since:[/] {escape(text)}" for text in found.earlier]
    lines += [f"[red]failed:[/] {escape(name)}: {escape(' '.join(error.split()))}" for name, error in found.errors]
    return Group(*lines)


def _table(found: Status) -> Any:
    from rich.markup import escape

    made = table("entry", "task", "done", "trials", "best", "against", right=("done", "trials", "best"))
    for row in found.rows:
        best = cost(row.best_s, row.modelled) if row.best_s is not None else "-"
        made.add_row(
            escape(row.entry), escape(row.task), f"{row.done}/{row.cells}", str(row.trials), best, escape(row.against)
        )
    return made
