"""Racing the code that searchlab generates for a workload against the libraries, after checking all results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec

import numpy as np

from searchlab.backend import Artifact, backend_of, compile, load
from searchlab.bench import with_numpy
from searchlab.bench.library_threads import threads
from searchlab.bench.operands import Array, LibraryOperands
from searchlab.defaults import default_schedule
from searchlab.errors import MeasureError, SearchLabError
from searchlab.interpreter import installed_only
from searchlab.ir.program import Program
from searchlab.runtime.memory import lasting, placed
from searchlab.targets import CpuTarget, Target
from searchlab.timing.race import Contender, OtherLoad, Steady, race
from searchlab.timing.turns import Times
from searchlab.workloads import Workload

OURS, DEFAULT = "searchlab", "default"  # a program found by a search, and the default schedule
LIBRARIES = ("numpy", "torch", "onnxruntime")  # in their usual layouts
EVERY_LIBRARY = (*LIBRARIES, "torch-nhwc")
BASELINES = (DEFAULT, *LIBRARIES)  # the contenders that the best of a search is compared with
# Below this arithmetic intensity (operations per byte), every current CPU is memory-bound.
MEMORY_BOUND = 4.0


@dataclass(frozen=True)
class ContestRow:
    """The result for one workload: times of the correct contenders, reasons for those that were not timed.

    `inexact` says what is wrong with the results of libraries that were timed nevertheless: products of bytes that
    saturate at 16 bits, which is what they offer on this CPU.
    """

    case: str
    workload: Workload
    threads: int
    times: Mapping[str, Times] = field(default_factory=dict)
    wrong: Mapping[str, str] = field(default_factory=dict)
    inexact: Mapping[str, str] = field(default_factory=dict)
    other_load: float = 0.0  # the share of all cores used by other processes during the race

    @property
    def memory_bound(self) -> bool:
        """Whether the workload is limited by memory rather than arithmetic."""
        return self.workload.flops < MEMORY_BOUND * self.workload.bytes

    @property
    def unit(self) -> str:
        """The unit of `rate`."""
        return "GB/s" if self.memory_bound else "GFLOP/s"

    def rate(self, contender: str) -> float | None:
        """Billions of operations per second, or of bytes if the workload is memory-bound."""
        if contender not in self.times:
            return None
        amount = self.workload.bytes if self.memory_bound else self.workload.flops
        return amount / self.times[contender].min / 1e9

    @property
    def best_library(self) -> str | None:
        """The fastest library; None if no library was timed."""
        return min((n for n in self.times if n != OURS), key=lambda n: self.times[n].min, default=None)

    @property
    def ratio(self) -> float | None:
        """The speed-up over the best library, from best times, which other processes disturb least."""
        best = self.best_library
        if best is None or OURS not in self.times:
            return None
        return self.times[best].min / self.times[OURS].min


Prepared = tuple[Contender, Sequence[Array]]  # a function to run, and the outputs it fills
Maker = Callable[[Mapping[str, Array], Sequence[Array]], Prepared]  # from inputs and memory for outputs


def measure(
    workload: Workload,
    target: Target,
    case: str | None = None,
    seconds: float = 1.0,
    min_rounds: int = 10,
    pack_weights: bool = False,
) -> ContestRow:
    """Races the default schedule of a workload against the libraries."""
    ours: dict[str, Maker] = {OURS: lambda inputs, out: prepare(workload, inputs, target, pack_weights, out)}
    return contest(workload, target, ours, case, seconds, min_rounds)


def contest(
    workload: Workload,
    target: Target,
    makers: Mapping[str, Maker],
    case: str | None = None,
    seconds: float = 1.0,
    min_rounds: int = 10,
    steady: Steady | None = None,
    copies: int = 1,
    rivals: bool = True,
) -> ContestRow:
    """Times the contenders from `makers`, interleaved with the libraries; all results are checked first.

    Without `rivals`, the libraries, no turn has to wait for the threads of others to stop spinning: turns are single
    samples then, so that many more of them fit into the same time.

    Each maker prepares `copies`, the best of which counts: occasionally a program is several times slower than usual
    for as long as it stays loaded, and its load address can make a difference of a few per cent.  All programs of ours
    read and write the same memory, so that none benefits from where its data lie.
    """
    if backend_of(target).emulated:
        raise MeasureError(f"{target.name} is emulated here: its times cannot be compared with those of libraries")
    inputs = {name: placed(x) for name, x in workload.inputs().items()}
    expected = workload.reference(inputs)
    out = [lasting(expected[name].shape, expected[name].dtype) for name in workload.program.outputs]
    contenders: dict[str, Contender | list[Contender]] = {}
    problems: dict[str, str | None] = {}
    with threads(target.threads):
        for name, make in makers.items():
            runs: list[Contender] = []
            problems[name] = None
            try:
                for _ in range(copies):
                    run, outputs = make(inputs, out)
                    run()
                    problems[name] = problems[name] or workload.check(outputs, inputs, expected)
                    runs.append(run)
                contenders[name] = runs
            except SearchLabError as e:
                problems[name] = f"{type(e).__name__}: {e}"
        inexact: dict[str, str] = {}  # onnxruntime saturates sums of products of bytes where the CPU has no VNNI
        called = libraries(workload, inputs, target.threads) if rivals and isinstance(target, CpuTarget) else {}
        for name, call in called.items():
            contenders[name] = call
            problem = workload.check(np.ascontiguousarray(call()), inputs, expected)
            if problem is not None and name == "onnxruntime" and LibraryOperands(workload, inputs).multiplies_bytes:
                inexact[name], problem = problem, None
            problems[name] = problem
        right = {name: call for name, call in contenders.items() if problems[name] is None}
        with OtherLoad() as others:
            times = race(right, seconds, min_rounds, target.threads if called else 1, steady)
    wrong = {name: problem for name, problem in problems.items() if problem is not None}
    return ContestRow(case or workload.label, workload, target.threads, times, wrong, inexact, others.share)


def prepare(
    workload: Workload,
    inputs: Mapping[str, Array],
    target: Target,
    pack_weights: bool = False,
    out: Sequence[Array] | None = None,
) -> Prepared:
    """Compiles the default schedule and binds it to these arrays."""
    weights = workload.weights if pack_weights else ()
    program = default_schedule(workload.program, target, weights, workload.ranges)
    return prepare_program(program, workload, inputs, target, weights, out)


def prepare_program(
    program: Program | Artifact,
    workload: Workload,
    inputs: Mapping[str, Array],
    target: Target,
    weights: Sequence[str] = (),
    out: Sequence[Array] | None = None,
) -> Prepared:
    """Loads a program of the workload, built or not, for these arrays; `weights` are bound in its layout."""
    kernel = compile(program, target) if isinstance(program, Program) else load(program)
    if weights:
        kernel = kernel.bind(**{name: inputs[name] for name in weights})
    run, outputs = kernel.prepare(*(inputs[n] for n in workload.program.inputs if n not in weights), out=out)
    for y in outputs:
        y.view(np.uint8).fill(0xFF)  # an element that is never written must not be correct by accident
    return run, outputs


def libraries(workload: Workload, inputs: Mapping[str, Array], count: int) -> dict[str, Contender]:
    """The implementations of a workload in the libraries installed, on these arrays; each function returns its result.

    `count` is the number of threads for those that start their own.  For the others it is set around a race: `threads`.
    """
    job = LibraryOperands(workload, inputs)
    found: dict[str, Contender] = {}
    if job.has_halves:
        return found  # numpy has one of these types, without a product that is not a loop
    plain = with_numpy.contender(job)
    if plain is not None:
        found["numpy"] = plain
    if find_spec("torch") is not None:
        from searchlab.bench import with_torch  # takes seconds to import

        found |= with_torch.contenders(job)
    if find_spec("onnxruntime") is not None and find_spec("onnx") is not None:
        with installed_only():
            from searchlab.bench import with_onnxruntime  # so does this

        session = with_onnxruntime.contender(job, count)
        if session is not None:
            found["onnxruntime"] = session
    return found


def geometric_mean(values: list[float]) -> float | None:
    """The geometric mean, which suits ratios; None without values."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None
