"""The work on candidates in an expendable process: building, or loading, checking against the reference and timing."""

from __future__ import annotations

import gc
import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from searchlab.backend import Artifact, Backend, Kernel, backend_of
from searchlab.errors import BuildError, ConstraintError, MeasureError, SearchLabError
from searchlab.measure.job import Job, Outcome, Status
from searchlab.measure.workers.child import Ask
from searchlab.measure.workers.fault import FaultPage
from searchlab.measure.workers.guard import Array, Guarded, mark, memory_limit, same
from searchlab.measure.workers.inputs import Arrays, JobData
from searchlab.runtime.memory import lasting
from searchlab.timing.sampler import Sampler

_EMULATED = {"emulated": "times of an emulator"}


@dataclass(frozen=True)
class RunTask:
    """A pickled job with object code, the deadline of its process (by time.monotonic), and the speed of its core."""

    job: bytes
    deadline: float
    level: float | None = None


@dataclass(frozen=True)
class Checked:
    """A candidate has run once, for `seconds`; `wrong` is an error that its own process detected."""

    seconds: float
    wrong: str | None


class BuildBench:
    """Builds programs."""

    def __init__(self, board: FaultPage) -> None:
        self._board = board

    def work(self, task: bytes, ask: Ask) -> Artifact | Outcome:
        """The object code of a pickled job's program."""
        self._board.enter("building")
        job: Job = pickle.loads(task)
        assert job.program is not None
        try:
            with _limited(job, self._board):
                backend = backend_of(job.target)
                return backend.examined(backend.build(job.program, job.target))
        except Exception as error:  # whatever a candidate brings about is its outcome
            return failed(job, error, "build")


class RunBench:
    """Checks and times kernels of one workload.

    All of them are timed on the same arrays, so that none benefits from the placement of its data in memory.
    """

    def __init__(self, data: JobData, board: FaultPage) -> None:
        self._data, self._board = data, board
        self._outputs = {n: mark(lasting(*form)) for n, form in data.forms.items()}
        self._evict: Callable[[], None] | None = None

    def work(self, task: RunTask, ask: Ask) -> Outcome:
        """The outcome of a pickled job that has object code."""
        self._board.enter("loading")
        job: Job = pickle.loads(task.job)
        backend = backend_of(job.target)
        try:
            backend.open_device(job.target)
        except Exception as error:  # a driver may raise anything
            return replace(failed(job, error, "run"), notes={"environment": "the device could not be opened"})
        try:
            if job.protocol.cache == "cold" and self._evict is None:  # its memory does not count as the candidate's
                self._evict = backend.evictor(job.target)
            with _limited(job, self._board):
                return self._measure(job, ask, task.deadline, task.level)
        except Exception as error:  # whatever a candidate brings about is its outcome
            return failed(job, error, "run")

    def _measure(self, job: Job, ask: Ask, deadline: float, level: float | None) -> Outcome:
        assert job.artifact is not None
        backend = backend_of(job.artifact.target)
        try:
            backend.require(job.artifact.target)
        except BuildError as error:
            return replace(failed(job, error, "build"), notes={"environment": "another machine could run it"})
        _check_names(job.artifact, self._data)
        kernel = backend.load(job.artifact)
        packed = kernel.pack(self._data.inputs)
        took = None
        if job.protocol.check:
            checked = self._check(kernel, packed)
            deadline += ask(checked)
            took = checked.seconds
        if job.modelled:
            return _modelled(job, kernel, took or 0.0)
        return self._time(job, backend, kernel, packed, deadline, took, level)

    def _check(self, kernel: Kernel, packed: Arrays) -> Checked:
        """Runs the kernel once, between guard pages."""
        ours = {n: Guarded.of(f"packed input '{n}'", x) for n, x in packed.items()}
        inputs, outputs = self._data.guarded, self._data.outputs
        scratch: list[Guarded] = []
        run = kernel.ready(_arrays(inputs), _arrays(ours), _arrays(outputs), lambda n: _guarded_scratch(n, scratch))
        self._board.guard([g.region for g in (*inputs.values(), *ours.values(), *outputs.values(), *scratch)])
        self._board.enter("checking")
        begin = time.perf_counter()
        run()
        took = time.perf_counter() - begin
        run.read_back()
        wrong = [*(g.damage(packed[n]) for n, g in ours.items()), *(g.damage() for g in scratch)]
        return Checked(took, next((w for w in wrong if w is not None), None))

    def _time(
        self,
        job: Job,
        backend: Backend,
        kernel: Kernel,
        packed: Arrays,
        deadline: float,
        guess_s: float | None,
        level: float | None,
    ) -> Outcome:
        begin = time.perf_counter()
        for array in self._outputs.values():
            mark(array)
        run = kernel.ready(self._data.inputs, packed, self._outputs, _lasting_scratch)
        self._board.enter("timing")
        with _no_collection():
            evict = self._evict if job.protocol.cache == "cold" else None
            threads = kernel.artifact.target.threads
            probe = backend.clock_probe()
            found = Sampler(run, job.protocol, threads, deadline, evict, probe, level).take(job.best_s, guess_s)
        run.read_back()
        spent = time.perf_counter() - begin
        # A later run may be wrong even if the first was right, for example in a data race; equal bytes need no check.
        if any(not same(g.array, self._outputs[n]) for n, g in self._data.outputs.items()):
            wrong = self._data.compare(self._outputs)
            if wrong is not None:
                return Outcome(job.id, "wrong", error=f"right once, then {wrong}", run_s=spent)
        return Outcome(
            job.id,
            "ok",
            found.times,
            number=found.number,
            run_s=spent,
            stopped_early=found.stopped_early,
            notes={**found.notes, **kernel.notes(), **(_EMULATED if backend.emulated else {})},
            pulses=found.pulses if probe is not None else (),
        )


def _modelled(job: Job, kernel: Kernel, spent: float) -> Outcome:
    """The outcome of a candidate whose cost is modelled: cycles in the place of nanoseconds, and a note of that."""
    # here, as loading it takes a sixth of the time that every worker needs to start, and few need it
    from searchlab.analysis.gpu_cost import MODELLED, modelled_cycles

    cycles = modelled_cycles(kernel.program, kernel.artifact.target)
    notes = {**kernel.notes(), "modelled": MODELLED}
    return Outcome(job.id, "ok", (cycles * 1e-9,), number=1, run_s=spent, notes=notes)


def failed(job: Job, error: Exception, otherwise: Status) -> Outcome:
    """The outcome of an exception; `otherwise` is the status if the exception does not determine it."""
    status = otherwise
    text = str(error) if isinstance(error, SearchLabError) else f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError):
        status, text = "oom", f"memory_bytes: {str(error) or 'an allocation failed'}"
    elif isinstance(error, ConstraintError):
        status = "constraints"
    elif isinstance(error, BuildError):
        status = "build"
    return Outcome(job.id, status, error=text)


@contextmanager
def _limited(job: Job, board: FaultPage) -> Iterator[None]:
    board.expect(job.limits.memory_bytes)
    with memory_limit(job.limits.memory_bytes):
        yield


@contextmanager
def _no_collection() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _check_names(artifact: Artifact, data: JobData) -> None:
    for what, got, want in (
        ("inputs", [b.name for b in artifact.inputs], list(data.inputs)),
        ("outputs", [b.name for b in artifact.outputs], list(data.forms)),
    ):
        if set(got) != set(want):
            label = data.key.workload.label
            raise MeasureError(f"{label} has the {what} {', '.join(want)}, the candidate has {', '.join(got)}")


def _guarded_scratch(count: int, made: list[Guarded]) -> tuple[int, object]:
    """Scratch memory between guard pages, filled with one bits (NaN as a float) to expose reads before writes."""
    scratch = Guarded("scratch memory", (count,), "uint8")
    scratch.array[...] = 0xFF
    made.append(scratch)
    return scratch.region.start, scratch


def _lasting_scratch(count: int) -> tuple[int, object]:
    scratch = mark(lasting((count,), "uint8"))
    return scratch.ctypes.data, scratch


def _arrays(guarded: Mapping[str, Guarded]) -> dict[str, Array]:
    return {n: g.array for n, g in guarded.items()}
