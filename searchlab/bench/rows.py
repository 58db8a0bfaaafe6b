"""The code searchlab makes for a workload, checked and then timed beside numpy and torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from searchlab.bench.job import Array, Job
from searchlab.bench.timing import Contender, OtherLoad, Steady, Times, joined, race, threads
from searchlab.errors import SearchLabError
from searchlab.ir.program import Program
from searchlab.targets import Target
from searchlab.workloads import Workload

OURS = "searchlab"
LIBRARIES = ("numpy", "torch", "torch-nhwc")
# Below this many operations per byte the memory, not the arithmetic, limits every CPU of today.
MEMORY_BOUND = 4.0


@dataclass(frozen=True)
class Row:
    """One workload's result: times of those that were right, reasons for those that were not timed."""

    case: str
    workload: Workload
    threads: int
    times: Mapping[str, Times] = field(default_factory=dict)
    wrong: Mapping[str, str] = field(default_factory=dict)
    other_load: float = 0.0  # the share of all cores that other processes took during the race

    @property
    def memory_bound(self) -> bool:
        return self.workload.flops < MEMORY_BOUND * self.workload.bytes

    @property
    def unit(self) -> str:
        return "GB/s" if self.memory_bound else "GFLOP/s"

    def rate(self, contender: str) -> float | None:
        """Billions of operations per second, or of bytes if memory is the limit."""
        if contender not in self.times:
            return None
        amount = self.workload.bytes if self.memory_bound else self.workload.flops
        return amount / self.times[contender].min / 1e9

    @property
    def best_library(self) -> str | None:
        return min((n for n in self.times if n != OURS), key=lambda n: self.times[n].min, default=None)

    @property
    def ratio(self) -> float | None:
        """How many times as fast as the best library, by the best times: they suffer least from other programs."""
        best = self.best_library
        if best is None or OURS not in self.times:
            return None
        return self.times[best].min / self.times[OURS].min


Prepared = tuple[Contender, Sequence[Array]]  # a function to run, and the outputs it fills
Maker = Callable[[Mapping[str, Array]], Prepared]


def measure(
    workload: Workload,
    target: Target,
    case: str | None = None,
    seconds: float = 1.0,
    min_rounds: int = 10,
    pack_weights: bool = False,
) -> Row:
    """The default schedule of a workload beside the libraries."""
    ours = {OURS: lambda inputs: prepare(workload, inputs, target, pack_weights)}
    return contest(workload, target, ours, case, seconds, min_rounds)


def contest(
    workload: Workload,
    target: Target,
    makers: Mapping[str, Maker],
    case: str | None = None,
    seconds: float = 1.0,
    min_rounds: int = 10,
    steady: Steady | None = None,
    legs: int = 1,
) -> Row:
    """What `makers` prepare on the workload's inputs, in turns with the libraries; all results are checked first.

    A race of several `legs` prepares everything anew for each, in other memory: once in a while a program takes several
    times as long all through a race, and no longer than usual in the next.
    """
    given = workload.inputs()
    expected = workload.reference(given)
    each = None if steady is None else replace(steady, seconds=steady.seconds / legs)
    rounds = math.ceil(min_rounds / legs)
    found = [_leg(workload, target, makers, given, expected, seconds / legs, rounds, each) for _ in range(legs)]
    wrong = {name: problem for leg in found for name, problem in leg.wrong.items()}
    times = joined([{name: t for name, t in leg.times.items() if name not in wrong} for leg in found])
    load = sum(leg.other_load for leg in found) / legs
    return Row(case or workload.label, workload, target.threads, times, wrong, load)


def _leg(
    workload: Workload,
    target: Target,
    makers: Mapping[str, Maker],
    given: Mapping[str, Array],
    expected: Any,
    seconds: float,
    min_rounds: int,
    steady: Steady | None,
) -> Row:
    from searchlab.codegen.memory import placed

    inputs = {name: placed(x) for name, x in given.items()}
    contenders: dict[str, Contender] = {}
    problems: dict[str, str | None] = {}
    with threads(target.threads):
        for name, make in makers.items():
            try:
                run, outputs = make(inputs)
                run()
                contenders[name] = run
                problems[name] = workload.check(outputs, inputs, expected)
            except SearchLabError as e:
                problems[name] = f"{type(e).__name__}: {e}"
        for name, call in libraries(workload, inputs).items():
            contenders[name] = call
            problems[name] = workload.check(np.ascontiguousarray(call()), inputs, expected)
        right = {name: call for name, call in contenders.items() if problems[name] is None}
        with OtherLoad() as others:
            times = race(right, seconds, min_rounds, target.threads, steady)
    wrong = {name: problem for name, problem in problems.items() if problem is not None}
    return Row(workload.label, workload, target.threads, times, wrong, others.share)


def prepare(workload: Workload, inputs: Mapping[str, Array], target: Target, pack_weights: bool = False) -> Prepared:
    """The compiled default schedule on these arrays."""
    from searchlab.defaults import default_schedule

    weights = workload.weights if pack_weights else ()
    return prepare_program(default_schedule(workload.program, target, weights), workload, inputs, target, weights)


def prepare_program(
    program: Program,
    workload: Workload,
    inputs: Mapping[str, Array],
    target: Target,
    weights: Sequence[str] = (),
) -> Prepared:
    """A compiled program of the workload on these arrays; `weights` are bound, so that it stores them as it likes."""
    from searchlab.codegen.kernel import compile

    kernel = compile(program, target)
    if weights:
        kernel = kernel.bind(**{name: inputs[name] for name in weights})
    run, outputs = kernel.prepare(*(inputs[n] for n in workload.program.inputs if n not in weights))
    for y in outputs:
        y.view(np.uint8).fill(0xFF)  # an element that is never written must not be right by accident
    return run, outputs


def libraries(workload: Workload, inputs: Mapping[str, Array]) -> dict[str, Contender]:
    """What the libraries offer for a workload, on these arrays; each function returns its result."""
    from searchlab.bench import with_numpy

    job = Job(workload, inputs)
    found: dict[str, Contender] = {}
    plain = with_numpy.contender(job)
    if plain is not None:
        found["numpy"] = plain
    if find_spec("torch") is not None:
        from searchlab.bench import with_torch

        found |= with_torch.contenders(job)
    return found


def geometric_mean(values: list[float]) -> float | None:
    """The mean that suits ratios."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None
