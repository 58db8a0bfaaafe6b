"""Candidates that crash, hang, devour memory, write where they must not or compute nonsense; workers and drivers that
are killed.  Each costs itself and nothing else.  Bad kernels are object code made from hand-written LLVM IR."""

import functools
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from searchlab.backend import Artifact, build
from searchlab.ir.expr import knob
from searchlab.llvm.jit import compile_ir
from searchlab.measure import Job, Limits, LocalMeasurer, Outcome, Protocol, Worker
from searchlab.schedule import Schedule
from searchlab.targets import detect
from searchlab.workloads import workload

ROOT = Path(__file__).resolve().parents[2]
RELU = workload("elementwise", rows=8, cols=9, ops="relu")
COUNT = 72
TARGET = detect(1)
GOOD = build(RELU.program, TARGET)
QUICK = Protocol(warmup=0, repeats=2, min_repeat_ms=0.05)
LIMITS = Limits(build_s=60, run_s=60, memory_bytes=256 << 20)

SIGNATURE = "ptr %arguments, ptr %sizes, ptr %shared, ptr %private, i64 %stride, ptr %pool, i64 %threads"
IR = """
declare ptr @malloc(i64)
declare void @abort()
declare void @llvm.trap()
declare void @exit(i32)
declare i32 @access(ptr, i32)
declare i32 @creat(ptr, i32)
declare i32 @pause()
@calls = internal global i64 0
define internal void @relu(ptr %arguments, float %scale) {
entry:
  %y.p = getelementptr ptr, ptr %arguments, i64 1
  %x = load ptr, ptr %arguments
  %y = load ptr, ptr %y.p
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %x.i = getelementptr float, ptr %x, i64 %i
  %y.i = getelementptr float, ptr %y, i64 %i
  %value = load float, ptr %x.i
  %positive = fcmp ogt float %value, 0.0
  %kept = select i1 %positive, float %value, float 0.0
  %scaled = fmul float %kept, %scale
  store float %scaled, ptr %y.i
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, COUNT
  br i1 %more, label %loop, label %out
out:
  ret void
}
define void @ENTRY(SIGNATURE) {
entry:
  %x = load ptr, ptr %arguments
  %y.p = getelementptr ptr, ptr %arguments, i64 1
  %y = load ptr, ptr %y.p
BODY
}
"""
RIGHT = "call void @relu(ptr %arguments, float 1.0)\n"


def kernel(body: str, extra: str = "") -> Artifact:
    """Object code of a kernel with this body; %x and %y are its input and its output."""
    text = extra + IR.replace("BODY", body).replace("ENTRY", GOOD.entry).replace("SIGNATURE", SIGNATURE)
    return replace(GOOD, code=compile_ir(text.replace("COUNT", str(COUNT)), TARGET))


def job(name: str, body: str = "", limits: Limits = LIMITS, protocol: Protocol = QUICK) -> Job:
    artifact = kernel(body) if body else GOOD
    return Job(name, RELU, TARGET, artifact=artifact, limits=limits, protocol=protocol)


def endless(step: str, name: str = "loop") -> str:
    return f"br label %{name}\n{name}:\n{step}\nbr label %{name}"


def touch(pointer: str, offset: int, *, write: bool) -> str:
    access = "store volatile float 1.0, ptr %at" if write else "%found = load volatile float, ptr %at"
    return f"{RIGHT}%at = getelementptr i8, ptr {pointer}, i64 {offset}\n{access}\nret void"


FIRST = """
%calls = load i64, ptr @calls
%after = add i64 %calls, 1
store i64 %after, ptr @calls
%once = icmp eq i64 %calls, 0
%scale = select i1 %once, float 1.0, float 0.5
call void @relu(ptr %arguments, float %scale)
ret void"""
DEVOUR = "%got = call ptr @malloc(i64 1048576)\nstore volatile i8 1, ptr %got"
SIZE = 4 * COUNT

# name: body, status, what the message says
BAD: dict[str, tuple[str, str, str]] = {
    "null": ("store volatile i8 1, ptr inttoptr (i64 64 to ptr)\nret void", "crash", "SIGSEGV (signal 11)"),
    "trap": ("call void @llvm.trap()\nunreachable", "crash", "killed by SIG"),
    "abort": ("call void @abort()\nunreachable", "crash", "SIGABRT"),
    "exit": ("call void @exit(i32 3)\nunreachable", "crash", "left with code 3"),
    "stack": (endless("%big = alloca [65536 x i8]\nstore volatile i8 1, ptr %big"), "crash", "signal"),
    "hang": (endless("store volatile i64 0, ptr @calls"), "timeout", "run_s: killed after 0.5 s while "),
    "devour": (endless(DEVOUR), "oom", "memory_bytes"),
    "past the end": (touch("%y", SIZE, write=True), "crash", "it touched 0 bytes past the end of output"),
    "far past the end": (touch("%y", SIZE + 400, write=True), "crash", "it touched 400 bytes past the end of output"),
    "read past the end": (touch("%x", SIZE, write=False), "crash", "it touched 0 bytes past the end of input"),
    "before the beginning": (touch("%y", -4, write=True), "wrong", "it writes before the beginning of output"),
    "far before": (touch("%y", -5000, write=True), "crash", "bytes before the beginning of output"),
    "scratch": (touch("%shared", 0, write=True), "crash", "it touched 0 bytes past the end of scratch memory"),
    "writes its input": (touch("%x", 0, write=True), "wrong", "it changes its input"),
    "nothing": ("ret void", "wrong", "72 of 72 elements"),
    "halved": ("call void @relu(ptr %arguments, float 0.5)\nret void", "wrong", "differs from the reference"),
    "right once": (FIRST, "wrong", "right once, then"),
}


def bad_job(name: str) -> Job:
    body = BAD[name][0]
    limits = replace(LIMITS, run_s=0.5) if name == "hang" else LIMITS
    return job(name, body, limits)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker("w") as made:
        yield made


@pytest.mark.parametrize("name", BAD)
def test_a_bad_kernel_costs_itself_only(worker: Worker, name: str) -> None:
    _, status, message = BAD[name]
    outcome = worker.run(bad_job(name))
    assert (outcome.id, outcome.status) == (name, status), outcome.error
    assert message in outcome.error and "environment" not in outcome.notes
    assert outcome.times == () and outcome.seconds == float("inf")
    server = worker.pid
    after = worker.run(job("after"))
    assert after.ok and after.attempts == 1 and worker.pid == server


def test_a_hand_written_kernel_that_is_right_is_ok(worker: Worker) -> None:
    outcome = worker.run(job("right", RIGHT + "ret void"))
    assert outcome.ok, outcome.error


def test_an_innocent_kernel_does_not_pay_for_what_a_neighbour_left_behind(worker: Worker) -> None:
    # Closes all files of its process, and is otherwise right: nobody who comes after it could answer.
    body = "br label %loop\nloop:\n%i = phi i32 [ 3, %entry ], [ %n, %loop ]\n%r = call i32 @close(i32 %i)\n"
    body += "%n = add i32 %i, 1\n%m = icmp ult i32 %n, 200\nbr i1 %m, label %loop, label %out\n"
    body += f"out:\n{RIGHT}ret void"
    artifact = kernel(body, "declare i32 @close(i32)\n")
    assert worker.run(job("before")).ok
    outcome = worker.run(Job("closes", RELU, TARGET, artifact=artifact, limits=LIMITS, protocol=QUICK))
    assert outcome.status == "crash"
    assert worker.run(job("after")).ok


def test_a_failing_batch_leaves_the_rest_alone() -> None:
    jobs: list[Job] = []
    for name in BAD:
        jobs += [bad_job(name), Job(f"good after {name}", RELU, TARGET, program=RELU.program, protocol=QUICK)]
    with LocalMeasurer(lock=False) as measurer:
        found = {o.id: o for o in measurer.measure(jobs)}
    assert len(found) == len(jobs)
    for name in BAD:
        assert found[name].status == BAD[name][1], found[name].error
        assert found[f"good after {name}"].ok, found[f"good after {name}"].error


# --- building ---------------------------------------------------------------------------------------------------------


def unbuildable() -> Job:
    schedule = Schedule(RELU.program)
    schedule.split(next(iter(RELU.program.loops)), [None, knob("t")])
    return Job("unbuildable", RELU, TARGET, program=schedule.program, limits=LIMITS)


def test_a_program_that_cannot_be_built(worker: Worker) -> None:
    for outcome in (worker.run(unbuildable()), worker.build(unbuildable())):
        assert isinstance(outcome, Outcome)
        assert (outcome.id, outcome.status) == ("unbuildable", "build") and "t" in outcome.error


def large() -> Job:
    """A thousand copies of one statement."""
    matmul = workload("matmul", m=8, n=32, k=32)
    schedule = Schedule(matmul.program)
    schedule.unroll("j", "k")
    return Job("large", matmul, TARGET, program=schedule.program)


def test_a_build_that_takes_too_long(worker: Worker) -> None:
    outcome = worker.run(replace(large(), limits=Limits(build_s=0.05)))
    assert outcome.status == "timeout" and outcome.error.startswith("build_s: killed after 0.05 s while ")
    assert worker.run(Job("after", RELU, TARGET, program=RELU.program)).ok


def test_a_build_that_takes_too_much_memory(worker: Worker) -> None:
    outcome = worker.run(replace(large(), limits=Limits(memory_bytes=1 << 16)))
    assert outcome.status == "oom" and outcome.error.startswith("memory_bytes"), outcome
    assert worker.run(Job("after", RELU, TARGET, program=RELU.program)).ok


def test_code_for_another_machine_is_a_failed_build(worker: Worker) -> None:
    other = replace(TARGET, cpu="strange", features=TARGET.features + ",+quantum")
    outcome = worker.run(replace(job("foreign"), artifact=replace(GOOD, target=other)))
    assert outcome.status == "build" and "quantum" in outcome.error and "environment" in outcome.notes


# --- workers that are killed ------------------------------------------------------------------------------------------

HANG = BAD["hang"][0]


def hangs_once(mark: Path) -> Job:
    """A job whose first run makes this file and never returns; all others are right."""
    path = f"{mark}\\00"
    body = f"""%known = call i32 @access(ptr @mark, i32 0)
    %again = icmp eq i32 %known, 0
    br i1 %again, label %right, label %once
    once:
    %made = call i32 @creat(ptr @mark, i32 384)
    {endless("%paused = call i32 @pause()", "stay")}
    right:
    {RIGHT}ret void"""
    extra = f'@mark = constant [{len(str(mark)) + 1} x i8] c"{path}"\n'
    return Job("hangs once", RELU, TARGET, artifact=kernel(body, extra), limits=LIMITS, protocol=QUICK)


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.005)


def finish(worker: Worker) -> Outcome:
    while (reply := worker.poll()) is None:
        time.sleep(0.005)
    assert isinstance(reply.result, Outcome)
    return reply.result


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill_server_at_work(worker: Worker) -> None:
    def works() -> bool:
        worker.poll()
        return worker.pid is not None and worker.ready and bool(psutil.Process(worker.pid).children())

    until(works)
    children = psutil.Process(worker.pid).children()
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    until(lambda: not any(alive(p) for p in children))


def test_a_job_whose_worker_is_killed_is_tried_again(tmp_path: Path) -> None:
    with Worker("victim") as worker:
        worker.start("run", hangs_once(tmp_path / "hangs"))
        until((tmp_path / "hangs").exists)
        kill_server_at_work(worker)
        outcome = finish(worker)
        assert outcome.ok and outcome.attempts == 2 and outcome.id == "hangs once"
        assert worker.run(job("after")).attempts == 1


def test_a_job_that_loses_all_its_workers_is_given_up() -> None:
    with Worker("victim", attempts=2) as worker:
        worker.start("run", job("killer", HANG))
        kill_server_at_work(worker)
        kill_server_at_work(worker)
        outcome = finish(worker)
        assert outcome.status == "quarantined" and outcome.attempts == 2 and "SIGKILL" in outcome.error
        assert worker.run(job("after")).ok


def test_a_worker_that_dies_while_idle_is_replaced() -> None:
    with Worker("idle") as worker:
        assert worker.run(job("before")).ok
        assert worker.pid is not None
        server = psutil.Process(worker.pid)
        os.kill(worker.pid, signal.SIGKILL)
        until(lambda: not alive(server))
        outcome = worker.run(job("after"))
        assert outcome.ok and outcome.attempts == 1


def test_a_killed_worker_in_a_batch(tmp_path: Path) -> None:
    mark = tmp_path / "hangs"
    with LocalMeasurer(lock=False) as measurer:
        jobs = [hangs_once(mark), *(job(f"good {i}") for i in range(3))]
        pid = measurer._runners[0].pid
        assert pid is not None
        script = f"import os, time\nwhile not os.path.exists({str(mark)!r}): time.sleep(0.005)\nos.kill({pid}, 9)"
        killer = subprocess.Popen([sys.executable, "-c", script])
        found = {o.id: o for o in measurer.measure(jobs)}
        killer.wait()
        assert all(o.ok for o in found.values()), found
        assert found["hangs once"].attempts == 2 and len(found) == 4


# --- workers that are stopped -----------------------------------------------------------------------------------------


def stop(worker: Worker) -> list[psutil.Process]:
    """Stops a server, but not what it has started; all of these processes."""
    assert worker.pid is not None
    server = psutil.Process(worker.pid)
    os.kill(worker.pid, signal.SIGSTOP)
    until(lambda: server.status() == psutil.STATUS_STOPPED)
    return [server, *server.children(recursive=True)]


def test_a_job_whose_worker_is_stopped_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("searchlab.measure.workers.worker._STOPPED_S", 0.5)
    with Worker("victim") as worker:
        worker.start("run", hangs_once(tmp_path / "hangs"))
        until(lambda: worker.poll() is None and (tmp_path / "hangs").exists())
        family, begin = stop(worker), time.monotonic()
        outcome = finish(worker)
        assert outcome.ok and outcome.attempts == 2
        assert time.monotonic() - begin < LIMITS.run_s  # it would have had that long, if it had worked
        assert len(family) > 1 and not any(map(alive, family))


def test_a_job_whose_workers_are_all_stopped_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("searchlab.measure.workers.worker._STOPPED_S", 0.5)
    with Worker("victim", attempts=2) as worker:
        worker.start("run", job("hangs", HANG))
        until(lambda: worker.poll() is None and worker.ready)
        server, *_ = stop(worker)
        until(lambda: worker.poll() is None and worker.ready and worker.pid != server.pid)
        stop(worker)
        outcome = finish(worker)
        assert outcome.status == "quarantined" and outcome.attempts == 2
        assert "the server process was stopped for more than 0.5 s" in outcome.error
        assert worker.run(job("after")).ok


def test_a_worker_that_is_stopped_while_idle_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("searchlab.measure.workers.worker._STOPPED_S", 0.5)
    monkeypatch.setattr("searchlab.measure.workers.worker._GRACE_S", 0.5)
    with Worker("idle") as worker:
        for name in ("small", "x" * (4 << 20)):  # no connection takes that much before the other side reads
            assert worker.run(job("before")).ok
            family = stop(worker)
            assert worker.run(job(name)).ok
            assert not any(map(alive, family))


def test_a_worker_that_is_stopped_while_it_starts_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("searchlab.measure.workers.worker._STOPPED_S", 0.5)
    with Worker("new") as worker:
        family = stop(worker)
        assert worker.run(job("first")).attempts == 1
        assert not any(map(alive, family))


def test_a_stop_that_is_over_soon_costs_nothing() -> None:
    with Worker("patient") as worker:
        assert worker.run(job("before")).ok
        server, *_ = stop(worker)
        threading.Timer(1.0, server.resume).start()
        outcome = worker.run(job("after"))
        assert outcome.ok and outcome.attempts == 1 and worker.pid == server.pid


# --- drivers that are killed ------------------------------------------------------------------------------------------

DRIVER = """
import pickle, sys
from pathlib import Path
from searchlab.measure import LocalMeasurer
jobs = pickle.loads(Path(sys.argv[1]).read_bytes())
with LocalMeasurer(lock=False) as measurer:
    while True:
        for outcome in measurer.measure(jobs):
            print(outcome.status, flush=True)
"""


def marked(mark: str) -> list[psutil.Process]:
    """Living processes that have inherited a mark in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TEST_MARK") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def drive(folder: Path, jobs: list[Job]) -> tuple["subprocess.Popen[bytes]", str]:
    """A process that measures these jobs again and again, and the mark of all that it starts."""
    mark = uuid.uuid4().hex
    script, path = folder / f"{mark}.py", folder / f"{mark}.jobs"
    script.write_text(DRIVER)
    path.write_bytes(pickle.dumps(jobs))
    env = {**os.environ, "TEST_MARK": mark, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    pipe, command = subprocess.PIPE, [sys.executable, str(script), str(path)]
    # Shells start background jobs with SIGINT ignored, which is inherited: these drivers are to be interrupted.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, preexec_fn=heed), mark


def hang() -> list[Job]:
    return [job("good"), job("hang", HANG)]


def until_it_hangs(process: "subprocess.Popen[bytes]", mark: str) -> None:
    assert process.stdout is not None and process.stdout.readline() == b"ok\n"
    until(lambda: len(marked(mark)) >= 4)  # the driver, two servers, a child


def test_nothing_survives_a_driver_that_is_killed_at_work(tmp_path: Path) -> None:
    process, mark = drive(tmp_path, hang())
    until_it_hangs(process, mark)
    process.kill()
    process.communicate()
    until(lambda: not marked(mark))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_nothing_survives_a_driver_that_is_killed_at_some_moment(tmp_path: Path, seed: int) -> None:
    """While it starts, while its servers do, and at work: a moment in every second of the first four."""
    jobs = [Job(f"b{i}", RELU, TARGET, program=RELU.program, protocol=QUICK) for i in range(4)]
    rng = random.Random(seed)
    begin = time.monotonic()
    drivers = [(begin + second + rng.uniform(0.2, 1.0), *drive(tmp_path, jobs)) for second in range(4)]
    for moment, process, _ in sorted(drivers, key=lambda d: d[0]):
        time.sleep(max(0.0, moment - time.monotonic()))
        process.kill()
        process.communicate()
    until(lambda: not any(marked(mark) for *_, mark in drivers))  # a server that starts first has to finish


def test_nothing_survives_an_interrupted_driver(tmp_path: Path) -> None:
    process, mark = drive(tmp_path, hang())
    until_it_hangs(process, mark)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT and b"KeyboardInterrupt" in stderr
    until(lambda: not marked(mark))
