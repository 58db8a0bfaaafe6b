"""Which of its best programs a task is compiled to: all are timed inside the model, call by call.

A kernel that is timed alone finds its data in the cache.  In a model it finds what the calls before it have left there,
and what was fastest in a warm loop need not be fastest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from searchlab.graph.calls import ProgramCall
from searchlab.graph.functions import GraphModule
from searchlab.graph.model.compiled_model import CompiledModel
from searchlab.graph.model.compiling import compile
from searchlab.graph.model.kernels import weights_of
from searchlab.graph.model.model_function import ModelFunction
from searchlab.graph.model.options import CompileOptions
from searchlab.graph.model.pipeline import lowered
from searchlab.graph.model_source import ModelSource
from searchlab.lab.tuning.tuned import Tuned, TunedTask
from searchlab.lab.tuning.whole_model import Note, alone, race_models, run_of, silent
from searchlab.targets import Target

_ROUNDS, _RUNS = 4, 5  # the fewest turns of each model, and the runs of a turn
_MARGIN = 0.01  # the least gain for which the default schedule is given up

CallTimes = Mapping[str, float]  # the shortest time of each call of a model, by the name of its result


def select_in_model(
    source: ModelSource,
    target: Target,
    options: CompileOptions,
    rivals: Sequence[Tuned],
    seconds: float = 2.0,
    note: Note = silent,
) -> Tuned:
    """For each task the rival that takes the least time in the model, or its default schedule if none is faster.

    A model is compiled with the default schedules, and one with each of the rivals, which all have the same tasks.
    They run in turns while the machine notes when each call begins; tasks are then decided one by one.  Those that the
    model does not call stay as they are in the first of the rivals.  What was chosen has to be faster as a whole, too:
    what a kernel gains, the next may lose, as it finds less in the caches.
    """
    first = rivals[0]
    note("compiling the best programs of all tasks")
    models = [compile(source.module, target, tuned, options) for tuned in (None, *rivals)]
    note("timing them inside the model")
    with alone(target, note):
        usual, *others = _call_times(models, source, seconds)
    calls = _calls_by_task(lowered(source.module, options, target=target), source, first)
    chosen: dict[str, TunedTask] = dict(first.tasks)
    for key, named in calls.items():
        names = [name for name in named if name in usual]
        if not names:
            continue
        took = [sum(times[name] for name in names) for times in others]
        best = min(range(len(took)), key=took.__getitem__)
        keep = took[best] > (1 - _MARGIN) * sum(usual[name] for name in names)
        chosen[key] = replace(first.tasks[key], default=True) if keep else rivals[best].tasks[key]
    made = replace(first, tasks=chosen)
    if all(chosen[key].default for key in calls):
        return made
    note("timing what was chosen as a whole")
    if _is_faster(compile(source.module, target, made, options), models[0], source, target, seconds, note):
        return made
    return replace(first, tasks={k: replace(t, default=True) if k in calls else t for k, t in chosen.items()})


def _is_faster(
    model: CompiledModel, other: CompiledModel, source: ModelSource, target: Target, seconds: float, note: Note
) -> bool:
    """Whether a model is faster than another, end to end."""
    times, _ = race_models({"model": run_of(model, source), "other": run_of(other, source)}, target, seconds, note)
    return times["model"].min < times["other"].min


def _call_times(models: Sequence[CompiledModel], source: ModelSource, seconds: float) -> list[CallTimes]:
    """The shortest time of every call of each model; they take turns for so many seconds, and at least a few times."""
    taken: list[dict[str, list[tuple[int, ...]]]] = [{name: [] for name in source.calls} for _ in models]
    start, rounds = perf_counter(), 0
    while rounds < _ROUNDS or perf_counter() - start < seconds:
        rounds += 1
        for model, rows in zip(models, taken, strict=True):
            for name, call in source.calls.items():
                series = model[name].observed_series([call.inputs] * (_RUNS + 1))
                rows[name] += [run.times for run in series[1:]]  # the first has memory to acquire
    return [
        {call: t for name, times in rows.items() for call, t in _shortest(model[name], times, source)}
        for model, rows in zip(models, taken, strict=True)
    ]


def _shortest(
    function: ModelFunction, rows: Sequence[tuple[int, ...]], source: ModelSource
) -> Iterator[tuple[str, float]]:
    """The time of each call, as often as its function is called."""
    made = [at for at in range(len(rows[0])) if rows[0][at]]  # without the other halves of branches
    spans = np.diff(np.array(rows)[:, made], axis=1).min(axis=0) / 1e9
    name, calls = function.facts.name, function.facts.calls
    for at, span in zip(made, spans, strict=False):
        yield source.called(name, calls[at].name), source.calls[name].weight * float(span)


def _calls_by_task(module: GraphModule, source: ModelSource, tuned: Tuned) -> dict[str, list[str]]:
    """The calls of lowered functions that compute tasks, by the keys of these."""
    found: dict[str, list[str]] = defaultdict(list)
    for function in source.calls:
        for name, call in module[function].calls.items():
            if isinstance(call, ProgramCall):
                program = module.program(call.program)
                key = tuned.key(program, weights_of(module, program, call))
                if key is not None:
                    found[key].append(source.called(function, name))
    return found
