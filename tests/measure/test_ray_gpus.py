"""Several GPUs through Ray: every slot that asks for one has a device of its own, and its worker sees no other.

A process can be part of one cluster only, so this runs in one of its own: `python test_ray_gpus.py`.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[2]


def test_slots_have_devices_of_their_own() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    done = subprocess.run(
        [sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=500, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert len(seen) == 2 and sorted(seen.values()) == ["0", "1"]


def main() -> None:
    """A node with two GPUs, as far as Ray knows."""
    from ray.cluster_utils import Cluster

    from searchlab.measure import Job, Outcome, Worker
    from searchlab.measure.cluster import RayMeasurer
    from searchlab.targets import detect
    from searchlab.workloads import parse

    class Seeing(Worker):
        """Tells which devices the server that it starts would see."""

        def run(self, job: Job) -> Outcome:
            return Outcome(job.id, "ok", (1.0,), worker=self.name, notes={"device": os.environ["CUDA_VISIBLE_DEVICES"]})

    workload = parse("matmul:m=16,n=16,k=16")
    batch = [Job(str(n), workload, detect(), workload.program) for n in range(4)]
    with tempfile.TemporaryDirectory(prefix="slr-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.environ.update(RAY_TMPDIR=folder, RAY_USAGE_STATS_ENABLED="0")
        cluster = Cluster()
        try:
            cluster.add_node(num_cpus=2, num_gpus=2, include_dashboard=False)
            slots = {"resources": {"GPU": 1}, "cores": 0, "builders": 0, "worker": Seeing}
            with RayMeasurer(2, address=cluster.address, **slots) as measurer:
                seen: dict[str, str] = {}
                while len(seen) < 2:
                    seen |= {o.worker: o.notes["device"] for o in measurer.measure(batch)}
        finally:
            cluster.shutdown()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
