"""A driver that is killed again and again loses nothing, measures nothing twice, and leaves no process behind."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest

from searchlab.lab.records import RecordStore

DRIVER = Path(__file__).with_name("resuming_driver.py")
ROOT = Path(__file__).parents[2]


def start(store: Path) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen([sys.executable, DRIVER, store], env={**os.environ, "PYTHONPATH": path})


def family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_random_moments(tmp_path: Path, kills: int) -> None:
    rng = np.random.default_rng(5)
    store = tmp_path / "records.jsonl"
    kept: list[bytes] = []
    for _ in range(kills):
        driver = start(store)
        try:
            driver.wait(timeout=float(rng.uniform(0.1, 2.0)))
        except subprocess.TimeoutExpired:
            workers = family(driver.pid)
            driver.send_signal(signal.SIGKILL)
            driver.wait()
            _, alive = psutil.wait_procs(workers, timeout=60)
            assert not alive, "a worker outlived its driver"
        lines = store.read_bytes().split(b"\n")[:-1] if store.exists() else []  # without a torn last line
        assert lines[: len(kept)] == kept, "a measurement that was kept is gone"
        kept = lines
    assert start(store).wait(timeout=120) == 0
    counts = Counter(record.job for record in RecordStore(store))
    assert set(counts.values()) == {1} and len(counts) == 144
    assert all(record.ok for record in RecordStore(store))
