"""Times of whole models: compiled with default schedules, with tuned ones, and run by torch, all in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from searchlab.bench.library_threads import threads
from searchlab.errors import GraphError
from searchlab.graph.evaluation import evaluate_graph
from searchlab.graph.model.compiled_model import CompiledModel
from searchlab.graph.model.compiling import compile
from searchlab.graph.model.options import CompileOptions
from searchlab.graph.model_source import ModelSource, array_of
from searchlab.lab.tuning.model_result import EAGER
from searchlab.lab.tuning.tuned import Tuned
from searchlab.measure import CoreLock
from searchlab.targets import Target
from searchlab.timing.race import Contender, OtherLoad, Steady, race
from searchlab.timing.turns import Times

_CLOSE = 1e-2  # the largest difference from the reference that rounding explains, relative to the largest result
_STEADY = 0.03
Note = Callable[[str], None]


def silent(text: str) -> None:
    """Says nothing."""


def prepared(source: ModelSource, target: Target, tuned: Tuned | None, options: CompileOptions) -> Contender:
    """The model, compiled, as a function without arguments that runs it on its example inputs."""
    return run_of(compile(source.module, target, tuned, options), source)


def run_of(model: CompiledModel, source: ModelSource) -> Contender:
    """A function without arguments that runs a model on its example inputs."""
    return _run({name: partial(model[name], *call.inputs) for name, call in source.calls.items()}, source)


def eager_run(source: ModelSource) -> dict[str, Contender]:
    """The same in torch, by its name; none if the model comes from elsewhere."""
    runs = {name: call.eager for name, call in source.calls.items() if call.eager is not None}
    return {EAGER: _run(runs, source)} if len(runs) == len(source.calls) else {}


def _run(runs: Mapping[str, Contender], source: ModelSource) -> Contender:
    """One function as it is; of several, each as often as it is called."""
    calls = [(run, source.calls[name].weight) for name, run in runs.items()]
    return calls[0][0] if len(calls) == 1 else WeightedRun(calls)


@dataclass(frozen=True)
class WeightedRun:
    """Functions of a model, each run once; the time is that of all calls, as often as each of them occurs."""

    calls: Sequence[tuple[Contender, float]]

    def __call__(self) -> list[Any]:
        return [run() for run, _ in self.calls]

    def timed(self, count: int) -> float:
        """The seconds of so many runs."""
        total = 0.0
        for run, weight in self.calls:
            start = perf_counter()
            for _ in range(count):
                run()
            total += weight * (perf_counter() - start)
        return total


def largest_error(source: ModelSource, runs: Mapping[str, Contender]) -> float:
    """The largest difference of any result from that of torch, or of the interpreter, relative to the largest number.

    What differs by more than rounding explains is refused: its time would mean nothing.
    """
    eager = eager_run(source)
    wanted = _flat(eager[EAGER]() if eager else _evaluated(source))
    worst = 0.0
    for name, run in runs.items():
        got = _flat(run())
        if [y.shape for y in got] != [y.shape for y in wanted]:
            raise GraphError(f"{source.name}: '{name}' gives shapes {[y.shape for y in got]}, not those of the model")
        error = results_differ(got, wanted)
        if not error <= _CLOSE:
            raise GraphError(f"{source.name}: results of '{name}' differ from the reference by {error:.2%}")
        worst = max(worst, error)
    return worst


def _evaluated(source: ModelSource) -> list[Any]:
    return [evaluate_graph(source.module, *call.inputs, function=name) for name, call in source.calls.items()]


def results_differ(got: Any, wanted: Any) -> float:
    """The largest difference of results with the same shapes, relative to the largest number of each."""
    pairs = zip(_flat(got), _flat(wanted), strict=True)
    return max((_difference(a, b) for a, b in pairs), default=0.0)


def _flat(value: Any) -> list[Any]:
    """All arrays of a result in order, those of torch as arrays."""
    if isinstance(value, tuple | list):
        return [y for part in value for y in _flat(part)]
    if isinstance(value, Mapping):
        return [y for part in value.values() for y in _flat(part)]
    if value is None:
        return []
    return [value if isinstance(value, np.ndarray) else array_of(value)]


def _difference(got: Any, want: Any) -> float:
    if got.size == 0:
        return 0.0
    a, b = got.astype(np.float64), want.astype(np.float64)
    scale = float(np.max(np.abs(b))) or 1.0
    return float(np.max(np.abs(a - b))) / scale


def race_models(
    runs: Mapping[str, Contender], target: Target, seconds: float, note: Note = silent
) -> tuple[dict[str, Times], float]:
    """The times of models in turns, and the load of the machine meanwhile."""
    with alone(target, note), OtherLoad() as load:
        times = race(runs, seconds, 5, target.threads, Steady(_STEADY, 2 * seconds))
    return times, load.share


@contextmanager
def alone(target: Target, note: Note) -> Iterator[None]:
    """All cores for this process, whose libraries use as many threads as the target has."""
    with CoreLock.all(note), threads(target.threads):
        yield
