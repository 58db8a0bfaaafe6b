"""Times of whole models: compiled with default schedules, with tuned ones, and run by torch, all in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from searchlab.bench.library_threads import threads
from searchlab.errors import GraphError, SearchLabError
from searchlab.graph.evaluation import evaluate_graph
from searchlab.graph.model.compiling import compile
from searchlab.graph.model.options import CompileOptions
from searchlab.graph.model_source import ModelSource, array_of
from searchlab.lab.tuning.model_result import EAGER, VariantTime
from searchlab.lab.tuning.tuned import Tuned
from searchlab.measure import CoreLock
from searchlab.targets import Target
from searchlab.timing.race import Contender, OtherLoad, Steady, race
from searchlab.timing.turns import Times

_CLOSE = 1e-2  # the largest difference from the reference that rounding explains, relative to the largest result
_STEADY = 0.03
Note = Callable[[str], object]


def prepared(source: ModelSource, target: Target, tuned: Tuned | None, options: CompileOptions) -> Contender:
    """The model, compiled, as a function without arguments that runs it on its example inputs."""
    model = compile(source.module, target, tuned, options)
    return lambda: model(*source.inputs)


def largest_error(source: ModelSource, runs: Mapping[str, Contender]) -> float:
    """The largest difference of any result from that of torch, or of the interpreter, relative to the largest number.

    What differs by more than rounding explains is refused: its time would mean nothing.
    """
    wanted = _flat(source.eager() if source.eager is not None else evaluate_graph(source.module, *source.inputs))
    worst = 0.0
    for name, run in runs.items():
        got = _flat(run())
        if [y.shape for y in got] != [y.shape for y in wanted]:
            raise GraphError(f"{source.name}: '{name}' gives shapes {[y.shape for y in got]}, not those of the model")
        error = max((_difference(a, b) for a, b in zip(got, wanted, strict=True)), default=0.0)
        if not error <= _CLOSE:
            raise GraphError(f"{source.name}: results of '{name}' differ from the reference by {error:.2%}")
        worst = max(worst, error)
    return worst


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
    source: ModelSource, runs: Mapping[str, Contender], target: Target, seconds: float, note: Note = lambda text: None
) -> tuple[dict[str, Times], float]:
    """The times of compiled models beside torch, in turns, and the load of the machine meanwhile."""
    everyone = {**runs, **({EAGER: source.eager} if source.eager is not None else {})}
    with _alone(target, note), OtherLoad() as load:
        times = race(everyone, seconds, 5, target.threads, Steady(_STEADY, 2 * seconds))
    return times, load.share


@contextmanager
def _alone(target: Target, note: Note) -> Iterator[None]:
    with CoreLock.all(note), threads(target.threads):
        yield


# --- decisions --------------------------------------------------------------------------------------------------------

Changes = Mapping[str, Any]


def alternatives(base: CompileOptions, libraries: Sequence[str] = ()) -> dict[str, CompileOptions]:
    """The ways to compile a model that differ from given options in one decision, by what differs."""
    changes: list[Changes] = [{"fuse": f} for f in ("before", "after", "never") if f != base.fuse]
    changes.append({"layouts": not base.layouts})
    changes += [{"libraries": (name,)} for name in libraries if name not in base.libraries]
    return {_said(change): changed(base, change) for change in changes}


def changed(base: CompileOptions, changes: Changes) -> CompileOptions:
    """Options with some of them replaced."""
    return CompileOptions.of({**_plain(base), **changes})


def _plain(options: CompileOptions) -> dict[str, Any]:
    return {name: getattr(options, name) for name in CompileOptions.__dataclass_fields__}


def _said(changes: Changes) -> str:
    return ", ".join(
        f"{name}: {'+'.join(v) if isinstance(v, tuple) else str(v).lower()}" for name, v in changes.items()
    )


def decide(
    source: ModelSource,
    target: Target,
    tuned: Tuned | None,
    base: CompileOptions,
    libraries: Sequence[str] = (),
    seconds: float = 0.5,
    note: Note = lambda text: None,
) -> tuple[CompileOptions, tuple[VariantTime, ...]]:
    """The options of the fastest whole model, and the times of all that were tried.

    First every decision is changed by itself, all in turns with the given options; then those changes that were an
    improvement beyond the noise are made together, and race against the best of them.
    """
    ways = {_BASE: base, **alternatives(base, libraries)}
    runs, failed = _built(source, target, tuned, ways, note)
    times, _ = race_models(_without_torch(source), runs, target, seconds, note)
    better = [name for name in times if name != _BASE and _beats(times[name], times[_BASE])]
    if len(better) > 1:
        together = CompileOptions.of(_plain(base) | {k: v for name in better for k, v in _changes(base, ways[name])})
        ways[_BOTH] = together
        best = min(better, key=lambda name: times[name].min)
        more, missed = _built(source, target, tuned, {_BOTH: together}, note)
        failed |= missed
        again, _ = race_models(_without_torch(source), {best: runs[best], **more}, target, seconds, note)
        times |= {_BOTH: again[_BOTH]} if _BOTH in again and _beats(again[_BOTH], again[best]) else {}
    chosen = min(better + [n for n in (_BOTH,) if n in times], key=lambda name: times[name].min, default=_BASE)
    if _BOTH in times:
        chosen = _BOTH
    rows = [VariantTime(name, times[name].min, name == chosen) for name in times]
    rows += [VariantTime(name, error=why) for name, why in failed.items()]
    return ways[chosen], tuple(rows)


_BASE, _BOTH = "as given", "all improvements"


def _changes(base: CompileOptions, other: CompileOptions) -> list[tuple[str, Any]]:
    before = _plain(base)
    return [(name, value) for name, value in _plain(other).items() if value != before[name]]


def _beats(one: Times, other: Times) -> bool:
    """Whether a model is faster by more than the noise of the race."""
    return one.min * (1 + max(one.spread, other.spread)) < other.min


def _without_torch(source: ModelSource) -> ModelSource:
    return ModelSource(source.text, source.name, source.module, source.inputs)


def _built(
    source: ModelSource, target: Target, tuned: Tuned | None, ways: Mapping[str, CompileOptions], note: Note
) -> tuple[dict[str, Contender], dict[str, str]]:
    """The models that could be compiled and are correct, and why the others are missing."""
    runs: dict[str, Contender] = {}
    failed: dict[str, str] = {}
    for name, options in ways.items():
        note(f"compiling ({name})")
        try:
            run = prepared(source, target, tuned, options)
            largest_error(source, {name: run})
            runs[name] = run
        except SearchLabError as e:
            if name == _BASE:
                raise
            failed[name] = str(e)
    return runs, failed
