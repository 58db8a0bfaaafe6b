"""However a run is interrupted, the next one resumes it with the result of an undisturbed run."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab.run.runs import STRATEGIES, content, lines, one, replay

from searchlab.lab.config import Experiment, dump
from searchlab.lab.folder.folder_lock import owner
from searchlab.lab.run import Folder, load, run

_fork = multiprocessing.get_context("fork")
_PATIENCE_S = 120.0


def sweep() -> Experiment:
    strategies = [f"{STRATEGIES}:Slow", "annealing"]
    network = {"name": "both", "tables": {"matmul-256": 2, "softmax-128x1024": 1}}
    workloads = [{"table": "matmul-256"}, {"table": "softmax-128x1024"}, {"network": network}]
    return replay(workloads=workloads, sweep={"strategy": strategies}, budget={"trials": 20, "batch": 4})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("undisturbed") / "run"
    assert run(sweep(), path, jobs=0).exit_code == 0
    return content(path)


def until(condition: Any) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.002)


def killed(path: Path, jobs: int, after: int) -> None:
    """A run that is killed once there are so many measurements, unless it is done before."""
    process = _fork.Process(target=run, args=(sweep(), path), kwargs={"jobs": jobs})
    process.start()
    until(lambda: lines(path) >= after or not process.is_alive())
    process.kill()
    process.join()
    until(lambda: owner(path / ".lock") is None)  # its workers hold the lock as long as they live
    assert not Folder(path).exists or {c.state for c in load(path).cells} <= {"done", "interrupted", "waiting"}


def kills(path: Path, jobs: int, count: int, seed: int) -> None:
    """Kills runs at random moments, then lets one end; 320 measurements are a whole one."""
    rng = np.random.default_rng(seed)
    for after in [0, *sorted(rng.integers(1, 315, count).tolist())]:
        killed(path, jobs, after)
    assert run(sweep(), path, jobs=jobs).exit_code == 0


@pytest.mark.parametrize("jobs", [1, 2])
def test_kill_and_go_on(tmp_path: Path, undisturbed: dict[str, Any], jobs: int) -> None:
    kills(tmp_path / "run", jobs, count=1, seed=jobs)
    assert content(tmp_path / "run") == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_kill_twenty_times(tmp_path: Path, undisturbed: dict[str, Any], jobs: int) -> None:
    kills(tmp_path / "run", jobs, count=20, seed=jobs)
    assert content(tmp_path / "run") == undisturbed


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def command(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that would take long, as a user starts it."""
    long = one(f"{STRATEGIES}:Slow", budget={"trials": 1000, "batch": 1}, seeds=[0, 1])
    (tmp_path / "long.yaml").write_text(dump(long))
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    words = [sys.executable, "-m", "searchlab", "run", "long.yaml", "-o", "run", "-j", "1"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(words, cwd=tmp_path, env=settings, start_new_session=True, **pipes)  # type: ignore[call-overload]
    until(lambda: lines(tmp_path / "run") >= 5 or process.poll() is not None)
    yield process
    process.kill()
    process.communicate()


def test_the_first_ctrl_c_writes_what_there_is(tmp_path: Path, command: subprocess.Popen[str]) -> None:
    os.killpg(command.pid, signal.SIGINT)
    out, err = command.communicate(timeout=_PATIENCE_S)
    assert command.returncode == 130
    assert "stopping after the measurements in flight" in err and "searchlab run run" in out
    first, second = load(tmp_path / "run").cells
    assert first.state == "interrupted" and first.best is not None and len(first.seconds) >= 4
    assert second.state == "waiting" and owner(tmp_path / "run" / ".lock") is None


def test_the_second_ctrl_c_stops_at_once(tmp_path: Path, command: subprocess.Popen[str]) -> None:
    assert command.stderr is not None
    # The worker is halted, so that nothing that is in flight can end.
    (worker,) = children(command.pid)
    os.kill(worker, signal.SIGSTOP)
    os.killpg(command.pid, signal.SIGINT)
    while "stopping after" not in command.stderr.readline():
        assert command.poll() is None
    os.killpg(command.pid, signal.SIGINT)
    _, err = command.communicate(timeout=_PATIENCE_S)
    assert command.returncode == 130 and "stopped at once" in err
    assert owner(tmp_path / "run" / ".lock") is None and lines(tmp_path / "run") >= 5


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
