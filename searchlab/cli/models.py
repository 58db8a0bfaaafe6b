"""`searchlab models`: records data sets of measured programs, trains cost models on them, and compares models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from searchlab.cli.output import AsCsv, AsJson, duration, err, form, out, print_rows, print_table, table

if TYPE_CHECKING:
    from rich.table import Table

    from searchlab.dataset.comparing import ModelScore
    from searchlab.dataset.recorder import TaskDone

app = typer.Typer(no_args_is_help=True, help="Record data sets of programs; train and compare cost models on them.")

_BENCHED = "roofline,gbt"
_Data = Annotated[Path, typer.Argument(metavar="DATA", help="A data set of `searchlab models record`.")]
_Seed = Annotated[int, typer.Option(min=0, help="The seed of all random choices.")]


@app.command("record")
def record_command(
    output: Annotated[Path, typer.Option("--output", "-o", help="The data set to write.")],
    tasks: Annotated[
        str | None, typer.Option(metavar="TASKS", help="A number of tasks, a suite or a workload; all by default.")
    ] = None,
    programs: Annotated[int, typer.Option(min=1, help="Programs of each task.")] = 500,
    seconds: Annotated[float, typer.Option(min=0.0, help="Longest time for a task.")] = 120.0,
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


@app.command("train")
def train_command(
    data: _Data,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write.")],
    model: Annotated[str, typer.Option(help="The cost model that starts from what is trained.")] = "gbt",
    seed: _Seed = 0,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Train what a cost model starts from on a data set, and judge it on operators and shapes that were left out.

    The same data set and seed give the same trees. The card beside them says what they were trained on.
    """
    from searchlab.dataset.archive import load
    from searchlab.search import MODELS

    wanted, kind = form(as_json, as_csv), MODELS.find(model)
    card = kind.pretrain([stored.trials for stored in load(data)], output, seed)
    if wanted:
        print_rows(
            [{"case": model, "metric": "pretrained", "value": card.get("programs"), "target": None, **card}], wanted
        )
    else:
        text = f"{model} trained on {card['programs']} programs of {card['tasks']} tasks in {duration(card['seconds'])}"
        out.print(f"{text}, written to {output}", markup=False, soft_wrap=True)
        print_table(_accuracy(card))


@app.command("bench")
def bench_models_command(
    data: _Data,
    models: Annotated[str, typer.Option(help="Models by name or as module:Class, separated by commas.")] = _BENCHED,
    seed: _Seed = 0,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Compare cost models offline: each learns all operators but one, and ranks the programs of that one.

    No model starts from the shipped trees, which have seen all operators.
    """
    from searchlab.dataset.archive import load
    from searchlab.dataset.comparing import compare
    from searchlab.search import MODELS

    wanted, names = form(as_json, as_csv), [name.strip() for name in models.split(",") if name.strip()]
    views = {MODELS.make(name).view for name in names}  # a wrong name is refused before anything is read
    scores = []
    for score in compare(load(data, views), names, seed):
        scores.append(score)
        _say(f"{score.model}, {score.operator or 'all operators'}: {duration(score.seconds)}")
    if wanted:
        print_rows(_score_rows(scores), wanted)
    else:
        print_table(_score_table(scores))


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


# --- scores -----------------------------------------------------------------------------------------------------------


def _accuracy(card: Mapping[str, Any]) -> Table:
    """The figures of a card, by operator."""
    kinds = ("estimate", "unseen operator", "unseen shape")
    names = [f"{figure}: {kind}" for figure in ("pairs", "best of 8") for kind in kinds]
    made = table("operator", "tasks", *names, right=("tasks", *names))
    for name, row in {**card["operators"], "all": {"tasks": card["tasks"], **card["accuracy"]}}.items():
        figures = [f"{row[kind.replace(' ', '_')][f]:.3f}" for f in ("pairs", "regret") for kind in kinds]
        made.add_row(name, str(row["tasks"]), *figures)
    return made


def _score_rows(scores: Sequence[ModelScore]) -> Iterator[dict[str, Any]]:
    """One row for each figure of a model on an operator."""
    for score in scores:
        more = {"model": score.model, "operator": score.operator or "all", "tasks": score.tasks}
        found = asdict(score.ranking) if score.ranking is not None else {"pairs": None}
        for metric, value in {**found, "seconds": score.seconds}.items():
            case = f"{score.model}/{more['operator']}"
            yield {"case": case, "metric": metric, "value": value, "target": None, **more}


def _score_table(scores: Sequence[ModelScore]) -> Table:
    """One line for each operator, and for every model the pairs in order, the recall of the best, and the regret."""
    figures = ("pairs", "top pairs", "top 16", "best of 8", "time")
    made = table("operator", "model", "tasks", *figures, right=("tasks", *figures))
    names = dict.fromkeys(score.operator for score in scores)
    for operator in names:
        for n, score in enumerate(s for s in scores if s.operator == operator):
            r = score.ranking
            found = ("-",) * 4 if r is None else tuple(f"{v:.3f}" for v in (r.pairs, r.top_pairs, r.recall, r.regret))
            first = (operator or "all") if n == 0 else ""
            made.add_row(first, score.model, str(score.tasks), *found, duration(score.seconds))
    return made
