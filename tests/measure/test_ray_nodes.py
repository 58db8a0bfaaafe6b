"""Whole clusters: a node that goes away under work, and what is left of Ray afterwards.

A process can be part of one cluster only, so each of these runs in one of its own: `python test_ray_nodes.py NAME`.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from searchlab.backend import build
from searchlab.llvm.jit import compile_ir
from searchlab.measure import Job, Limits, Outcome, Protocol, Worker
from searchlab.measure.cluster import RayMeasurer
from searchlab.targets import detect
from searchlab.workloads import parse

pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).resolve().parents[2]
COUNT = 12


def jobs(count: int, prefix: str = "j") -> list[Job]:
    workload = parse("matmul:m=16,n=16,k=16")
    protocol = Protocol(repeats=2, min_repeat_ms=1)
    return [Job(f"{prefix}{i}", workload, detect(), workload.program, protocol=protocol) for i in range(count)]


def endless() -> Job:
    """A kernel that never returns."""
    good, machine = jobs(1)[0], detect()
    ir = """define void @kernel(ptr %a, ptr %s, ptr %h, ptr %p, i64 %n, ptr %f, i64 %t) {
    entry:
      br label %again
    again:
      call void asm sideeffect "", ""()
      br label %again
    }"""
    made = replace(build(good.workload.program, machine), entry="kernel", code=compile_ir(ir, machine), parallel=False)
    return replace(good, id="endless", program=None, artifact=made, limits=Limits(run_s=100))


# --- what runs in processes of its own --------------------------------------------------------------------------------


def two_nodes() -> tuple[Any, Any]:
    """A cluster and its second node; Ray gives up on nodes that a busy machine is slow to start."""
    from ray.cluster_utils import Cluster

    has = {"resources": {"device:cpu": 1}, "include_dashboard": False}
    for left in reversed(range(5)):
        cluster = Cluster()
        try:
            cluster.add_node(num_cpus=1, **has)
            return cluster, cluster.add_node(num_cpus=2, **has)
        except Exception:
            cluster.shutdown()
            if not left:
                raise
    raise AssertionError


def lose_a_node() -> dict[str, Any]:
    """Two nodes with an object store each; one of them is killed while both measure and build.

    The last jobs never end on the node that will be killed.  Its slot has nothing to do when they are submitted, so it
    gets one of them at once, and holds it until the node is gone.
    """
    folder = tempfile.TemporaryDirectory(prefix="slr-", dir="/tmp", ignore_cleanup_errors=True)
    os.environ.update(RAY_TMPDIR=folder.name, RAY_USAGE_STATS_ENABLED="0")
    cluster, second = two_nodes()
    doomed = second.node_id

    class Doomed(Worker):
        def run(self, job: Job) -> Outcome:
            import ray

            if job.id.startswith("last") and ray.get_runtime_context().get_node_id() == doomed:
                time.sleep(1000)
            return super().run(job)

    found: list[Outcome] = []
    try:
        slots = {"resources": {"device:cpu": 1}, "cores": 0, "builders": 1, "worker": Doomed}
        with RayMeasurer(2, address=cluster.address, **slots) as measurer:
            seen: set[str] = set()
            while len(seen) < 2:
                seen |= {outcome.worker for outcome in measurer.measure(jobs(4))}
            for outcome in measurer.measure(jobs(COUNT, "last")):
                if not found:
                    cluster.remove_node(second, allow_graceful=False)
                found.append(outcome)
    finally:
        cluster.shutdown()
        folder.cleanup()
    return {"outcomes": [(o.id, o.status, o.attempts, o.error) for o in found]}


def interrupted() -> dict[str, Any]:
    """Ctrl-C while a kernel runs that never returns."""
    with RayMeasurer(1, cores=0, builders=0) as measurer:
        try:
            for outcome in measurer.measure([*jobs(1), endless()]):
                assert outcome.ok
                time.sleep(1)
                print(json.dumps(_family()), flush=True)
        except KeyboardInterrupt:
            return {"interrupted": True}
    return {"interrupted": False}


def finished() -> dict[str, Any]:
    """Real workers, closed in the normal way."""
    with RayMeasurer(1, cores=0) as measurer:
        statuses = [o.status for o in measurer.measure(jobs(3))]
        family = _family()
    return {"statuses": statuses, "left": [name for name in os.environ if name.startswith("RAY_AUTH")], **family}


def _family() -> dict[str, Any]:
    """All processes that there are because of this one, and the folder of its Ray."""
    import ray

    here = psutil.Process().children(recursive=True)
    return {"pids": [p.pid for p in here], "folder": ray._private.worker._global_node.get_session_dir_path()}


# --- tests ------------------------------------------------------------------------------------------------------------


def start(name: str, folder: Path = ROOT) -> subprocess.Popen[str]:
    path = os.pathsep.join(
        filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    )  # an empty one is the current folder
    command = [sys.executable, __file__, name]
    # of the Ray that this process may have, they know nothing
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")} | {"PYTHONPATH": path}
    # a session of its own, so that a signal to all of it is what Ctrl-C in a terminal does
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def last_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    text, _ = process.communicate(timeout=550)
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return found


def assert_nothing_is_left(pids: Sequence[int], folder: str) -> None:
    until = time.monotonic() + 60
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.1)
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert not Path(folder).exists()


@pytest.mark.slow
def test_a_lost_node_loses_no_job() -> None:
    found = last_line(start("lose_a_node"))
    outcomes = found["outcomes"]
    assert sorted(o[0] for o in outcomes) == sorted(j.id for j in jobs(COUNT, "last"))
    assert {o[1] for o in outcomes} == {"ok"}, outcomes
    assert any(o[2] == 2 for o in outcomes) and max(o[2] for o in outcomes) <= 3


def test_closing_leaves_nothing_behind(tmp_path: Path) -> None:
    for name in ("numpy", "secrets", "llvmlite", "attr"):  # Ray would put the current folder first
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'run by accident')!r}, 'w')")
    found = last_line(start("finished", tmp_path))
    assert found["statuses"] == ["ok"] * 3 and not found["left"]
    assert not (tmp_path / "run by accident").exists()
    assert len(found["pids"]) > 5
    assert_nothing_is_left(found["pids"], found["folder"])


@pytest.mark.slow
def test_an_interrupt_leaves_nothing_behind() -> None:
    process = start("interrupted")
    assert process.stdout is not None
    family = json.loads(process.stdout.readline())
    os.killpg(process.pid, signal.SIGINT)
    assert last_line(process) == {"interrupted": True}
    assert_nothing_is_left(family["pids"], family["folder"])


if __name__ == "__main__":
    print(json.dumps({f.__name__: f for f in (lose_a_node, interrupted, finished)}[sys.argv[1]]()))
