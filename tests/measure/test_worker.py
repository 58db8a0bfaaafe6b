"""One worker: what it measures and reports, how it times, what it refuses, and that it cleans up behind itself."""

import math
import os
import pickle
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from searchlab.backend import Artifact, build, load
from searchlab.defaults import default_schedule
from searchlab.errors import BuildError, ConstraintError, MeasureError
from searchlab.ir.expr import size
from searchlab.lab.records import Record
from searchlab.measure import Job, Limits, Outcome, Protocol, Worker
from searchlab.measure.workers.candidate import failed
from searchlab.measure.workers.guard import Guarded, mark, same
from searchlab.runtime.memory import aligned, placed
from searchlab.targets import detect
from searchlab.timing.sampler import Sampler
from searchlab.workloads import Operator, Workload, workload

MATMUL = workload("matmul", m=16, n=16, k=16)
TARGET = detect(1)
CODE = build(MATMUL.program, TARGET)
QUICK = Protocol(warmup=0, repeats=3, min_repeat_ms=0.1)
JOB = Job("a", MATMUL, TARGET, artifact=CODE, protocol=QUICK)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker("w") as made:
        yield made


# --- what comes back --------------------------------------------------------------------------------------------------


def test_a_program_is_built_checked_and_timed(worker: Worker) -> None:
    outcome = worker.run(Job("p", MATMUL, TARGET, program=MATMUL.program, protocol=QUICK))
    assert outcome.ok, outcome.error
    assert outcome.id == "p" and outcome.worker == "w" and outcome.attempts == 1
    assert len(outcome.times) == 3 and all(t > 0 for t in outcome.times)
    assert outcome.seconds == sorted(outcome.times)[1]
    assert outcome.number * min(outcome.times) >= QUICK.min_repeat_ms / 1000
    assert outcome.build_s > 0 and outcome.check_s > 0 and outcome.run_s > 0 and not outcome.stopped_early


def test_programs_of_bfloat16_are_measured_on_their_bits(worker: Worker) -> None:
    w = workload("matmul", m=9, n=16, k=5, dtype="bfloat16")
    outcome = worker.run(Job("b", w, TARGET, program=w.program, protocol=QUICK))
    assert outcome.ok, outcome.error


def test_object_code_can_come_from_elsewhere(worker: Worker) -> None:
    built = worker.build(Job("p", MATMUL, TARGET, program=MATMUL.program))
    assert isinstance(built, Artifact)
    inputs = MATMUL.inputs(3)
    assert MATMUL.check(load(built)(*inputs.values()), inputs) is None
    assert worker.build(JOB) is CODE  # there is nothing to do
    outcome = worker.run(replace(JOB, artifact=built))
    assert outcome.ok and outcome.build_s == 0


def test_every_seed_has_its_inputs(worker: Worker) -> None:
    for seed in (1, 2, 1):
        assert worker.run(replace(JOB, seed=seed)).ok


def test_packed_inputs_and_threads(worker: Worker) -> None:
    dense = workload("dense", m=16, n=256, k=24)
    target = detect()
    program = default_schedule(dense.program, target, dense.weights)
    built = build(program, target)
    assert built.layouts and (built.parallel or target.threads == 1)
    for _ in range(2):
        outcome = worker.run(Job("d", dense, target, artifact=built, protocol=QUICK))
        assert outcome.ok, outcome.error


def test_a_kernel_for_any_size_is_measured_at_one(worker: Worker) -> None:
    family = workload("matmul", m=size("m"), n=8, k=8)
    outcome = worker.run(Job("s", family.at(m=5), TARGET, program=family.program, protocol=QUICK))
    assert outcome.ok, outcome.error
    unfixed = worker.run(Job("u", family, TARGET, program=family.program, protocol=QUICK))
    assert unfixed.status == "run" and "m" in unfixed.error


def test_integers(worker: Worker) -> None:
    whole = workload("matmul", m=8, n=8, k=8, dtype="int8")
    outcome = worker.run(Job("i", whole, TARGET, program=whole.program, protocol=QUICK))
    assert outcome.ok, outcome.error


def test_the_check_can_be_left_out(worker: Worker) -> None:
    wrong = workload("matmul", m=16, n=16, k=8)
    swapped = replace(JOB, workload=wrong, artifact=build(wrong.program, TARGET))
    assert worker.run(replace(swapped, protocol=replace(QUICK, check=False))).ok


def test_cold_caches(worker: Worker) -> None:
    limits = Limits(run_s=120, memory_bytes=1 << 24)  # what empties the caches is not the candidate's
    outcome = worker.run(replace(JOB, limits=limits, protocol=replace(QUICK, cache="cold", repeats=2)))
    assert outcome.ok and len(outcome.times) == 2 and 1 <= outcome.number <= 8


def test_a_hopeless_candidate_is_run_once(worker: Worker) -> None:
    outcome = worker.run(replace(JOB, best_s=1e-12))
    assert outcome.ok and outcome.stopped_early and len(outcome.times) == 1 and outcome.number == 1
    outcome = worker.run(replace(JOB, best_s=10.0))
    assert not outcome.stopped_early and len(outcome.times) == 3
    outcome = worker.run(replace(JOB, best_s=1e-12, protocol=replace(QUICK, early_stop=None)))
    assert not outcome.stopped_early and len(outcome.times) == 3


def test_a_candidate_of_another_workload(worker: Worker) -> None:
    other = workload("elementwise", rows=4, cols=4, ops="relu")
    outcome = worker.run(replace(JOB, workload=other))
    assert outcome.status == "run" and "inputs" in outcome.error
    larger = workload("matmul", m=32, n=16, k=16)
    outcome = worker.run(replace(JOB, workload=larger))
    assert outcome.status == "run" and "shape" in outcome.error


def test_work_goes_where_it_should() -> None:
    cores = sorted(os.sched_getaffinity(0))
    with Worker("pinned", cores[:1]) as worker:
        first = worker.run(JOB)
        assert first.ok and first.cores == (cores[0],)
        assert worker.pid is not None
        server = psutil.Process(worker.pid)
        assert server.cpu_affinity() == cores[:1]
        worker.start("run", JOB, cores[-1:])
        while (reply := worker.poll()) is None:
            time.sleep(0.005)
        assert isinstance(reply.result, Outcome) and reply.result.cores == (cores[-1],)
        assert [child.cpu_affinity() for child in server.children()] == [cores[-1:]]
        children = server.children()
    assert not server.is_running() and not any(child.is_running() for child in children)


# --- operators of users -----------------------------------------------------------------------------------------------

OPERATOR = """
import numpy as np
from searchlab.workloads import Definition, Workload, workload

def broken(n: int = 4) -> Definition:
    def reference(a):
        raise RuntimeError("no reference today")
    base = workload("elementwise", rows=n, cols=4, ops="relu")
    return Definition(base.program, reference)
"""


def own_operator(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Workload:
    name = f"own_{folder.name}".replace("-", "_")
    (folder / f"{name}.py").write_text(OPERATOR)
    monkeypatch.syspath_prepend(str(folder))
    module = __import__(name)
    made: Workload = Operator.of(module.broken)()
    return made


def test_a_reference_that_fails_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = own_operator(tmp_path, monkeypatch)
    with Worker("own") as worker:  # started now, so that it knows where the module is
        for _ in range(2):
            outcome = worker.run(Job("r", broken, TARGET, program=broken.program, protocol=QUICK))
            assert outcome.status == "run" and "no reference today" in outcome.error
            assert "data" in outcome.notes["environment"]
        unchecked = replace(QUICK, check=False)
        assert worker.run(Job("u", broken, TARGET, program=broken.program, protocol=unchecked)).ok


def test_an_operator_that_cannot_be_imported(worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker.run(JOB)  # it has started, and knows nothing of the folder
    broken = own_operator(tmp_path, monkeypatch)
    outcome = worker.run(Job("i", broken, TARGET, program=broken.program))
    assert outcome.id == "i" and outcome.status == "run" and "cannot import" in outcome.error
    assert "cannot be read" in outcome.notes["environment"]
    assert not Record("t", outcome.status, notes=outcome.notes).reusable()
    assert worker.run(JOB).ok


def test_an_operator_of_a_script_is_refused(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    def mine() -> None: ...

    mine.__module__ = "__main__"
    made = Workload(replace(MATMUL.operator, function=mine), ())  # type: ignore[arg-type]
    with pytest.raises(MeasureError, match="move it to a module"):
        worker.run(Job("m", made, TARGET, artifact=CODE))
    assert worker.run(JOB).ok


# --- the server's life ------------------------------------------------------------------------------------------------


def test_a_worker_is_renewed_by_count() -> None:
    with Worker("old", recycle_jobs=2) as worker:
        pids = []
        for _ in range(3):
            pids.append(worker.pid)
            assert worker.run(JOB).ok
        assert pids[0] == pids[1] != pids[2]


def test_children_are_renewed_by_count_and_memory() -> None:
    for options, same_child in ((dict(reuse=100), True), (dict(reuse=1), False), (dict(recycle_bytes=1 << 20), False)):
        with Worker("w", **options) as worker:
            seen = []
            for _ in range(2):
                assert worker.run(JOB).ok
                if worker.ready and worker.pid is not None:
                    seen += [p.pid for p in psutil.Process(worker.pid).children()]
            assert (len(seen) == 2 and seen[0] == seen[1]) == same_child


def test_a_server_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with Worker("lost") as worker, pytest.raises(MeasureError, match="lost cannot start: .* exited with code 1"):
        worker.run(JOB)


def test_a_job_can_be_cancelled(worker: Worker, slow_to_cancel: None) -> None:
    long = Protocol(warmup=0, repeats=1000, min_repeat_ms=1000.0)
    worker.run(JOB)
    worker.start("run", replace(JOB, protocol=long, limits=Limits(run_s=600)))
    with pytest.raises(MeasureError, match="busy"):
        worker.start("run", JOB)
    pid = worker.pid
    worker.cancel()
    assert not worker.busy and worker.pid == pid
    assert worker.run(JOB).ok


def test_repeats_end_before_the_limit_does(worker: Worker) -> None:
    many = Protocol(warmup=0, repeats=10_000, min_repeat_ms=20.0)
    outcome = worker.run(replace(JOB, protocol=many, limits=Limits(run_s=4.0)))
    assert outcome.ok and 1 <= len(outcome.times) < 10_000, outcome.error
    assert outcome.notes["repeats"].startswith(f"{len(outcome.times)} of 10000")


# --- timing -----------------------------------------------------------------------------------------------------------


class Clocked:
    """A function that takes as long as it is told, by a clock that only it moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
        self.now, self.calls, self.seconds = 100.0, 0, seconds
        for name in ("perf_counter", "thread_time", "monotonic"):
            monkeypatch.setattr(f"searchlab.timing.sampler.time.{name}", lambda: self.now)

    def __call__(self, count: int) -> None:
        for _ in range(count):
            self.now += self.seconds[min(self.calls, len(self.seconds) - 1)]
            self.calls += 1


def test_samples_last_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Clocked(monkeypatch, 1e-3, 1e-4)
    found = Sampler(run, Protocol(warmup=1, repeats=4, min_repeat_ms=5)).take()
    assert len(found.times) == 4 and found.times == pytest.approx([1e-4] * 4)
    assert 50 <= found.number <= 60 and found.notes == {}


def test_disturbed_runs_do_not_make_samples_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Clocked(monkeypatch, 1e-2, 1e-2, 1e-4)
    found = Sampler(run, Protocol(warmup=0, repeats=3, min_repeat_ms=5)).take()
    assert found.times == pytest.approx([1e-4] * 3) and found.number >= 50


def test_long_runs_are_samples_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Clocked(monkeypatch, 0.5)
    found = Sampler(run, Protocol(warmup=2, repeats=3, min_repeat_ms=5)).take()
    assert found.number == 1 and len(found.times) == 3 and run.calls == 5


def test_long_runs_are_repeated_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = Protocol(warmup=0, repeats=20, min_repeat_ms=10, steady=False)
    assert [len(Sampler(Clocked(monkeypatch, s), protocol).take().times) for s in (0.03, 0.09, 3.0)] == [20, 8, 5]


def test_a_slow_warm_up_or_check_ends_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Clocked(monkeypatch, 2.0)
    found = Sampler(run, Protocol(warmup=3)).take(best_s=0.1)
    assert found.stopped_early and found.times == (2.0,) and run.calls == 2
    run = Clocked(monkeypatch, 2.0)
    assert Sampler(run, Protocol(warmup=3)).take(best_s=0.1, guess_s=2.0).stopped_early and run.calls == 1


def test_three_samples_are_enough_for_what_is_beaten(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = Protocol(warmup=0, repeats=10, min_repeat_ms=100, beaten=1.5, steady=False)
    found = Sampler(Clocked(monkeypatch, 0.2), protocol).take(best_s=0.1)
    assert found.stopped_early and found.times == pytest.approx([0.2] * 3)
    found = Sampler(Clocked(monkeypatch, 0.2), protocol).take(best_s=0.15)
    assert not found.stopped_early and len(found.times) == 10
    found = Sampler(Clocked(monkeypatch, 0.2), replace(protocol, beaten=None)).take(best_s=0.1)
    assert not found.stopped_early and len(found.times) == 10


def test_a_cold_first_run_does_not_stop_a_short_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Clocked(monkeypatch, 1e-3, 1e-3, 1e-5)
    found = Sampler(run, Protocol(warmup=1, repeats=2, min_repeat_ms=0.1)).take(best_s=1e-5)
    assert not found.stopped_early and found.times == pytest.approx([1e-5] * 2)


def test_the_deadline_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Clocked(monkeypatch, 1.0)
    found = Sampler(run, Protocol(warmup=0, repeats=100, min_repeat_ms=1000), deadline=104.5).take()
    assert len(found.times) == 4 and "4 of 100" in found.notes["repeats"]


def test_a_sample_that_lost_its_core_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Clocked(monkeypatch, 1.0)
    monkeypatch.setattr("searchlab.timing.sampler.time.thread_time", lambda: run.now / 2)
    assert Sampler(run, Protocol(warmup=0, repeats=2)).take().notes == {"preempted": "2 of 2"}


# --- memory and messages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3,), (1024,), (5, 1000), (1, 0), ()])
def test_guarded_arrays(shape: tuple[int, ...]) -> None:
    values = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    guarded = Guarded.of("x", values)
    assert guarded.region.end % 4096 == 0 and guarded.region.end - guarded.region.start == values.nbytes
    assert same(guarded.array, values) and guarded.damage(values) is None
    assert guarded.region.describe(guarded.region.end) == "0 bytes past the end of x"
    assert guarded.region.describe(guarded.region.start - 4) == "4 bytes before the beginning of x"
    assert guarded.region.describe(guarded.region.end + 10_000) is None
    if values.size:
        guarded.array[...] = 7
        assert guarded.damage(values) == "it changes its x" and guarded.damage(values) is None


def test_aligned_arrays_begin_on_a_line() -> None:
    for kind in ("float32", "float64", "int8"):
        array = aligned((3, 5), kind)
        assert array.ctypes.data % 64 == 0 and array.shape == (3, 5) and array.dtype == kind
    assert np.isnan(mark(aligned((4,), "float32"))).all()
    values = np.arange(12, dtype="int32").reshape(3, 4)[:, ::2]
    copy = placed(values)
    assert copy.ctypes.data % 64 == 0 and copy.flags.c_contiguous and np.array_equal(copy, values)


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ConstraintError("too large"), "constraints", "too large"),
        (BuildError("no such thing"), "build", "no such thing"),
        (MemoryError(), "oom", "memory_bytes: an allocation failed"),
        (KeyError("x"), "run", "KeyError: 'x'"),
    ],
)
def test_exceptions_become_outcomes(error: Exception, status: str, message: str) -> None:
    outcome = failed(JOB, error, "run")
    assert (outcome.id, outcome.status, outcome.error) == ("a", status, message)


def test_jobs_and_outcomes_travel() -> None:
    assert pickle.loads(pickle.dumps(JOB)) == JOB
    outcome = Outcome("a", "ok", (1.0, 2.0), notes={"preempted": "1 of 2"})
    assert pickle.loads(pickle.dumps(outcome)) == outcome
