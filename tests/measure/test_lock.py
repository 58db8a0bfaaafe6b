"""Locks on cores: who waits for whom, what people are told, and that locks vanish with their process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from searchlab.errors import MeasureError
from searchlab.timing.corelock import CoreLock, runtime_directory

HOLD = """
import sys, time
from pathlib import Path
from searchlab.timing.corelock import CoreLock
lock = CoreLock([int(c) for c in sys.argv[2].split(",")], directory=Path(sys.argv[1]))
print(lock.acquire(), flush=True)
time.sleep(60)
"""


@contextmanager
def holder(directory: Path, cores: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process that holds cores."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(directory), cores], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline().startswith(b"(")
        yield process
    finally:
        process.kill()
        process.communicate()


def test_cores_are_held_and_given_back(tmp_path: Path) -> None:
    with CoreLock([0, 1], directory=tmp_path) as lock:
        assert lock.held == (0, 1)
        with pytest.raises(MeasureError, match="waited 0 s for cores.*this process measures on core 1"):
            CoreLock([1], directory=tmp_path, timeout_s=0.0).acquire()
        with CoreLock([2], directory=tmp_path, timeout_s=0.0) as other:
            assert other.held == (2,)
    assert lock.held == ()
    with CoreLock([0, 1], directory=tmp_path, timeout_s=0.0):
        pass


def test_free_cores_are_taken_first(tmp_path: Path) -> None:
    with CoreLock([1], directory=tmp_path), CoreLock([0, 1, 2, 3], 2, directory=tmp_path, timeout_s=0.0) as lock:
        assert lock.held == (0, 2)


def test_nothing_is_held_while_waiting(tmp_path: Path) -> None:
    with CoreLock([1], directory=tmp_path):
        with pytest.raises(MeasureError):
            CoreLock([0, 1], directory=tmp_path, timeout_s=0.05).acquire()
        with CoreLock([0], directory=tmp_path, timeout_s=0.0):
            pass


def test_another_process_is_named_and_waited_for(tmp_path: Path) -> None:
    told: list[str] = []
    with holder(tmp_path, "0,1") as process:
        with pytest.raises(MeasureError, match=f"process {process.pid} measures on cores 0, 1"):
            CoreLock([0, 1], directory=tmp_path, timeout_s=0.1).acquire()

        def on_wait(text: str) -> None:
            told.append(text)
            process.kill()

        with CoreLock([1, 0], directory=tmp_path, timeout_s=60.0, on_wait=on_wait) as lock:
            assert lock.held == (1, 0)
    assert told == [f"waiting for cores to measure on: process {process.pid} measures on cores 1, 0"]


def test_a_fork_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = CoreLock([0], directory=tmp_path)
    lock.acquire()
    child = os.fork()
    if child == 0:
        try:
            time.sleep(60)
        finally:
            os._exit(0)
    try:
        time.sleep(0.05)
        with pytest.raises(MeasureError):  # the fork has given nothing back that is not its own
            CoreLock([0], directory=tmp_path, timeout_s=0.0).acquire()
        lock.release()
        with CoreLock([0], directory=tmp_path, timeout_s=0.0):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_misuse_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match="3 cores are wanted, only cores 0, 1 will do"):
        CoreLock([0, 1], 3)
    with CoreLock([0], directory=tmp_path) as lock, pytest.raises(MeasureError, match="already holds core 0"):
        lock.acquire()


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(MeasureError, match="belongs to somebody else"):
        CoreLock([0], directory=tmp_path).acquire()


def test_where_locks_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert runtime_directory() == tmp_path / "searchlab"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert runtime_directory().name == f"searchlab-{os.getuid()}"
