"""The Ray measurer: same answers as a local worker, and every job answered exactly once whatever is lost on the way."""

import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from searchlab.backend import Artifact, build
from searchlab.errors import MeasureError
from searchlab.llvm.jit import compile_ir
from searchlab.measure import Job, Limits, Measurer, Outcome, Protocol
from searchlab.measure.cluster import RayMeasurer, lanes
from searchlab.measure.cluster.connection import Connection
from searchlab.measure.cluster.dispatch import Dispatch, Ticket
from searchlab.measure.cluster.resources import Demand, described, require, room
from searchlab.measure.local import LocalMeasurer
from searchlab.targets import Target, detect
from searchlab.workloads import parse

pytest.importorskip("ray")
ROOT = Path(__file__).resolve().parents[2]

WORKLOAD = parse("matmul:m=16,n=16,k=16")
QUICK = Protocol(repeats=2, min_repeat_ms=0.5)
FAULTS = {
    "crash": "  store i32 1, ptr inttoptr (i64 8 to ptr)\n  ret void",
    "timeout": '  br label %again\nagain:\n  call void asm sideeffect "", ""()\n  br label %again',
    "wrong": "  ret void",
}


def target() -> Target:
    return replace(detect(), threads=1)


def faulty(body: str) -> Artifact:
    """Object code that does something else than it should."""
    text = f"define void @kernel(ptr %a, ptr %s, ptr %h, ptr %p, i64 %n, ptr %f, i64 %t) {{\nentry:\n{body}\n}}\n"
    good = build(WORKLOAD.program, target())
    return replace(good, entry="kernel", code=compile_ir(text, target()), parallel=False)


def job(name: str, artifact: Artifact | None = None, **options: Any) -> Job:
    program = WORKLOAD.program if artifact is None else None
    return Job(name, WORKLOAD, target(), program, artifact, protocol=QUICK, **options)


def mixed_jobs() -> list[Job]:
    """Good and bad candidates; their ids begin with the status they should get."""
    limits = {"timeout": Limits(run_s=0.5)}  # on a busy machine the others may take longer than that
    bad = [
        job(f"{status}/{i}", faulty(body), limits=limits.get(status, Limits()))
        for status, body in FAULTS.items()
        for i in range(2)
    ]
    unknown = replace(build(WORKLOAD.program, target()), entry="nobody")
    good = [job(f"ok/{i}") for i in range(4)]
    return [good[0], *bad, job("ok/built", build(WORKLOAD.program, target())), *good[1:], job("build/entry", unknown)]


class Fake:
    """Sleeps instead of measuring; what the job is called says what happens besides."""

    def __init__(self, name: str, cores: Sequence[int]) -> None:
        self.name, self.cores = name, tuple(cores)

    def run(self, job: Job) -> Outcome:
        time.sleep(0.05)
        if job.id.startswith("poison"):
            os.kill(os.getpid(), signal.SIGKILL)
        if job.id.startswith("once"):  # what follows is a file that does not exist at first
            mark = Path(job.id.partition(":")[2])
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        if job.id.startswith("mute"):
            time.sleep(1000)
        if job.id.startswith("useless"):
            raise MeasureError("the device fell off")
        if job.id.startswith("broken"):
            raise KeyError(job.id)
        return Outcome(job.id, "ok", (1e-3,), worker=self.name, cores=self.cores)


def gone(pid: int) -> bool:
    until = time.monotonic() + 60
    while psutil.pid_exists(pid) and time.monotonic() < until:
        time.sleep(0.05)
    return not psutil.pid_exists(pid)


def unable(name: str, cores: Sequence[int]) -> Fake:
    raise MeasureError("there is no such device")


@pytest.fixture(scope="session")
def ray() -> Iterator[Any]:
    connection = Connection()
    connection.ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield connection.ray
    connection.close()


@pytest.fixture
def fakes(ray: Any) -> Iterator[Callable[..., RayMeasurer]]:
    """Makes measurers with fake workers."""
    made: list[RayMeasurer] = []

    def make(slots: int = 2, **options: Any) -> RayMeasurer:
        made.append(RayMeasurer(slots, **{"cpus": 0.1, "builders": 0, "worker": Fake, **options}))
        return made[-1]

    yield make
    for measurer in made:
        measurer.close()


def answers(measurer: Measurer[Job], jobs: Sequence[Job]) -> dict[str, Outcome]:
    """The outcomes by id; every job has exactly one."""
    found = list(measurer.measure(jobs))
    assert sorted(o.id for o in found) == sorted(j.id for j in jobs)
    return {o.id: o for o in found}


def until_all_are_up(measurer: RayMeasurer) -> None:
    """Slots come up one after the other, and the first may have done all the work before the second is there."""
    seen: set[str] = set()
    while len(seen) < measurer.slots:
        seen |= {o.worker for o in measurer.measure([job(f"warm{i}") for i in range(measurer.slots)])}


# --- real workers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("builders", [0, 1])
def test_outcomes_are_those_of_the_local_measurer(ray: Any, builders: int) -> None:
    jobs = mixed_jobs()
    with LocalMeasurer(lock=False) as local, RayMeasurer(1, cores=0, builders=builders) as measurer:
        here = answers(local, jobs)
        there = answers(measurer, jobs)
    assert {k: o.status for k, o in there.items()} == {k: o.status for k, o in here.items()}
    for name, outcome in there.items():
        assert outcome.status == name.partition("/")[0], outcome.error
        assert outcome.attempts == 1 and "@" in outcome.worker
    assert all(o.ok == (len(o.times) == 2) for o in there.values())
    assert all(there[f"ok/{i}"].build_s > 0 for i in range(4))


def test_build_failures_of_tasks_are_outcomes(ray: Any) -> None:
    elsewhere = replace(job("foreign"), target=replace(target(), triple="no-such-triple"))
    with RayMeasurer(1, cores=0, builders=1) as measurer:
        found = answers(measurer, [elsewhere, *(job(f"ok/{i}") for i in range(3))])
    assert found.pop("foreign").status == "build"
    assert all(o.ok for o in found.values())


def test_slots_are_pinned_to_cores_of_their_own(ray: Any) -> None:
    with RayMeasurer(1, cores=1, builders=0) as measurer:
        (outcome,) = measurer.measure([job("a")])
    assert outcome.ok and len(outcome.cores) == 1


def test_too_many_threads_are_refused(ray: Any) -> None:
    wide = replace(job("wide"), target=replace(detect(), cores=8, threads=8))
    with RayMeasurer(1, cores=1) as measurer, pytest.raises(MeasureError, match="'wide' uses 8 threads"):
        list(measurer.measure([wide]))


# --- losses -----------------------------------------------------------------------------------------------------------


def test_an_actor_that_is_killed_costs_nothing_but_time(fakes: Callable[..., RayMeasurer], tmp_path: Path) -> None:
    once = f"once:{tmp_path}/killed"
    jobs = [job(f"j{i}") for i in range(20)]
    jobs[5:5] = [job(once)]
    found = answers(fakes(2), jobs)
    assert all(o.ok for o in found.values())
    again = {o.id for o in found.values() if o.attempts == 2}
    assert once in again and len(again) <= 2
    assert all(o.attempts == 1 for o in found.values() if o.id not in again)


def test_a_candidate_that_kills_its_workers_is_quarantined(fakes: Callable[..., RayMeasurer]) -> None:
    jobs = [job(f"j{i}") for i in range(12)]
    jobs[3:3] = [job("poison")]
    found = answers(fakes(2), jobs)
    charged = found.pop("poison")
    assert (charged.status, charged.attempts) == ("quarantined", 3)
    assert "lost its worker 3 times" in charged.error and charged.seconds == float("inf")
    assert all(o.ok and o.attempts <= 2 for o in found.values())


def test_many_slots_in_one_actor_are_safe_as_well(fakes: Callable[..., RayMeasurer]) -> None:
    jobs = [job(f"j{i}") for i in range(40)]
    jobs[5:5] = [job("poison")]
    measurer = fakes(8, per_actor=4, retries=0)
    until_all_are_up(measurer)
    found = answers(measurer, jobs)
    assert found.pop("poison").status == "quarantined"
    assert all(o.ok and o.attempts <= 2 for o in found.values())


def test_a_slot_that_never_answers_is_replaced(
    fakes: Callable[..., RayMeasurer], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fair(Dispatch):  # a slow machine is no reason to lose a slot
        def _patience(self, flying: dict[int, Ticket]) -> float:
            mute = any(ticket.job.id == "mute" for ticket in flying.values())
            return super()._patience(flying) if mute else math.inf

    monkeypatch.setattr("searchlab.measure.cluster.measurer.Dispatch", Fair)
    found = answers(fakes(2, retries=1, patience_s=1.0), [job("mute"), *(job(f"j{i}") for i in range(6))])
    assert found.pop("mute").status == "quarantined"
    assert all(o.ok for o in found.values())


def test_an_error_in_a_worker_is_an_outcome(fakes: Callable[..., RayMeasurer]) -> None:
    found = answers(fakes(1), [job("broken"), job("fine")])
    assert found["broken"].status == "run" and "KeyError" in found["broken"].error
    assert "environment" in found["broken"].notes
    assert found["fine"].ok


def test_leaving_early_stops_what_is_under_way(fakes: Callable[..., RayMeasurer]) -> None:
    measurer = fakes(2)
    outcomes = measurer.measure([job("a"), *(job(f"mute/{i}") for i in range(4))])
    assert next(outcomes).ok
    pids = [lane.place.pid for lane in measurer._pool.lanes if lane.place]
    outcomes.close()  # type: ignore[attr-defined]
    assert set(answers(measurer, [job("c"), job("d")])) == {"c", "d"}
    assert pids and all(gone(pid) for pid in pids)


def test_batches_may_overlap(fakes: Callable[..., RayMeasurer]) -> None:
    measurer = fakes(2)
    until_all_are_up(measurer)
    names = []
    for outcome in measurer.measure([job(f"a{i}") for i in range(8)]):
        names.append(outcome.id)
        if len(names) == 2:
            names += answers(measurer, [job("b0"), job("b1")])
            left = measurer.measure([job("mute"), job("c")])
            assert next(left).id == "c"
            left.close()  # type: ignore[attr-defined]
    assert sorted(names) == [*(f"a{i}" for i in range(8)), "b0", "b1"]


def test_jobs_that_wait_too_long_time_out(fakes: Callable[..., RayMeasurer]) -> None:
    measurer = fakes(1)
    assert answers(measurer, [job("first")])["first"].ok
    found = answers(measurer, [job("patient"), *(job(f"j{i}", limits=Limits(queue_s=0.5)) for i in range(40))])
    late = [o for o in found.values() if not o.ok]
    assert found["patient"].ok and len(late) > 10
    assert all(o.status == "timeout" and "queue_s" in o.error and o.queue_s >= 0.5 for o in late)


# --- who may talk to it -----------------------------------------------------------------------------------------------


def family() -> list[psutil.Process]:
    """This process and all that there are because of it."""
    here = psutil.Process()
    return [here, *here.children(recursive=True)]


def test_it_listens_on_this_machine_only(fakes: Callable[..., RayMeasurer]) -> None:
    until_all_are_up(fakes(2))
    listening: dict[str, list[str]] = {}
    for process in family():
        with suppress(psutil.NoSuchProcess):
            found = [c.laddr.ip for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN]
            listening.setdefault(process.name(), []).extend(found)
    assert listening["gcs_server"] and listening["raylet"], listening
    assert sum(bool(found) for name, found in listening.items() if name.startswith("ray::")) > 1, listening
    assert {ip.removeprefix("::ffff:") for found in listening.values() for ip in found} == {"127.0.0.1"}, listening


SERVICES = (
    "ray.rpc.NodeInfoGcsService/GetAllNodeInfo",
    "ray.rpc.NodeManagerService/GetNodeStats",
    "ray.rpc.ObjectManagerService/Push",
    "ray.rpc.CoreWorkerService/GetCoreWorkerStats",
)


def answers_of(port: int) -> set[str]:
    """What a port answers to calls without a token: "grpc-status: 0" is success, 16 that the caller is unknown."""
    plain = ["curl", "-s", "-m", "20", "-D", "-", "-o", "/dev/null", "-X", "POST", "--data-binary", "@-"]
    grpc = ["--http2-prior-knowledge", "-H", "content-type: application/grpc", "-H", "te: trailers"]
    calls = [[*plain, *grpc, f"http://127.0.0.1:{port}/{service}"] for service in SERVICES]
    calls.append([*plain, f"http://127.0.0.1:{port}/get_runtime_envs_info"])
    said = [subprocess.run(call, input=bytes(5), capture_output=True).stdout.decode() for call in calls]
    return {line.strip() for text in said for line in text.splitlines() if line.startswith(("grpc-status", "HTTP/1"))}


@pytest.mark.skipif(shutil.which("curl") is None, reason="calls are made with curl")
def test_every_port_asks_for_its_token(fakes: Callable[..., RayMeasurer]) -> None:
    until_all_are_up(fakes(1))
    ports: list[tuple[str, int]] = []
    for process in family():
        with suppress(psutil.NoSuchProcess):
            found = [c.laddr.port for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN]
            ports += [(process.name(), port) for port in found]
    assert len(ports) > 4
    for name, port in ports:
        said = answers_of(port)
        assert said & {"grpc-status: 16", "HTTP/1.1 401 Unauthorized"}, (name, said)
        assert not said & {"grpc-status: 0", "HTTP/1.1 200 OK"}, (name, said)


def test_its_token_is_a_file_that_only_we_can_read(ray: Any) -> None:
    file = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
    token = file.read_bytes()
    assert len(token) == 64
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    session = Path(ray._private.worker._global_node.get_session_dir_path())
    assert session.is_relative_to(file.parent)
    for process in family():
        with suppress(psutil.Error):
            assert token.decode() not in " ".join([*process.cmdline(), *process.environ().values()])
    logs = [f for f in session.rglob("*") if f.is_file()]
    assert logs and not [f for f in logs if token in f.read_bytes()]


JOIN = """
import json, os, sys, time
from searchlab.errors import MeasureError
from searchlab.measure.cluster.connection import Connection, load

load()._private.ray_constants.ENABLE_RAY_CLUSTER = False  # so that it does not try the outer address instead
for settings in json.loads(sys.argv[2]):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        os.environ.pop(name, None)
    os.environ.update(settings)
    begin = time.monotonic()
    try:
        (connection := Connection(sys.argv[1])).close()
        said = "joined"
    except MeasureError as e:
        said = str(e)
    print(json.dumps([said, time.monotonic() - begin]), flush=True)
"""


def test_nobody_joins_without_its_token(ray: Any, tmp_path: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    right = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": os.environ["RAY_AUTH_TOKEN_PATH"]}
    wrong = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
    tries = [{}, wrong, {"RAY_AUTH_MODE": "token"}, right]
    env = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-c", JOIN, address, json.dumps(tries)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(tries), done.stderr
    (without, _), (other, _), (none, _), (joined, _) = found
    refused = f"cannot join the Ray cluster at {address}: this process was refused: its authentication token is missing"
    assert without.startswith(refused) and other == without
    assert "this process has no token, though RAY_AUTH_MODE asks for one; set RAY_AUTH_MODE=token" in none
    assert joined == "joined"
    assert max(seconds for _, seconds in found) < 20  # which is what Ray would take for the first of them
    assert not (tmp_path / ".ray").exists()


def test_where_nothing_listens_is_told_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    env = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", JOIN, address, "[{}]"], env=env, capture_output=True, text=True, timeout=200
    )
    said, seconds = json.loads(done.stdout)
    assert said.startswith(f"cannot join the Ray cluster at {address}: nothing answers there: ") and seconds < 20


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_what_the_cluster_cannot_give_is_refused(ray: Any) -> None:
    with pytest.raises(MeasureError, match=r"no room for 2 slots with 1 CPU, 1 device:a100 each: it has 1 node with"):
        RayMeasurer(2, resources={"device:a100": 1})
    with pytest.raises(MeasureError, match=r"a slot with 1 CPU, 1 GPU"):
        RayMeasurer(resources={"GPU": 1})
    with pytest.raises(MeasureError, match="500 builders"):
        RayMeasurer(1, builders=500)
    assert ray.is_initialized()


def test_slots_that_cannot_start_end_with_their_reason(
    fakes: Callable[..., RayMeasurer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_FAILURES", 1)
    with pytest.raises(MeasureError, match="no slot can be started: .*there is no such device"):
        list(fakes(1, worker=unable).measure([job("a")]))


def test_broken_slots_are_not_charged_to_candidates(
    fakes: Callable[..., RayMeasurer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_FAILURES", 2)
    with pytest.raises(MeasureError, match="no slot can be started: .*the device fell off"):
        list(fakes(1).measure([job("useless")]))


def test_slots_that_stay_away_end_the_wait(fakes: Callable[..., RayMeasurer], ray: Any) -> None:
    total = ray.cluster_resources()["CPU"]
    assert answers(fakes(1, cpus=total, cores=0), [job("a")])["a"].ok  # it has all there is now
    with pytest.raises(MeasureError, match="no slot came up in 1 s; each asks for 1 CPU; it has 1 node"):
        list(fakes(1, cpus=1, cores=0, start_s=1.0).measure([job("a")]))


def test_misuse_is_refused(fakes: Callable[..., RayMeasurer]) -> None:
    measurer = fakes(1)
    measurer.close()
    with pytest.raises(MeasureError, match="closed"):
        next(measurer.measure([job("d")]))
    bad: dict[str, dict[str, Any]] = {"slots": {"slots": 0}, "retries": {"retries": -1}, "of 2": {"slots": 3}}
    bad["of 2"]["per_actor"] = 2
    for message, options in bad.items():
        with pytest.raises(MeasureError, match=message):
            RayMeasurer(**options)
    with pytest.raises(MeasureError, match="cannot join 10.0.0.1:1"):
        RayMeasurer(1, address="10.0.0.1:1")


def test_a_start_that_fails_is_tried_again(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    class Slow(types.SimpleNamespace):
        def init(self, address: str, **_: Any) -> None:
            tried.append(address)
            if len(tried) != 3:
                raise Exception("The current node timed out during startup.")

    real = sys.modules["ray"]
    job = types.SimpleNamespace(JobConfig=types.SimpleNamespace)
    parts = {"_private": real._private, "_raylet": real._raylet, "job_config": job}
    slow = Slow(is_initialized=lambda: False, shutdown=lambda **_: None, **parts)
    monkeypatch.setitem(sys.modules, "ray", slow)
    Connection().close()
    assert tried == ["local"] * 3
    with pytest.raises(MeasureError, match="cannot start Ray on this machine: The current node timed out"):
        Connection()


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MeasureError, match=r"pip install searchlab\[ray\]"):
        RayMeasurer(1)


def test_ray_is_imported_on_first_use_only() -> None:
    code = "import sys, searchlab.measure, searchlab.measure.cluster; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60).returncode == 0


# --- parts ------------------------------------------------------------------------------------------------------------


def test_room_is_counted_node_by_node() -> None:
    nodes = [{"CPU": 4.0, "x": 1.0, "node:10.0.0.1": 1.0}, {"CPU": 1.5}, {"CPU": 1.5, "memory": 5e9}]
    assert room(Demand({"CPU": 1}), nodes) == 6
    assert room(Demand({"CPU": 0.1}), nodes) == 70
    assert room(Demand({"CPU": 0.1, "x": 0.5}), nodes) == 2
    assert room(Demand({"CPU": 0}), nodes) is None
    assert described(nodes) == "it has 1 node with 4 CPU, 1 x and 2 nodes with 1.5 CPU"
    assert described([]) == "it has no nodes"
    require(Demand({"CPU": 1}), 6, "slots", nodes)
    with pytest.raises(MeasureError, match="7 slots with 1 CPU each: .*; that is room for 6"):
        require(Demand({"CPU": 1}), 7, "slots", nodes)


def test_demands_become_arguments_of_ray() -> None:
    demand = Demand({"CPU": 0.5, "GPU": 1, "device:a100": 1})
    assert demand.options() == {"num_cpus": 0.5, "num_gpus": 1, "resources": {"device:a100": 1}}
    assert demand.times(2).amounts == {"CPU": 1, "GPU": 2, "device:a100": 2}
