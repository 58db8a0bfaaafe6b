"""Back ends: the CPU's and one of another kind hold to the conformance suite, and nothing above knows either."""

from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from importlib.metadata import EntryPoint

import numpy as np
import pytest
from interpreter_backend import InterpretedRuns, InterpretedTarget, InterpreterBackend

import searchlab as sl
from searchlab.backend import backend_of, build
from searchlab.bench import OURS, measure
from searchlab.errors import BuildError, MeasureError, TargetError
from searchlab.lab.records import Record
from searchlab.measure import Job, LocalMeasurer, Protocol
from searchlab.runtime.cpu_backend import CpuBackend
from searchlab.targets import Target, cpu_of, detect, kinds, known, parse, target
from searchlab.testing import check_backend
from searchlab.workloads import workload

MATMUL = workload("matmul", m=4, n=8, k=6)
INTERPRETED = InterpretedTarget()


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind is known by name, as an entry point would make it, but to these tests only."""
    monkeypatch.setitem(kinds._added, InterpretedTarget.kind, InterpretedTarget)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_back_end_for_cpus_conforms(threads: int) -> None:
    if threads > detect().cores:
        pytest.skip("this machine has one core")
    check_backend(CpuBackend(), detect(threads))


def test_another_back_end_conforms() -> None:
    check_backend(InterpreterBackend(), INTERPRETED)


class Forgetful(InterpreterBackend):
    """Never brings results back."""

    def load(self, artifact):  # type: ignore[no-untyped-def]
        kernel = super().load(artifact)
        kernel.ready = lambda *args: _Deaf(kernel.program, args[0], args[2])  # type: ignore[method-assign]
        return kernel


class _Deaf(InterpretedRuns):
    def read_back(self) -> None:
        pass


def test_the_suite_finds_a_back_end_that_loses_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("searchlab.testing.backends.backend_of", lambda target: Forgetful())
    with pytest.raises(AssertionError, match="matmul.*called"):
        check_backend(Forgetful(), INTERPRETED)


# --- nothing above knows which one it is ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    with LocalMeasurer() as made:
        yield made


def test_jobs_of_both_kinds_are_measured_side_by_side(measurer: LocalMeasurer) -> None:
    protocol = Protocol(warmup=0, repeats=3, min_repeat_ms=0.1, beaten=None)
    jobs = [Job(t.kind, MATMUL, t, MATMUL.program, protocol=protocol) for t in (INTERPRETED, detect(1))]
    found = {outcome.id: outcome for outcome in measurer.measure(jobs)}
    assert all(outcome.ok for outcome in found.values()), found
    assert len(found["interpreted"].times) == len(found["cpu"].times) == 3
    assert found["interpreted"].fastest > found["cpu"].fastest
    assert len(found["cpu"].pulses) == 3 and found["interpreted"].pulses == ()  # no clock probe there
    record = Record.from_outcome(jobs[0], found["interpreted"])
    assert record.cpu == "interpreter" and record.target == INTERPRETED.fingerprint()
    cpu = Record.from_outcome(jobs[1], found["cpu"])
    assert record.toolchain.keys() == {"searchlab", "codegen"} and "llvm" in cpu.toolchain
    assert record.toolchain["codegen"] != cpu.toolchain["codegen"]


def test_what_a_back_end_cannot_do_is_said(measurer: LocalMeasurer) -> None:
    cold = Job("cold", MATMUL, INTERPRETED, MATMUL.program, protocol=Protocol(cache="cold"))
    (outcome,) = measurer.measure([cold])
    assert outcome.status == "run" and "measure with cache: warm" in outcome.error


def test_a_program_is_compiled_by_the_back_end_of_its_target() -> None:
    inputs = MATMUL.inputs()
    kernel = sl.compile(MATMUL.program, INTERPRETED)
    assert type(kernel).__name__ == "InterpretedKernel" and kernel.program is MATMUL.program
    np.testing.assert_allclose(kernel(*inputs.values()), sl.compile(MATMUL.program)(*inputs.values()), rtol=1e-5)


def test_benchmarks_race_it() -> None:
    row = measure(MATMUL, INTERPRETED, seconds=0.01, min_rounds=2)
    assert not row.wrong and row.times[OURS].min > 0


# --- kinds of targets -------------------------------------------------------------------------------------------------


def test_a_kind_is_known_by_its_names() -> None:
    assert parse("interpreter") == INTERPRETED and known() == (*type(detect()).names(), "cuda", "rocm", "interpreter")
    assert INTERPRETED.to_dict() == {"kind": "interpreted", "vector_registers": 16, "threads": 1}
    assert "kind" not in detect().to_dict()  # as it always was
    with pytest.raises(TargetError, match="has no options"):
        parse("interpreter:threads=2")
    with pytest.raises(TargetError, match="cannot be chosen"):
        INTERPRETED.with_threads(2)


def test_an_entry_point_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("interpreted", "interpreter_backend:InterpretedTarget", "searchlab.targets")
    monkeypatch.delitem(kinds._added, "interpreted")
    with pytest.raises(TargetError, match="unknown target 'interpreter'"):
        parse("interpreter")
    monkeypatch.setattr(metadata, "entry_points", lambda group: (point,) if group == point.group else ())
    monkeypatch.setattr(target, "_installed", target._installed.__wrapped__)
    found = parse("interpreter")
    assert found == INTERPRETED == Target.from_dict(found.to_dict())
    assert isinstance(backend_of(found), InterpreterBackend)


def test_what_works_for_cpus_only_says_so() -> None:
    with pytest.raises(TargetError, match="interpreter is a target of kind 'interpreted'; this works for CPUs only"):
        cpu_of(INTERPRETED)
    with pytest.raises(BuildError, match="not object code for a CPU"):
        CpuBackend().load(build(MATMUL.program, INTERPRETED))
    assert replace(INTERPRETED, vector_registers=8).fingerprint() != INTERPRETED.fingerprint()


def test_a_kind_whose_back_end_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InterpretedTarget, "backend", "no_such_module:Backend")
    with pytest.raises(BuildError, match="back end of interpreted targets: cannot import 'no_such_module'"):
        backend_of(INTERPRETED)


def test_a_description_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(TargetError, match="unknown kind 'quantum'; known: cpu, cuda, interpreted"):
        Target.from_dict({"kind": "quantum"})
    with pytest.raises(TargetError, match="unknown kind"):
        Target.from_dict({"kind": "interpreter_backend:InterpretedTarget"})  # a description never names code


def test_caches_that_cannot_be_emptied() -> None:
    with pytest.raises(MeasureError, match="interpreter: its caches cannot be emptied"):
        backend_of(INTERPRETED).evictor(INTERPRETED)
