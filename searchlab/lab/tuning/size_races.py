"""Whole runs of a model with open sizes, timed at a few of these: tables are made for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from searchlab.errors import GraphError
from searchlab.graph.functions import GraphFunction
from searchlab.graph.model.compiled_model import CompiledModel
from searchlab.graph.model_source import ModelSource
from searchlab.graph.tasks import sizes_of
from searchlab.graph.tasks.task_family import OpenSize
from searchlab.ir.evaluate import evaluate
from searchlab.ir.expr import Var
from searchlab.ir.walk import variables
from searchlab.lab.tuning.model_result import SizeRace
from searchlab.lab.tuning.whole_model import Note, race_models, results_differ, silent
from searchlab.targets import Target

_CLOSE = 1e-2


def race_sizes(
    source: ModelSource, models: Mapping[str, CompiledModel], target: Target, seconds: float, note: Note = silent
) -> tuple[SizeRace, ...]:
    """The times of compiled models at sizes that stand for all: those of each open size, others as in the example."""
    found = []
    for function, call in source.calls.items():
        examples, facts = sizes_of(source.module, call.inputs, function), source.module[function].facts
        for name in examples:
            known = OpenSize.of(Var(name, "size"), facts, examples, call.sizes).range
            for value, _ in known.representatives:
                sizes = {**examples, name: value}
                inputs = resized(source.module[function], call.inputs, sizes)
                runs = {n: partial(model[function], *inputs) for n, model in models.items()}
                first, *others = (run() for run in runs.values())
                for other in others:
                    if (error := results_differ(other, first)) > _CLOSE:
                        raise GraphError(f"{source.name}: results for {name} = {value} differ by {error:.2%}")
                times, _ = race_models(runs, target, seconds, note)
                named = {source.called(function, n): v for n, v in sizes.items()}
                found.append(SizeRace(named, {n: t.min for n, t in times.items()}))
    return tuple(found)


def resized(function: GraphFunction, inputs: Sequence[Any], sizes: Mapping[str, int]) -> tuple[Any, ...]:
    """The example inputs at other sizes, cut or repeated from their beginning, so that all values stay plausible."""
    made = []
    for p, array in zip(function.parameters, inputs, strict=True):
        for axis, e in enumerate(p.annotation.dims()):
            if variables(e):
                array = np.take(array, np.arange(int(evaluate(e, sizes))) % array.shape[axis], axis=axis)
        made.append(np.ascontiguousarray(array))
    return tuple(made)
