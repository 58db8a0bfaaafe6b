"""The conformance suite of back ends."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence

import numpy as np

from searchlab.backend import Array, Arrays, Artifact, Backend, Kernel, backend_of
from searchlab.defaults import default_schedule
from searchlab.errors import BuildError, KernelError, SearchLabError
from searchlab.ir.expr import knob
from searchlab.measure import Job, Protocol, Worker
from searchlab.runtime.memory import aligned, placed
from searchlab.schedule import Schedule
from searchlab.targets import Target, parse
from searchlab.workloads import Workload
from searchlab.workloads import parse as workload

# Small enough for any machine, a simulated one too: a product, weights that may be packed, sums that depend on sums.
SPECS = ("matmul:m=4,n=8,k=6", "dense:m=4,n=8,k=6", "softmax:rows=3,cols=10")
_QUICK = Protocol(warmup=0, repeats=3, min_repeat_ms=0.1, beaten=None)


def check_backend(backend: Backend, target: Target, seed: int = 0) -> None:
    """Check a back end on a target of its kind that this machine can run.

    The target can be serialised and identifies the back end; code is plain data, gives correct results however it is
    called, and is refused with the right kind of error; a worker builds, checks and times it.
    """
    _check_target(backend, target)
    for spec in SPECS:
        _check_workload(backend, target, workload(spec), seed)
    _check_refusals(backend, target)
    _check_measured(target, workload(SPECS[0]), seed)


def _check_target(backend: Backend, target: Target) -> None:
    assert type(backend_of(target)) is type(backend), f"{target.name}: leads to {type(backend_of(target)).__name__}"
    described = json.loads(json.dumps(target.to_dict()))
    again = Target.from_dict(described)
    assert again == target == pickle.loads(pickle.dumps(target)), f"{target.name}: changes when it travels"
    assert again.fingerprint() == target.fingerprint(), f"{target.name}: another fingerprint after it travelled"
    for name in type(target).names():
        assert parse(name).kind == target.kind, f"target '{name}' is of kind {parse(name).kind}, not {target.kind}"
    backend.require(target)


def _check_workload(backend: Backend, target: Target, w: Workload, seed: int) -> None:
    for program in (w.program, default_schedule(w.program, target, w.weights)):
        lowered = backend.lower(program, target)
        assert lowered.outputs == program.outputs, f"{w.label}: lowering changes the outputs"
        artifact = backend.build(program, target)
        assert isinstance(artifact, Artifact) and artifact.program.hash == program.hash, f"{w.label}: another program"
        kernel = backend.load(pickle.loads(pickle.dumps(artifact)))
        _check_calls(kernel, w, seed)
        _check_runs(kernel, w, seed)
        for form in backend.forms:
            assert backend.listing(program, target, form).strip(), f"{w.label}: an empty listing of {form}"


def _check_calls(kernel: Kernel, w: Workload, seed: int) -> None:
    """Check the results of plain calls, of calls into given arrays and with bound weights, and of prepared calls."""
    inputs = {name: placed(x) for name, x in w.inputs(seed).items()}
    _right(w, kernel(*inputs.values()), inputs, "called")
    run, outputs = kernel.prepare(*inputs.values())
    for _ in range(2):
        run()
    _right(w, outputs, inputs, "prepared and run twice")
    given = tuple(aligned(y.shape, y.dtype) for y in outputs)
    kernel(*inputs.values(), out=given if len(given) > 1 else given[0])
    _right(w, given, inputs, "called with out=")
    bound = kernel.bind(**{name: inputs[name] for name in w.weights})
    _right(w, bound(*(x for name, x in inputs.items() if name not in w.weights)), inputs, "called with bound weights")


def _check_runs(kernel: Kernel, w: Workload, seed: int) -> None:
    """Check the results of measured runs: inputs packed ahead, external scratch memory, outputs read back."""
    inputs = {name: placed(x) for name, x in w.inputs(seed).items()}
    before = {name: x.copy() for name, x in inputs.items()}
    made = kernel.prepare(*inputs.values())[1]
    outputs = {b.name: np.zeros_like(y) for b, y in zip(kernel.artifact.outputs, made, strict=True)}
    runs = kernel.ready(inputs, kernel.pack(inputs), outputs, _memory)
    for count in (1, 3):
        for y in outputs.values():
            y.view(np.uint8).fill(0xFF)
        runs(count)
        runs.read_back()
        _right(w, tuple(outputs.values()), inputs, f"run {count} times and read back")
    changed = [name for name, x in inputs.items() if not np.array_equal(x, before[name])]
    assert not changed, f"{w.label}: runs change the inputs {', '.join(changed)}"


def _check_refusals(backend: Backend, target: Target) -> None:
    w = workload(SPECS[0])
    s = Schedule(w.program)
    s.split(s.loops(next(iter(w.program.blocks)))[0], [None, knob("t")], tail=True)
    _refuses(lambda: backend.build(s.program, target), BuildError, "a program whose knobs have no values")
    kernel = backend.load(backend.build(w.program, target))
    inputs = list(w.inputs().values())
    _refuses(lambda: kernel(*inputs[:-1]), KernelError, "a call with too few arrays")
    _refuses(lambda: kernel(*(x[:-1] for x in inputs)), KernelError, "arrays of other shapes")
    _refuses(lambda: kernel.bind(no_such_input=inputs[0]), KernelError, "a constant for an input that does not exist")


def _check_measured(target: Target, w: Workload, seed: int) -> None:
    """Check that a worker process builds, checks and times a program, and detects a wrong one."""
    one, other = (workload(f"elementwise:rows=3,cols=4,ops={name}") for name in ("relu", "neg"))
    with Worker("conformance") as worker:
        outcome = worker.run(Job("right", w, target, w.program, seed=seed, protocol=_QUICK))
        assert outcome.ok, f"{w.label} cannot be measured: {outcome.status}: {outcome.error}"
        assert len(outcome.times) == _QUICK.repeats and min(outcome.times) > 0, f"{w.label}: {outcome.times}"
        built = worker.build(Job("built", w, target, w.program))
        assert isinstance(built, Artifact), f"{w.label} cannot be built by a worker: {built}"
        again = worker.run(Job("again", w, target, artifact=built, seed=seed, protocol=_QUICK))
        assert again.ok, f"{w.label}, built before, cannot be measured: {again.status}: {again.error}"
        wrong = worker.run(Job("wrong", one, target, other.program, seed=seed, protocol=_QUICK))
        assert wrong.status == "wrong", f"{one.label}: a program with other results is '{wrong.status}': {wrong.error}"


def _right(w: Workload, outputs: Sequence[Array] | Array, inputs: Arrays, how: str) -> None:
    wrong = w.check(outputs, inputs)
    assert wrong is None, f"{w.label}, {how}: {wrong}"


def _refuses(call: Callable[[], object], error: type[SearchLabError], what: str) -> None:
    try:
        call()
    except error:
        return
    except Exception as e:  # whatever the back end raises instead is what the message is about
        raise AssertionError(f"{what}: raises {type(e).__name__}, expected {error.__name__}: {e}") from e
    raise AssertionError(f"{what} is not refused")


def _memory(size: int) -> tuple[int, object]:
    memory = aligned((size,), np.uint8)
    return memory.ctypes.data, memory
