"""What is done to one candidate inside its own process: build; load, check against the reference, time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from searchlab.codegen.kernel import Artifact, Kernel, build, pack
from searchlab.errors import BuildError, ConstraintError, KernelError, MeasureError, SearchLabError
from searchlab.ir.expr import value_of
from searchlab.measure.fault import Board
from searchlab.measure.guard import Array, Guarded, aligned, mark, memory_limit, same
from searchlab.measure.job import Job, Outcome, Status
from searchlab.measure.timing import Sampler
from searchlab.workloads import Workload

Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Data:
    """The inputs of a workload and what its outputs should be; `guarded` holds the inputs again, between guard pages."""

    workload: Workload
    inputs: Arrays
    expected: Arrays | None
    guarded: Mapping[str, Guarded]

    @staticmethod
    def of(workload: Workload, inputs: Arrays, expected: Arrays | None) -> Data:
        placed = {n: aligned(x.shape, x.dtype) for n, x in inputs.items()}
        for name, x in inputs.items():
            placed[name][...] = x
        checked = inputs if expected is not None else {}
        return Data(workload, placed, expected, {n: Guarded.of(f"input '{n}'", x) for n, x in checked.items()})

    @cached_property
    def nbytes(self) -> int:
        copies = 2 if self.guarded else 1
        return copies * sum(x.nbytes for x in self.inputs.values()) + sum(x.nbytes for x in (self.expected or {}).values())

    @property
    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and dtype of every output."""
        buffers = self.workload.program.buffers
        return {n: (tuple(_number(e) for e in buffers[n].shape), buffers[n].dtype) for n in self.workload.program.outputs}


def make_data(workload: Workload, seed: int, check: bool) -> tuple[Arrays, Arrays | None]:
    """Inputs and, if they are wanted, the outputs that belong to them."""
    inputs = {n: np.ascontiguousarray(x) for n, x in workload.inputs(seed).items()}
    return inputs, workload.reference(inputs) if check else None


def build_candidate(job: Job, board: Board) -> Artifact | Outcome:
    """The object code of the job's program."""
    assert job.program is not None
    board.enter("building")
    board.expect(job.limits.memory_bytes)
    try:
        with memory_limit(job.limits.memory_bytes):
            return build(job.program, job.target)
    except Exception as error:
        return Outcome(job.id, _status(error, "build"), error=_text(error))


def run_candidate(job: Job, artifact: Artifact, data: Data, board: Board, deadline: float) -> Outcome:
    """Checks and times object code; `deadline` (of time.monotonic) is when this process will be killed."""
    board.expect(job.limits.memory_bytes)
    try:
        return _Candidate(job, artifact, data, board).run(deadline)
    except Exception as error:
        return Outcome(job.id, _status(error, "run"), error=_text(error))


class _Candidate:
    def __init__(self, job: Job, artifact: Artifact, data: Data, board: Board) -> None:
        self.job, self.artifact, self.data, self.board = job, artifact, data, board
        self.memory = job.limits.memory_bytes
        self.checked: dict[str, Array] = {}
        _check_names(artifact, data)

    def run(self, deadline: float) -> Outcome:
        self.board.enter("loading")
        self.packed = self._pack()
        begin, took = time.perf_counter(), None
        if self.job.protocol.check:
            took, wrong = self._check()
            if wrong is not None:
                return Outcome(self.job.id, "wrong", error=wrong, check_s=time.perf_counter() - begin)
        return replace(self._time(deadline, took), check_s=self._seconds_between(begin))

    def _seconds_between(self, begin: float) -> float:
        return self.began_timing - begin

    def _pack(self) -> dict[str, Array]:
        """Inputs that the schedule stores in another layout; with run-time sizes the kernel packs them itself."""
        if self.artifact.sizes:
            return {}
        buffers = {b.name: b for b in self.artifact.inputs}
        return {
            la.buffer: pack(la, buffers[la.buffer], self.data.inputs[la.buffer])
            for la in self.artifact.layouts
            if la.buffer in buffers
        }

    def _prepare(self, inputs: Arrays, packed: Arrays, outputs: Arrays) -> Callable[[], None]:
        kernel = Kernel(self.artifact, packed)
        given = [inputs[b.name] for b in self.artifact.inputs if b.name not in packed]
        run, _ = kernel.prepare(*given, out=[outputs[b.name] for b in self.artifact.outputs])
        return run

    # --- is it right --------------------------------------------------------------------------------------------------

    def _check(self) -> tuple[float, str | None]:
        """How long one run took, and what is wrong with it."""
        packed = {n: Guarded.of(f"packed input '{n}'", x) for n, x in self.packed.items()}
        outputs = {n: Guarded(f"output '{n}'", *form) for n, form in self.data.outputs.items()}
        self.checked = {n: mark(g.array) for n, g in outputs.items()}
        inputs = {n: g for n, g in self.data.guarded.items() if n not in packed}
        run = self._prepare(_arrays(inputs), _arrays(packed), self.checked)
        everything = [*inputs.values(), *packed.values(), *outputs.values()]
        self.board.guard([g.region for g in everything])
        self.board.enter("checking")
        begin = time.perf_counter()
        with memory_limit(self.memory):
            run()
        took = time.perf_counter() - begin
        for g in everything:
            if not g.intact:
                return took, f"it writes before the beginning of {g.region.name}"
        for name, g in (*inputs.items(), *packed.items()):
            if not same(g.array, self.packed.get(name, self.data.inputs[name])):
                return took, f"it changes its {g.region.name}"
        return took, self._compare(self.checked)

    def _compare(self, outputs: Arrays) -> str | None:
        return self.data.workload.check(outputs, self.data.inputs, self.data.expected)

    # --- how fast is it -----------------------------------------------------------------------------------------------

    def _time(self, deadline: float, guess_s: float | None) -> Outcome:
        outputs = {n: aligned(*form) for n, form in self.data.outputs.items()}
        run = self._prepare(self.data.inputs, self.packed, outputs)
        self.began_timing = time.perf_counter()
        self.board.enter("timing")
        with memory_limit(self.memory):
            sampler = Sampler(run, self.job.protocol, self.artifact.target, deadline)
            found = sampler.take(self.job.best_s, guess_s)
        spent = time.perf_counter() - self.began_timing
        # One run may be right and the next one wrong, for example if threads race; equal bytes need no second look.
        wrong = next((self._compare(outputs) for n, x in self.checked.items() if not same(x, outputs[n])), None)
        if wrong is not None:
            return Outcome(self.job.id, "wrong", error=f"right once, then {wrong}", run_s=spent)
        return Outcome(
            self.job.id,
            "ok",
            found.times,
            number=found.number,
            run_s=spent,
            stopped_early=found.stopped_early,
            notes=found.notes,
        )


def _check_names(artifact: Artifact, data: Data) -> None:
    for what, got, want in (
        ("inputs", [b.name for b in artifact.inputs], list(data.inputs)),
        ("outputs", [b.name for b in artifact.outputs], list(data.outputs)),
    ):
        if set(got) != set(want):
            label = data.workload.label
            raise MeasureError(f"{label} has the {what} {', '.join(want)}, the candidate has {', '.join(got)}")


def _arrays(guarded: Mapping[str, Guarded]) -> dict[str, Array]:
    return {n: g.array for n, g in guarded.items()}


def _number(extent: object) -> int:
    found = value_of(extent)  # type: ignore[arg-type]
    if found is None:
        raise MeasureError(f"the size {extent} is not fixed; measure the workload at some sizes (workload.at)")
    return found


def _status(error: Exception, otherwise: Status) -> Status:
    if isinstance(error, MemoryError):
        return "oom"
    if isinstance(error, ConstraintError):
        return "constraints"
    if isinstance(error, BuildError):
        return "build"
    return otherwise


def _text(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return f"memory_bytes: {error}" if str(error) else "memory_bytes: the memory limit was reached"
    expected = isinstance(error, SearchLabError) and not isinstance(error, KernelError)
    return str(error) if expected else f"{type(error).__name__}: {error}"
