"""`searchlab replay`: whether the searches of a run are reproducible with the times they recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from searchlab.cli.output import AsCsv, AsJson, form, kept, out, print_rows
from searchlab.cli.run_options import EntryOption, RunArgument, TaskOption

if TYPE_CHECKING:
    from searchlab.lab.replay import ReplayedCell


def replay_command(
    run: RunArgument,
    task: TaskOption = None,
    entry: EntryOption = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Repeat the searches of a run with the times it recorded, and check that they propose the same candidates.

    Nothing is measured and nothing is written. Exit code 1 if a cell departs from its records.
    """
    from searchlab.lab.replay import replay

    wanted = form(as_json, as_csv)
    found: list[ReplayedCell] = []
    cells = kept(replay(run, task, entry), found)
    if wanted:
        print_rows(map(_replayed, cells), wanted)
    else:
        for r in cells:
            _print_replayed(r)
        out.print(f"\n{sum(r.ok for r in found)} of {len(found)} cells are reproducible")
    if not all(r.ok for r in found):
        raise typer.Exit(1)


def _replayed(r: ReplayedCell) -> dict[str, Any]:
    named = {"cell": r.cell.id, "entry": r.cell.entry, "task": r.cell.task, "seed": r.cell.seed}
    return named | {"trials": r.trials, "same": r.same, "departure": r.departure}


def _print_replayed(r: ReplayedCell) -> None:
    from rich.markup import escape

    mark = f"[green]same[/]    {r.same} trials" if r.ok else f"[red]departs[/] after {r.same} of {r.trials} trials"
    name = f"[bold]{escape(r.cell.entry)}[/] on {escape(r.cell.task)}, seed {r.cell.seed}"
    out.print(f"{mark}  {name}", soft_wrap=True)
    if not r.ok:
        out.print(f"        {escape(r.departure)}", soft_wrap=True)
