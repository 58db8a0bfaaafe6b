"""`searchlab tune`: searches the tasks of a model with one budget, compiles it with what was found, and times it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from searchlab.cli.output import AsCsv, duration, err, form, hint, out, print_rows, print_table, table
from searchlab.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from searchlab.lab.tuning.model_result import ModelResult
    from searchlab.lab.tuning.tuning import TunePlan

_BUSY = 0.1  # the share of the machine that others may take before the times are called into question
_SHOWN = 8


def tune_command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="model.py:make, my.module:make or a name such as resnet18.")
    ],
    trials: Annotated[int, typer.Option(min=1, help="Measurements in all, shared by the tasks.")] = 1000,
    folder: Annotated[Path | None, typer.Option("-o", "--out", help="The run folder; runs/NAME if not given.")] = None,
    target: Annotated[str, typer.Option(help="The machine to generate code for.")] = "native",
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; all cores if not given.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search.")] = 0,
    after: Annotated[
        list[Path] | None, typer.Option(help="Earlier runs: tasks that they searched are not searched again.")
    ] = None,
    share: Annotated[float, typer.Option(min=0.1, max=1.0, help="Share of the expected time worth tuning.")] = 0.99,
    decide: Annotated[
        bool, typer.Option("--decide/--no-decide", help="Time the ways to compile the model before tuning it.")
    ] = True,
    seconds: Annotated[float, typer.Option(min=0.0, help="Seconds to time whole runs of the model.")] = 2.0,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print errors only.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print lines instead of a live view.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
    as_csv: AsCsv = False,
) -> None:
    """Tune a whole model: search the programs it is compiled to, and time the model with what was found.

    The model is a function that returns a torch module and example inputs. Its tasks share the trials; those that
    promise most get most. The whole model is timed in turns with its default schedules and with torch. The same
    command resumes an interrupted run.
    """
    from searchlab.graph.model.options import CompileOptions
    from searchlab.graph.model_source import model_source
    from searchlab.lab.tuning.tuning import finish_model, folder_name, plan_tuning
    from searchlab.lab.tuning.whole_model import silent as quiet_note

    wanted = form(as_json, as_csv)
    silent = quiet or wanted is not None
    note = quiet_note if silent else _note
    source = model_source(model)
    place = folder or Path("runs") / folder_name(source)
    machine: Any = target if threads is None else {target: {"threads": threads}}
    plan = plan_tuning(
        source,
        machine,
        trials,
        seed,
        folder=place,
        after=[str(path) for path in after or ()],
        share=share,
        options=None if decide else CompileOptions(),
        note=note,
    )
    if not silent:
        _print_plan(plan)
    if plan.tasks:
        _search(plan, place, silent, verbose)
    result = finish_model(plan, place, seconds, note)
    if wanted:
        print_rows([result.plain], wanted)
    elif not quiet:
        print_model(result)
        _next(place)


def _note(text: str) -> None:
    err.print(f"[dim]{text}[/]", soft_wrap=True)


def _search(plan: TunePlan, place: Path, quiet: bool, verbose: bool) -> None:
    """Runs the searches; anything but their success ends the command."""
    from searchlab.cli.views import view
    from searchlab.lab.run import run

    command = shlex.join(["searchlab", *sys.argv[1:]])
    try:
        summary = run(plan.experiment, place, command=command, observer=view(quiet, verbose))
    except RecordError as e:
        err.print(f"[bold red]stopped:[/] {e}", markup=True, soft_wrap=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        err.print("stopped at once; the same command resumes after the last measurement")
        raise typer.Exit(130) from None
    if summary.exit_code:
        for event in summary.failed:
            err.print(f"[bold red]failed:[/] {event.error}", soft_wrap=True)
        raise typer.Exit(summary.exit_code)


# --- printing ---------------------------------------------------------------------------------------------------------


def _print_plan(plan: TunePlan) -> None:
    from rich.markup import escape

    made = table("task", "calls", "flops", right=("calls", "flops"))
    ordered = sorted(plan.tasks, key=lambda t: -t.count * t.workload.flops)
    for task in ordered[:_SHOWN]:
        made.add_row(escape(task.workload.label), f"{task.count:.3g}", f"{task.workload.flops:.3g}")
    if ordered:
        print_table(made)
    more = f", {len(ordered) - _SHOWN} more than shown" if len(ordered) > _SHOWN else ""
    out.print(
        f"{len(plan.tasks)} tasks to search{more}; {len(plan.known)} known from earlier runs, {len(plan.others)} left "
        f"at their default; {plan.trials} trials in all"
    )
    if plan.variants:
        out.print(f"compiled {_said(plan.variants)}")


def _said(variants: Sequence[Any]) -> str:
    """The ways to compile a model that were timed, the fastest first."""
    timed = sorted((v for v in variants if v.seconds is not None), key=lambda v: v.seconds)
    return ", ".join(f"{v.name} {duration(v.seconds)}{' (chosen)' if v.chosen else ''}" for v in timed)


def print_model(result: ModelResult) -> None:
    """The times of a whole model, beside the sums of its kernels."""
    from rich.markup import escape

    from searchlab.lab.tuning.model_result import TUNED

    print_table(_times(result))
    out.print(
        "[dim]kernels: the sum over the tasks that were searched, each timed alone; whole runs contain all calls[/]"
    )
    for race in result.by_size:
        at = ", ".join(f"{name} = {value}" for name, value in race.sizes.items())
        shown = ", ".join(f"{name} {duration(s)}" for name, s in race.seconds.items())
        out.print(f"at {at}: {shown}")
    if result.decided_again:
        out.print(f"decided again with what was found: {_said(result.decided_again)}")
    if (speedup := result.speedup("default")) is not None:
        torch = result.speedup("torch")
        over = f", {torch:.2f}x torch" if torch is not None else ""
        out.print(f"[bold]{escape(result.name)}: {speedup:.2f}x its default schedules{over}[/], end to end")
    if result.load > _BUSY:
        out.print(f"[yellow]other programs used {result.load:.0%} of the cores while {TUNED} was timed[/]")


def _times(result: ModelResult) -> Table:
    made = table("model", "whole run", "median", "kernels", right=("whole run", "median", "kernels"))
    for name, times in sorted(result.times.items(), key=lambda item: item[1].min):
        alone = duration(result.kernels[name]) if name in result.kernels else ""
        made.add_row(name, duration(times.min), duration(times.median), alone)
    return made


def _next(place: Path) -> None:
    from rich.markup import escape

    found = escape(f"tuned = sl.Tuned.from_run({str(place)!r})")
    call = escape("sl.graph.compile(module, tuned=tuned, options=tuned.options)")
    hint(
        f"searchlab report {shlex.quote(str(place))} --open   [dim]one page with all results[/]",
        f"{found}; {call}   [dim]the model as a function, in Python[/]",
    )
