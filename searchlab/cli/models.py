"""`searchlab models`: records data sets of measured programs, trains cost models on them, and compares models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from searchlab.cli.output import AsCsv, AsJson, duration, err, form, out, print_rows

if TYPE_CHECKING:
    from searchlab.dataset.recorder import TaskDone

app = typer.Typer(no_args_is_help=True, help="Record data sets of programs; train and compare cost models on them.")

_Seed = Annotated[int, typer.Option(min=0, help="The seed of all random choices.")]


@app.command("record")
def record_command(
    output: Annotated[Path, typer.Option("--output", "-o", help="The data set to write.")],
    tasks: Annotated[
        str | None, typer.Option(metavar="TASKS", help="A number of tasks, a suite or a workload; all by default.")
    ] = None,
    programs: Annotated[int, typer.Option(min=1, help="Programs of each task.")] = 500,
    seconds: Annotated[float, typer.Option(min=0.0, help="Longest time for a task.")] = 40.0,
    seed: _Seed = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Add the tasks that the data set lacks.")] = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Measure programs of many tasks on this machine, and store their features and times in one file.

    Every task is stored when it is done; --resume continues after an interruption. SEARCHLAB_CPU limits the machine,
    and tasks of several CPUs may be in one data set.
    """
    from searchlab.dataset.archive import Recording
    from searchlab.dataset.recorder import record_tasks
    from searchlab.dataset.task_table import chosen_specs
    from searchlab.measure.local import LocalMeasurer
    from searchlab.targets import detect

    wanted, specs = form(as_json, as_csv), chosen_specs(tasks)
    recording = Recording(output, resume)
    rows: list[dict[str, Any]] = []
    with LocalMeasurer(run_ahead=24, on_wait=_say) as measurer:
        for done in record_tasks(recording, specs, detect(), measurer, programs, seconds, seed):
            rows.append(_fields(done))
            _say(f"{len(rows)} of {len(specs)}: {_line(done)}")
    count = recording.pack()
    if wanted:
        print_rows(rows, wanted)
    else:
        out.print(f"{count} tasks in {output}, {output.stat().st_size / 1e6:.1f} MB", markup=False, soft_wrap=True)


def _say(text: str) -> None:
    err.print(text, style="dim", markup=False, soft_wrap=True)


def _line(done: TaskDone) -> str:
    if done.stored is None:
        return f"{done.spec.workload}: {done.reason}"
    took, best = done.stored.about["seconds"], float(done.stored.seconds.min())
    return f"{done.spec.workload}: {len(done.stored)} programs in {duration(took)}, best {duration(best)}"


def _fields(done: TaskDone) -> dict[str, Any]:
    count = 0 if done.stored is None else len(done.stored)
    best = None if done.stored is None else float(done.stored.seconds.min())
    common = {"target": None, "threads": done.spec.threads, "best_seconds": best, "reason": done.reason}
    return {"case": done.spec.workload, "metric": "programs", "value": count, **common}
