"""Many jobs on this machine: who works where and when, and how measuring begins, is broken off and ends."""

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from searchlab.backend import build
from searchlab.errors import MeasureError
from searchlab.measure import CoreLock, Job, Limits, LocalMeasurer, Protocol
from searchlab.targets import Target, detect
from searchlab.workloads import workload

MATMUL = workload("matmul", m=16, n=16, k=16)
CORES = sorted(os.sched_getaffinity(0))
TARGET = detect(1)
CODE = build(MATMUL.program, TARGET)
QUICK = Protocol(warmup=0, repeats=2, min_repeat_ms=0.1)
LONG = Protocol(warmup=0, repeats=100_000, min_repeat_ms=1000.0)


def programs(count: int, target: Target = TARGET) -> list[Job]:
    return [Job(f"p{i}", MATMUL, target, program=MATMUL.program, protocol=QUICK) for i in range(count)]


def artifacts(count: int) -> list[Job]:
    return [Job(f"a{i}", MATMUL, TARGET, artifact=CODE, protocol=QUICK) for i in range(count)]


def endless() -> Job:
    return Job("endless", MATMUL, TARGET, artifact=CODE, protocol=LONG, limits=Limits(run_s=600))


class Watched(LocalMeasurer):
    """Notes what is under way at any time, and that no core times and builds at once."""

    most_ahead = 0
    overlaps = 0
    together = 0

    def _start_builds(self) -> None:
        super()._start_builds()
        busy = [w for w in self._builders if w.busy or not w.ready]
        building = {c for w in busy for c in w.cores}
        timing = [set(w.cores) for w in self._runners if w.busy]
        self.overlaps += any(cores & building for cores in timing) + (len(set().union(*timing)) < sum(map(len, timing)))
        self.together += bool(timing and any(w.busy for w in self._builders))
        self.most_ahead = max(self.most_ahead, len(self._built) + sum(w.busy for w in self._builders))


@pytest.fixture(scope="module")
def measurer() -> Iterator[Watched]:
    with Watched(lock=False, run_ahead=3) as made:
        yield made


def test_every_job_has_its_outcome(measurer: Watched) -> None:
    jobs = [*programs(5), *artifacts(3)]
    found = list(measurer.measure(jobs))
    assert sorted(o.id for o in found) == sorted(j.id for j in jobs)
    for outcome in found:
        assert outcome.ok and outcome.worker == "run0" and outcome.cores == (CORES[0],), outcome
        assert outcome.queue_s >= 0 and (outcome.build_s > 0) == outcome.id.startswith("p")
    assert list(measurer.measure([])) == []


def test_builds_run_ahead_but_not_too_far(measurer: Watched) -> None:
    measurer.most_ahead = 0
    measurer._artifacts.clear()  # what was built before is not built again
    assert all(o.ok for o in measurer.measure(programs(10)))
    assert 1 <= measurer.most_ahead <= 3
    assert measurer.overlaps == 0


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_building_and_timing_take_turns_when_kernels_use_all_cores() -> None:
    target = replace(detect(2), cores=max(2, TARGET.cores))
    with Watched(cores=CORES[:2], lock=False, run_ahead=3) as measurer:
        found = list(measurer.measure(programs(7, target)))
        assert all(o.ok and o.cores == tuple(CORES[:2]) for o in found), found
        assert len(found) == 7
        assert measurer.overlaps == 0 and measurer.together == 0 and measurer.most_ahead <= 3
        # jobs with fewer threads get fewer cores
        assert [o.cores for o in measurer.measure(artifacts(1))] == [(CORES[0],)]


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_two_workers_have_cores_of_their_own() -> None:
    with Watched(workers=2, cores=CORES[:2], lock=False) as measurer:
        found = list(measurer.measure([*programs(3), *artifacts(4)]))
        assert all(o.ok for o in found) and len(found) == 7
        assert {o.cores for o in found} <= {(CORES[0],), (CORES[1],)}
        assert measurer.overlaps == 0


def test_one_core_is_enough() -> None:
    with Watched(cores=CORES[:1], lock=False) as measurer:
        assert [o.ok for o in measurer.measure(programs(3))] == [True] * 3
        assert measurer.overlaps == 0 and measurer.together == 0


def test_too_few_cores_are_refused(measurer: Watched) -> None:
    many = replace(TARGET, cores=64, threads=64)
    if len(CORES) < 64:
        with pytest.raises(MeasureError, match="1 worker with 64 threads need 64 cores, this process may use"):
            next(iter(measurer.measure([Job("x", MATMUL, many, artifact=CODE)])))
    assert all(o.ok for o in measurer.measure(artifacts(1)))


def test_the_queue_limit_is_named(measurer: Watched) -> None:
    hurried = [replace(j, limits=Limits(queue_s=0.0)) for j in [*artifacts(2), *programs(1)]]
    found = {o.id: o for o in measurer.measure([*hurried, *programs(3)[1:]])}
    assert len(found) == 5 and found["p1"].ok and found["p2"].ok
    late = [o for o in found.values() if o.status == "timeout"]
    assert late and all(o.error == "queue_s: waited longer than 0 s for its turn" for o in late)


# --- breaking off -----------------------------------------------------------------------------------------------------


def working(measurer: LocalMeasurer) -> bool:
    return any(w.busy for w in (*measurer._runners, *measurer._builders))


def test_closing_the_iterator_stops_what_is_under_way(measurer: Watched, slow_to_cancel: None) -> None:
    outcomes = measurer.measure([*artifacts(1), endless(), *programs(5)])
    assert next(outcomes).id == "a0"
    pid = measurer._runners[0].pid
    outcomes.close()  # type: ignore[attr-defined]
    assert not working(measurer) and not measurer._waiting and not measurer._built
    assert [o.id for o in measurer.measure(artifacts(2))] == ["a0", "a1"]
    assert measurer._runners[0].pid == pid


def test_leaving_the_loop_stops_what_is_under_way(measurer: Watched) -> None:
    for outcome in measurer.measure([*artifacts(1), endless()]):
        assert outcome.id == "a0"
        break
    assert not working(measurer)


def test_an_interrupt_stops_what_is_under_way(measurer: Watched) -> None:
    def interrupt() -> None:
        while not measurer._runners[0].busy:
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            thread.start()
            list(measurer.measure([endless(), *programs(2)]))
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert not working(measurer)
    assert all(o.ok for o in measurer.measure(programs(2)))


def test_a_measurement_inside_another(measurer: Watched) -> None:
    inner = []
    for outcome in measurer.measure(programs(4)):
        inner += [o.id for o in measurer.measure([replace(artifacts(1)[0], id=f"again {outcome.id}")])]
    assert sorted(inner) == [f"again p{i}" for i in range(4)]


def test_the_caller_keeps_its_cores(measurer: Watched) -> None:
    for _ in measurer.measure(artifacts(2)):
        assert sorted(os.sched_getaffinity(0)) == CORES
    assert sorted(os.sched_getaffinity(0)) == CORES


def test_nothing_is_left_after_close() -> None:
    with LocalMeasurer(lock=False) as measurer:
        outcomes = measurer.measure([*artifacts(1), endless()])
        next(outcomes)
        pids = [w.pid for w in (*measurer._runners, *measurer._builders)]
        pids += [p.pid for pid in pids if pid is not None for p in psutil.Process(pid).children()]
        assert len(pids) >= 3
        measurer.close()
        with pytest.raises(MeasureError, match="closed before all was measured"):
            next(outcomes)
    assert not [pid for pid in pids if pid is not None and psutil.pid_exists(pid)]
    with pytest.raises(MeasureError, match="closed"):
        list(measurer.measure(artifacts(1)))
    measurer.close()


# --- other processes --------------------------------------------------------------------------------------------------


def test_cores_are_locked_while_measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    told: list[str] = []
    with LocalMeasurer(cores=CORES[:1], lock_timeout_s=0.1, on_wait=told.append) as measurer:
        outcomes = measurer.measure(artifacts(2))
        next(outcomes)
        with pytest.raises(MeasureError, match=f"this process measures on core {CORES[0]}"):
            CoreLock(CORES[:1], timeout_s=0.0).acquire()
        assert len(list(outcomes)) == 1
        with CoreLock(CORES[:1], timeout_s=0.0), pytest.raises(MeasureError, match="waited 0.1 s"):
            list(measurer.measure(artifacts(1)))
        assert told and "waiting for cores" in told[0]
        assert [o.ok for o in measurer.measure(artifacts(1))] == [True]


def test_starting_does_not_wait_for_workers() -> None:
    with LocalMeasurer(lock=False) as measurer:
        assert not measurer._runners[0].ready
        assert all(o.ok for o in measurer.measure(artifacts(1)))


def test_a_program_is_built_once(measurer: Watched) -> None:
    measurer._artifacts.clear()
    (first,) = measurer.measure(programs(1))
    (again,) = measurer.measure(programs(1))
    assert first.ok and again.ok and first.build_s > 0 and again.build_s == 0


def test_a_batch_is_a_race_only_for_jobs_that_say_so(measurer: Watched) -> None:
    jobs = programs(2)
    slow = replace(jobs[1], best_s=math.inf, protocol=replace(jobs[1].protocol, early_stop=1e-9))
    found = {o.id: o for o in measurer.measure([jobs[0], slow])}
    assert found[slow.id].stopped_early
    alone = replace(slow, best_s=None)
    found = {o.id: o for o in measurer.measure([jobs[0], alone])}
    assert not found[alone.id].stopped_early
