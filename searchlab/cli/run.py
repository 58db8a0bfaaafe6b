"""`searchlab run`: runs or resumes an experiment."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from searchlab.cli.output import AsCsv, OutputForm, err, form, hint, made_of, out, print_rows, print_table, table
from searchlab.errors import ConfigError, RecordError, SearchLabError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from searchlab.lab.config import Experiment
    from searchlab.lab.manifest import Cell
    from searchlab.lab.run import RunSummary

_MOST_ERRORS = 10


def run_command(
    what: Annotated[Path, typer.Argument(metavar="EXPERIMENT", help="A YAML file, or a run folder to resume.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings to change: budget.trials=64 seeds=0..4.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("-o", "--output", help="The run folder; runs/NAME if not given.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be run, and exit.")] = False,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh", help="Start over, or rerun only the cells whose code has changed; old results are kept."
        ),
    ] = False,
    allow_drift: Annotated[
        bool, typer.Option("--allow-drift", help="Accept a folder of another experiment or of earlier code.")
    ] = False,
    on_error: Annotated[
        str, typer.Option(help="What to do after a failed cell: continue, stop or retry:N.")
    ] = "continue",
    jobs: Annotated[
        int | None,
        typer.Option("-j", "--jobs", min=0, help="Number of parallel cells; chosen by idle cores if not given."),
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print errors only.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print lines instead of a live view.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the outcome as one JSON object; with --dry-run, the cells.")
    ] = False,
    as_csv: AsCsv = False,
) -> None:
    """Run an experiment: every combination on every workload with every seed.

    Finished cells are skipped and interrupted ones resumed, so the same command may be given again at any time.
    Ctrl-C finishes the measurement in flight; a second one stops at once. Exit code 1 if a cell failed, 130 if
    interrupted.
    """
    from searchlab.lab.cells import cells
    from searchlab.lab.run import OnError, run

    wanted, policy = form(as_json, as_csv), OnError.parse(on_error)
    experiment, source, place = _experiment(what, overrides or [], folder)
    if dry_run:
        _dry_run(cells(experiment), place, jobs, wanted)
        return
    from searchlab.cli.views import view

    observer = view(quiet or wanted is not None, verbose)
    command = shlex.join(["searchlab", *sys.argv[1:]])
    options: dict[str, Any] = {"jobs": jobs, "on_error": policy, "fresh": fresh, "allow_drift": allow_drift}
    try:
        summary = run(experiment, place, source=source, command=command, observer=observer, **options)
    except RecordError as e:
        err.print(f"[bold red]stopped:[/] {e}", markup=True, soft_wrap=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        err.print(f"stopped at once; `searchlab run {shlex.quote(str(place))}` resumes after the last measurement")
        raise typer.Exit(130) from None
    _report(summary, quiet, wanted)
    if not summary.exit_code:
        _whole_models(experiment, summary, quiet or wanted is not None)
    raise typer.Exit(summary.exit_code)


def _experiment(what: Path, overrides: list[str], folder: Path | None) -> tuple[Experiment, str, Path]:
    """The experiment, its text and the folder to run it in; the folder of a run holds all of them."""
    from searchlab.lab.config import load, load_resolved

    if what.is_dir():
        from searchlab.lab.run import Folder

        place = Folder(what)
        place.manifest()
        if folder is not None and folder != what:
            raise ConfigError(f"{what} is a run folder already: leave out -o, or name the experiment's YAML file")
        return load_resolved(place.experiment, overrides), place.written(), what
    experiment = load(what, overrides)
    return experiment, what.read_text(encoding="utf-8"), folder or Path("runs") / experiment.name


# --- before -----------------------------------------------------------------------------------------------------------


def _dry_run(cells: Sequence[Cell], place: Path, jobs: int | None, form: OutputForm | None) -> None:
    from rich.markup import escape

    from searchlab.cli.views import span
    from searchlab.lab.code import Outdated
    from searchlab.lab.manifest import shared
    from searchlab.lab.run import Folder
    from searchlab.lab.run.cores import check, side_by_side
    from searchlab.lab.run.execute.forecast import forecast
    from searchlab.lab.run.execute.prepare import code_drift

    check(cells, jobs)
    folder = Folder(place)
    results = list(folder.results()) if folder.exists else []
    done = {r.id for r in results if r.state == "done"}
    left = [c for c in cells if c.id not in done]
    old = code_drift(folder, cells) if folder.exists else Outdated()
    expected = forecast(left, results, side_by_side(left, jobs))
    if form:
        listed = [_listed(c, c.id in done) for c in cells]
        figures = {"trials": expected.trials, "seconds": expected.seconds, "changed": old.said}
        whole = {"folder": str(place), "cells": listed, **figures}
        print_rows(listed if form is OutputForm.csv else [whole], form)
        return
    print_table(_entries(cells, done))
    if common := shared(c.factors for c in cells):
        out.print(f"all with {escape(made_of(common))}")
    before = f" ({len(done)} done before)" if done else ""
    basis = "a guess: no cell is done yet" if expected.guessed else "estimated from finished cells"
    out.print(f"{len(cells)} cells{before}, {expected.trials} trials to go, in [bold]{place}[/]")
    out.print(f"expected time: about {span(expected.seconds)} [dim]({basis})[/]")
    for text in old.said:
        out.print(f"[yellow]changed since:[/] {escape(text)}", soft_wrap=True)
    out.print()
    hint("the same command without --dry-run")


def _listed(cell: Cell, done: bool) -> dict[str, Any]:
    named = {"id": cell.id, "entry": cell.entry, "task": cell.task, "seed": cell.seed}
    return {**named, "factors": dict(cell.factors), "done": done}


def _entries(cells: Sequence[Cell], done: set[str]) -> Any:
    """Entries with how much there is of each."""
    from rich.markup import escape

    found = table(
        "entry", "tasks", "seeds", "cells", "done", "trials", right=("tasks", "seeds", "cells", "done", "trials")
    )
    for entry in dict.fromkeys(c.entry for c in cells):
        own = [c for c in cells if c.entry == entry]
        tasks, seeds = len({c.task for c in own}), len({c.seed for c in own})
        trials = sum(c.budget.trials or 0 for c in own)
        counts = (tasks, seeds, len(own), sum(c.id in done for c in own), trials or "-")
        found.add_row(escape(entry), *map(str, counts))
    return found


# --- after ------------------------------------------------------------------------------------------------------------


def _report(summary: RunSummary, quiet: bool, form: OutputForm | None) -> None:
    if form:
        failed = [{"cell": e.cell, "error": e.error} for e in summary.failed]
        counts = {"done_before": summary.before, "done": summary.done, "left": summary.left}
        ended = {"failed": failed, "interrupted": summary.interrupted}
        print_rows([{"folder": str(summary.folder), **counts, **ended}], form)
        return
    _errors(summary)
    if quiet:
        return
    from searchlab.lab.run import load

    if summary.before + summary.done:
        from searchlab.cli.standings import print_standings

        print_standings(load(summary.folder))
    _next(summary)


def _whole_models(experiment: Experiment, summary: RunSummary, quiet: bool) -> None:
    """Times the models that the experiment names by their graphs, unless nothing has changed since they were timed."""
    from searchlab.lab.config.subjects import is_model

    if not any(map(is_model, experiment.workloads)):
        return
    from searchlab.cli.tune import print_model
    from searchlab.lab.tuning.tuning import finish_run

    try:
        results = finish_run(summary.folder, again=bool(summary.done))
    except SearchLabError as e:  # the searches are done, and what they found is kept
        err.print(f"[yellow]the whole model was not timed:[/] {e}", soft_wrap=True)
        return
    for result in results if not quiet else ():
        print_model(result)


def _errors(summary: RunSummary) -> None:
    """Failed cells once more, all of them in one place."""
    from rich.markup import escape

    from searchlab.lab.run import Folder

    if not summary.failed:
        return
    cells = {c.id: c for c in Folder(summary.folder).manifest().cells}
    err.print(f"\n[bold red]{len(summary.failed)} failed[/] [dim](tracebacks are in {summary.folder}/log.txt)[/]")
    for event in summary.failed[:_MOST_ERRORS]:
        cell = cells[event.cell]
        name = f"{cell.entry} on {cell.task} seed {cell.seed}"
        err.print(f"  {escape(name)}: {escape(' '.join(event.error.split()))}", soft_wrap=True)
    if len(summary.failed) > _MOST_ERRORS:
        err.print(f"  and {len(summary.failed) - _MOST_ERRORS} more")


def _left(summary: RunSummary) -> str:
    if summary.left:
        return f"runs the {summary.left} cells that are left"
    return "retries the failed cells" if summary.failed else "runs the final run-off"


def _next(summary: RunSummary) -> None:
    folder = shlex.quote(str(summary.folder))
    done = summary.before + summary.done
    if summary.interrupted or summary.left or summary.failed:
        again = _left(summary)
        out.print(f"[bold]{done} cells done[/] in {folder}")
        hint(f"searchlab run {folder}           [dim]{again}[/]", f"searchlab status {folder}")
        return
    now = "" if summary.done else ", all of them earlier"
    out.print(f"[bold]all {done} cells done[/]{now}, in {folder}")
    hint(
        f"searchlab best {folder} --export kernels   [dim]the fastest programs, as libraries for Python and C[/]",
        f"searchlab report {folder} --open           [dim]one page with all results[/]",
        f"searchlab leaderboard {folder}             [dim]the ranking, with its uncertainty[/]",
    )
