"""Tuning a model from its name to its time: decide how to compile it, search its tasks, compile it, and time it.

plan = plan_tuning(model_source("model.py:make"), "native", trials=1000)
run(plan.experiment, "runs/model")
finish_model(plan, "runs/model")
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from searchlab import targets
from searchlab.errors import SearchLabError
from searchlab.graph.model.compiling import compile
from searchlab.graph.model.options import CompileOptions
from searchlab.graph.model_source import ModelSource, model_source
from searchlab.graph.tasks import GraphTask, TaskFamily, model_tasks, sizes_of, task_counts, worth_tuning
from searchlab.lab.config import Experiment, from_data
from searchlab.lab.config.subjects import is_model
from searchlab.lab.results import CellResult, to_take
from searchlab.lab.run import Folder, Observer, load, run
from searchlab.lab.tuning import tuned as tuned_files
from searchlab.lab.tuning.call_records import call_records
from searchlab.lab.tuning.decisions import decide
from searchlab.lab.tuning.model_result import DEFAULT, TUNED, ModelResult, VariantTime, model_results, write_results
from searchlab.lab.tuning.model_selection import select_in_model
from searchlab.lab.tuning.size_races import race_sizes
from searchlab.lab.tuning.size_tables import make_tables
from searchlab.lab.tuning.tuned import Tuned
from searchlab.lab.tuning.whole_model import Note, eager_run, largest_error, race_models, run_of, silent
from searchlab.registry import Component

_ROUNDS = 4  # batches that each task gets on average, at least
_BATCH = (2, 16)
RACE_S = 2.0  # of the final race of whole models
_SIZES = 5  # which share such a time, where sizes are open


@dataclass(frozen=True, eq=False)
class TunePlan:
    """What tuning a model amounts to: the tasks to search, those that earlier runs know, and those left alone.

    `variants` are the ways to compile it that were timed with default schedules before anything is searched, and
    `options` the fastest of them.
    """

    source: ModelSource
    target: Component
    trials: int
    seed: int
    tasks: tuple[GraphTask, ...]
    known: tuple[GraphTask, ...]
    others: tuple[GraphTask, ...]
    options: CompileOptions = CompileOptions()
    variants: tuple[VariantTime, ...] = ()
    after: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def experiment(self) -> Experiment:
        """The experiment that searches the tasks, all of them with one budget."""
        if not self.tasks:
            raise SearchLabError(f"{self.source.name}: there is nothing to search")
        each = max(1, self.trials // len(self.tasks))
        batch = max(_BATCH[0], min(_BATCH[1], each // _ROUNDS))
        network = {
            "name": self.source.name,
            "tasks": task_counts(self.tasks),
            "graph": self.source.text,
        }
        given = {"target": self.target, "seeds": [self.seed], "budget": {"trials": each, "batch": batch}}
        return from_data(
            {"name": folder_name(self.source), "workloads": [{"network": network}], **given, **self.settings}
        )

    @property
    def families(self) -> tuple[TaskFamily, ...]:
        """The programs with open sizes among the tasks to search."""
        return tuple({task.family.key: task.family for task in self.tasks if task.family is not None}.values())

    def result(self, **measured: Any) -> ModelResult:
        """What the plan says, together with what was measured."""
        return ModelResult(
            name=self.source.name,
            graph=self.source.text,
            target=str(self.target),
            searched=len(self.tasks),
            known=len(self.known),
            others=len(self.others),
            options=_changed(self.options),
            variants=self.variants,
            sizes={
                self.source.called(name, size): value
                for name, call in self.source.calls.items()
                for size, value in sizes_of(self.source.module, call.inputs, name).items()
            },
            after=self.after,
            **measured,
        )


def _changed(options: CompileOptions) -> dict[str, Any]:
    """The options that are not at their defaults."""
    usual = asdict(CompileOptions())
    return {name: value for name, value in asdict(options).items() if value != usual[name]}


def tune(
    model: str | ModelSource,
    trials: int = 1000,
    folder: str | Path | None = None,
    *,
    target: Component = "native",
    seed: int = 0,
    after: Sequence[str | Path] = (),
    options: CompileOptions | None = None,
    seconds: float = RACE_S,
    observer: Observer | None = None,
) -> ModelResult:
    """Tunes a model, named as `searchlab tune` takes it; the same call again resumes where it was interrupted.

    `folder` is the run folder, runs/NAME unless given; the other arguments are those of `plan_tuning`.
    """
    source = model_source(model) if isinstance(model, str) else model
    place = Path("runs") / folder_name(source) if folder is None else Path(folder)
    plan = plan_tuning(source, target, trials, seed, folder=place, after=list(map(str, after)), options=options)
    if plan.tasks:
        summary = run(plan.experiment, place, observer=observer)
        if summary.exit_code:
            why = "; ".join(event.error for event in summary.failed) or "interrupted"
            raise SearchLabError(f"{source.name} was not tuned: {why}")
    return finish_model(plan, place, seconds)


def folder_name(source: ModelSource) -> str:
    """The name of a model as that of an experiment and a folder."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", source.name).strip("-._+") or "model"


def plan_tuning(
    source: ModelSource,
    target: Component = "native",
    trials: int = 1000,
    seed: int = 0,
    *,
    folder: str | Path | None = None,
    after: Sequence[str] = (),
    share: float = 0.99,
    options: CompileOptions | None = None,
    settings: Mapping[str, Any] | None = None,
    note: Note = silent,
) -> TunePlan:
    """Plans the tuning of a model; without `options`, the ways to compile it are timed first, with default schedules.

    What was decided for a run `folder` before stays decided, so that its searches can be resumed, and what was measured
    there stays until it is measured again.  Tasks that the runs `after` have searched for the target are not searched
    again.
    """
    machine = targets.parse(target)
    earlier = Tuned.from_run(*after, target=machine)
    variants: tuple[VariantTime, ...] = ()
    before = _decided(folder, source)
    if options is None and before is not None:
        options, variants = before.compile_options, before.variants
    elif options is None:
        options, variants = decide(source, machine, earlier if len(earlier) else None, CompileOptions(), note=note)
    every = model_tasks(source, options, machine)
    known = [task for task in every if _is_known(task, earlier)]
    worth = [task for task in worth_tuning(every, share) if task not in known]
    others = tuple(task for task in every if task not in known and task not in worth)
    given = tuple(after), dict(settings or {})
    plan = TunePlan(source, target, trials, seed, tuple(worth), tuple(known), others, options, variants, *given)
    if folder is not None:
        same = before is not None and before.compile_options == options
        write_results(folder, [plan.result(**(before.measured if before is not None and same else {"times": {}}))])
    return plan


def _is_known(task: GraphTask, earlier: Tuned) -> bool:
    """Whether an earlier run knows a task; one with open sizes, as a whole."""
    of = task.workload if task.family is None else task.family
    return earlier.known(of.program, of.weights) is not None


def _decided(folder: str | Path | None, source: ModelSource) -> ModelResult | None:
    known = () if folder is None else model_results(folder)
    return next((result for result in known if result.name == source.name), None)


def finish_model(plan: TunePlan, folder: str | Path, seconds: float = RACE_S, note: Note = silent) -> ModelResult:
    """Compiles a model with what was found, times it beside its default schedules and torch, and keeps the result.

    Of the best programs of a task, the one that takes the least time inside the model is taken.
    """
    machine = targets.parse(plan.target)
    place = Path(folder)
    searched = [str(place)] if Folder(place).exists else []
    if searched:
        make_tables(plan.families, place, machine, note)
        rivals = Tuned.ranked(place, machine)
        if rivals:
            select_in_model(plan.source, machine, plan.options, rivals, seconds, note).save(place / tuned_files.FILE)
    tuned = Tuned.from_run(*searched, *plan.after, target=machine)
    options = plan.options
    again: tuple[VariantTime, ...] = ()
    if searched and plan.variants:  # what was decided with default schedules is decided again with those found
        options, again = decide(plan.source, machine, tuned, plan.options, note=note)
    note("compiling")
    ways = {DEFAULT: (None, plan.options), TUNED: (tuned, options)}
    models = {name: compile(plan.source.module, machine, *way) for name, way in ways.items()}
    runs = {name: run_of(model, plan.source) for name, model in models.items()}
    error = largest_error(plan.source, runs)
    note("timing whole runs")
    times, busy = race_models({**runs, **eager_run(plan.source)}, machine, seconds, note)
    sums = kernel_sums(place, plan.source.name) if searched else {}
    calls, held = call_records(models[TUNED], plan.source, options.memory)
    others = race_sizes(plan.source, models, machine, seconds / _SIZES, note)
    measured = dict(times=times, kernels=sums, error=error, load=busy, calls=calls, held=held, by_size=others)
    result = plan.result(**measured, decided_again=again, taken=_changed(options))
    write_results(place, [result])
    return result


def kernel_sums(folder: Path, network: str) -> dict[str, float]:
    """The sums of the kernels' times of a network that a run searched: of its default schedules, and of its best."""
    cells = [cell for cell in load(folder).cells if cell.task == network]
    best = to_take(cells)
    if best is None:
        return {}
    return {TUNED: best.taken_s} | _defaults(best)


def _defaults(cell: CellResult) -> dict[str, float]:
    return {DEFAULT: cell.baselines[DEFAULT]} if DEFAULT in cell.baselines else {}


def finish_run(folder: str | Path, again: bool = True, note: Note = silent) -> tuple[ModelResult, ...]:
    """Times the whole models of a run whose cells are done: those that its experiment names by `graph`.

    Those that have been timed are only timed `again` if this is wanted.
    """
    done_run = load(folder)
    if done_run.experiment is None or any(cell.state != "done" for cell in done_run.cells):
        return ()
    found = []
    for network in (item["network"] for item in done_run.experiment.workloads if is_model(item)):
        done = [r for r in model_results(folder) if r.name == network["name"] and r.times]
        if again or not done:
            found.append(finish_model(_plan_of(network, done_run.cells[0].cell.target, folder), folder, note=note))
    return tuple(found)


def _plan_of(network: Mapping[str, Any], target: Component, folder: str | Path) -> TunePlan:
    """What was planned for a model whose tasks have been searched."""
    source = model_source(str(network["graph"]))
    before = _decided(folder, source)
    options = CompileOptions() if before is None else before.compile_options
    every = model_tasks(source, options, targets.parse(target))
    searched = tuple(task for task in every if task.workload.spec in network["tasks"])
    others = tuple(task for task in every if task.workload.spec not in network["tasks"])
    variants, after = ((), ()) if before is None else (before.variants, before.after)
    return TunePlan(source, target, 0, 0, searched, (), others, options, variants, after)
