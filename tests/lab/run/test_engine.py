"""A run from beginning to end: what it leaves, what it skips, what it does about failures."""

import errno
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
from lab.run.runs import content, one, replay

from searchlab.errors import ConfigError, RecordError
from searchlab.lab.cells import cells
from searchlab.lab.config import from_data
from searchlab.lab.folder.folder_lock import FolderLock, owner
from searchlab.lab.records import RecordStore
from searchlab.lab.run import Folder, Observer, OnError, cores, load, run
from searchlab.lab.run.execute import crew
from searchlab.lab.run.execute.events import CellEnded, Event, Noted, Started
from searchlab.lab.run.execute.run_state import CellRow, RunState


class Seen(Observer):
    def __init__(self) -> None:
        self.started: list[str] = []
        self.ended_: list[tuple[str, str]] = []
        self.again: list[int] = []

    def changed(self, row: CellRow, event: Event, board: RunState) -> None:
        if isinstance(event, Started):
            self.started.append(event.cell)
        elif isinstance(event, CellEnded):
            self.ended_.append((event.cell, event.state))

    def retried(self, row: CellRow, attempt: int, board: RunState) -> None:
        self.again.append(attempt)
        self.error = row.error


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_a_run_leaves_everything(path: Path) -> None:
    experiment = replay()
    summary = run(experiment, path, jobs=0, source="name: small  # mine\n", command="searchlab run small.yaml")
    assert (summary.before, summary.done, summary.failed, summary.left, summary.exit_code) == (0, 8, (), 0, 0)
    found = load(path)
    assert (found.name, found.source, found.command) == ("small", "name: small  # mine\n", "searchlab run small.yaml")
    assert found.recorded and found.folder == str(path) and found.started
    assert found.config["budget"]["trials"] == 12
    assert found.machine["cpu"] and found.versions["numpy"] == np.__version__
    assert found.entries == ("random", "annealing") and found.tasks == ("matmul-256", "softmax-128x1024")
    for cell in found.cells:
        assert cell.state == "done" and len(cell.seconds) == len(cell.elapsed) == len(cell.status) == 12
        assert (np.diff(cell.elapsed) >= 0).all() and cell.elapsed[0] > 0
        assert [r.trials for r in cell.rounds] == [4, 8, 12]
        assert cell.best is not None and cell.best.seconds == cell.seconds.min() == cell.seconds[cell.best.trial]
        assert cell.optimum_s is not None and cell.optimum_s <= cell.best.seconds
        assert sum(cell.ledger.values()) > 0
        records = list(RecordStore(Folder(path).records_path(cell.id)))
        assert [r.seconds for r in records] == cell.seconds.tolist() and {r.cell for r in records} == {cell.id}
    log = (path / "log.txt").read_text()
    assert all(cell.id in log for cell in found.cells)


def test_what_is_done_is_skipped(path: Path) -> None:
    run(replay(), path, jobs=0)
    before = {p: p.stat().st_mtime_ns for p in path.rglob("*.json*")}
    seen = Seen()
    summary = run(replay(), path, jobs=0, observer=seen)
    assert (summary.before, summary.done) == (8, 0) and seen.started == []
    assert {p: p.stat().st_mtime_ns for p in path.rglob("*.json*")} == before


@pytest.mark.parametrize("damage", [b"", b'{"format": 1, "id"', b"[1, 2]", b'{"format": 1, "id": "x"}', b"\xff\x00"])
def test_a_torn_result_is_not_trusted(path: Path, damage: bytes) -> None:
    run(one("random"), path, jobs=0)
    whole = content(path)
    victim = min(path.glob("cells/*.json"))
    victim.write_bytes(damage)
    assert [c.state for c in load(path).cells].count("waiting") == 1
    seen = Seen()
    run(one("random"), path, jobs=0, observer=seen)
    assert seen.started == [victim.stem] and content(path) == whole


# --- drift ------------------------------------------------------------------------------------------------------------


def test_another_experiment_is_refused_unless_allowed(path: Path) -> None:
    run(one("random"), path, jobs=0)
    before = content(path)
    changed = one("random", budget={"trials": 16, "batch": 4}, seeds=[0, 1, 2])
    with pytest.raises(ConfigError, match=r"holds another experiment: .*budget.trials: 12 -> 16.*--allow-drift"):
        run(changed, path, jobs=0)
    assert content(path) == before
    summary = run(changed, path, jobs=0, allow_drift=True)
    assert (summary.before, summary.done) == (0, 3)
    after = content(path)
    assert len(after) == 5 and {k: after[k] for k in before} == before
    assert run(changed, path, jobs=0).done == 0  # now it is this folder's experiment
    assert len(load(path).cells) == 5


def test_more_seeds_are_drift_too_and_keep_what_is_done(path: Path) -> None:
    run(one("random", seeds=[0, 1]), path, jobs=0)
    with pytest.raises(ConfigError, match="1 cells new"):
        run(one("random", seeds=[0, 1, 2]), path, jobs=0)
    summary = run(one("random", seeds=[0, 1, 2]), path, jobs=0, allow_drift=True)
    assert (summary.before, summary.done) == (2, 1)


def test_fresh_moves_the_old_run_aside(path: Path) -> None:
    run(one("random"), path, jobs=0)
    before = content(path)
    assert run(one("annealing"), path, jobs=0, fresh=True).before == 0
    assert content(path.with_name("run.old-1")) == before
    run(one("annealing"), path, jobs=0, fresh=True)
    assert path.with_name("run.old-2").is_dir()


def test_times_of_two_machines_do_not_mix(path: Path) -> None:
    run(one("random"), path, jobs=0)
    card = json.loads((path / "machine.json").read_text())
    card["machine"]["fingerprint"] = "somewhere"
    (path / "machine.json").write_text(json.dumps(card))
    assert run(one("random"), path, jobs=0).before == 2  # tables are the same everywhere
    manifest = json.loads((path / "manifest.json").read_text())
    for cell in manifest["cells"]:
        del cell["table"]
    (path / "manifest.json").write_text(json.dumps(manifest))
    from searchlab.lab.run.execute.prepare import _card

    with pytest.raises(ConfigError, match="started on another machine"):
        _card(Folder(path), "", anywhere=False)


def test_cells_that_time_never_share_a_core(tmp_path: Path) -> None:
    settings = {"name": "t", "workloads": ["matmul:m=16,n=16,k=16"], "seeds": [0, 1], "budget": {"trials": 1}}
    count = len(cores.usable())
    alone = cells(from_data({**settings, "target": {"native": {"threads": 1}}}))
    with pytest.raises(ConfigError, match=f"never share a core.*at most -j {count}$"):
        cores.check(alone, count + 1)
    cores.check(alone, None)
    assert cores.side_by_side(alone, None) == 1 and cores.side_by_side(alone, 2) == 2
    shares = cores.shares(count, apart=True)
    assert sorted(c for share in shares for c in share) == list(cores.usable())
    with pytest.raises(ConfigError, match="never share a core"):
        run(from_data({**settings, "target": {"native": {"threads": count}}}), tmp_path / "run", jobs=2)
    assert not (tmp_path / "run").exists()


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_failed_cell_does_not_stop_the_others(path: Path, tmp_path: Path) -> None:
    sweep = {
        "strategy": ["random", {"lab.run.made_strategies:Failing": {"file": str(tmp_path / "healed")}}, "annealing"]
    }
    experiment = one("random", sweep=sweep, seeds=[0])
    summary = run(experiment, path, jobs=0)
    assert (summary.done, summary.left, summary.exit_code) == (2, 0, 1)
    (failed,) = summary.failed
    assert failed.error == "RuntimeError: it was made to fail" and "made_strategies.py" in failed.trace
    cell = next(c for c in load(path).cells if c.id == failed.cell)
    assert cell.state == "failed" and cell.error == failed.error and len(cell.seconds) == 4  # what it had
    assert "it was made to fail" in (path / "log.txt").read_text()
    (tmp_path / "healed").touch()
    assert run(experiment, path, jobs=0).exit_code == 0
    assert {c.state for c in load(path).cells} == {"done"}


def test_stop_at_the_first_failure(path: Path, tmp_path: Path) -> None:
    experiment = one({"Failing": {"file": str(tmp_path / "healed")}}, seeds=[0, 1, 2])
    summary = run(experiment, path, jobs=0, on_error=OnError.parse("stop"))
    assert (summary.done, len(summary.failed), summary.left, summary.exit_code) == (0, 1, 2, 1)


def test_failures_are_tried_again(path: Path, tmp_path: Path) -> None:
    experiment = one({"Failing": {"file": str(tmp_path / "healed"), "heals": True}}, seeds=[0])
    seen = Seen()
    summary = run(experiment, path, jobs=0, on_error=OnError.parse("retry:2"), observer=seen)
    assert (summary.done, summary.failed, seen.again) == (1, (), [1])
    never = one({"Failing": {"file": str(tmp_path / "never")}}, seeds=[0])
    seen = Seen()
    summary = run(never, tmp_path / "other", jobs=0, on_error=OnError.parse("retry:2"), observer=seen)
    assert len(summary.failed) == 1 and seen.again == [1, 2]


def test_a_process_that_dies_costs_its_cell(path: Path, tmp_path: Path) -> None:
    experiment = one({"Dying": {"file": str(tmp_path / "healed"), "heals": True}}, seeds=[0])
    seen = Seen()
    summary = run(experiment, path, jobs=1, on_error=OnError.parse("retry:1"), observer=seen)
    assert summary.done == 1 and seen.again == [1] and "its process ended by signal SIGKILL" in seen.error
    assert {c.state for c in load(path).cells} == {"done"}


class Nemesis(threading.Thread):
    """Sends a signal to each of the first so many processes that run cells, before they have begun."""

    def __init__(self, count: int, number: int = signal.SIGKILL, then: Callable[[], object] = lambda: None) -> None:
        super().__init__(daemon=True)
        self._count, self._number, self._then = count, number, then
        self.met: list[int] = []

    def run(self) -> None:
        while len(self.met) < self._count:
            for child in psutil.Process().children():
                with suppress(psutil.NoSuchProcess):
                    wanted = len(self.met) < self._count and child.pid not in self.met
                    if wanted and "searchlab.lab.run.execute.cell_worker" in child.cmdline():
                        child.send_signal(self._number)
                        self.met.append(child.pid)
                        self._then()
            time.sleep(0.005)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_process_that_is_lost_while_it_starts_is_replaced(path: Path, jobs: int) -> None:
    (nemesis := Nemesis(2)).start()
    summary = run(one("random", seeds=[0, 1]), path, jobs=jobs)
    assert len(nemesis.met) == 2
    assert (summary.done, summary.failed, summary.exit_code) == (2, (), 0)


def test_a_cell_whose_processes_do_not_start_fails_alone(path: Path) -> None:
    (nemesis := Nemesis(3)).start()
    summary = run(one("random", seeds=[0, 1, 2]), path, jobs=1)
    assert len(nemesis.met) == 3
    assert (summary.done, len(summary.failed), summary.left, summary.exit_code) == (2, 1, 0, 1)
    why = "3 processes were started for it, and the last one ended by signal SIGKILL before it began"
    assert summary.failed[0].error.startswith(why)
    assert sorted(c.state for c in load(path).cells) == ["done", "done", "failed"]
    assert run(one("random", seeds=[0, 1, 2]), path, jobs=0).exit_code == 0


def test_where_no_process_starts_every_cell_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    summary = run(one("random", seeds=[0, 1, 2]), path, jobs=1)
    assert (summary.done, len(summary.failed), summary.exit_code) == (0, 3, 1)
    assert [f.error.partition(" ")[0] for f in summary.failed] == ["3", "its", "its"]  # who pays for finding out


def test_a_process_that_cannot_be_started_is_an_error_of_its_cell(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hire, tries = crew.Crew._hire, []

    def refused(self: crew.Crew) -> crew._Member:
        tries.append(self)
        if len(tries) == 1:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return hire(self)

    monkeypatch.setattr(crew.Crew, "_hire", refused)
    summary = run(one("random", seeds=[0, 1]), path, jobs=1)
    assert (summary.done, len(summary.failed), summary.exit_code) == (1, 1, 1)
    assert summary.failed[0].error.startswith("no process could be started for it: Resource temporarily unavailable")
    assert run(one("random", seeds=[0, 1]), path, jobs=0).exit_code == 0


def test_a_process_that_hangs_while_it_starts_is_replaced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def patience() -> None:
        time.sleep(0.5)  # the first one has 2 s, those after it have as long as a busy machine may need
        monkeypatch.setattr(crew, "_START_S", 180.0)

    monkeypatch.setattr(crew, "_START_S", 2.0)
    (nemesis := Nemesis(1, signal.SIGSTOP, patience)).start()
    summary = run(one("random", seeds=[0]), path, jobs=1)
    assert len(nemesis.met) == 1 and not psutil.pid_exists(nemesis.met[0])
    assert (summary.done, summary.exit_code) == (1, 0)


@pytest.mark.parametrize("text", ["", "retry", "retry:0", "retry:x", "ignore", "stop:1"])
def test_unknown_policies_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="continue, stop, retry:n"):
        OnError.parse(text)


def test_a_full_disk_ends_the_run_and_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(one("random", seeds=[0]), path, jobs=0)
    whole = content(path)
    real, room = os.write, [9]

    def write(fd: int, data: bytes) -> int:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data)

    more = one("random", seeds=[0, 1, 2])
    with monkeypatch.context() as patch:
        patch.setattr("os.write", write)
        with pytest.raises(RecordError, match="No space left on device; files written so far are kept"):
            run(more, path, jobs=0, allow_drift=True)
    states = [c.state for c in load(path).cells]
    assert states[0] == "done" and "failed" not in states
    assert {k: content(path)[k] for k in whole} == whole
    assert run(more, path, jobs=0).exit_code == 0
    assert [len(c.seconds) for c in load(path).cells] == [12, 12, 12]


def test_a_full_disk_while_the_result_is_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run(one("random", seeds=[0]), path, jobs=0)
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fsync)
        with pytest.raises((RecordError, OSError), match="No space left"):
            run(one("random", seeds=[0, 1]), path, jobs=0, allow_drift=True)
    assert not list(path.rglob(".*.json.*"))  # half a file is cleaned up
    assert run(one("random", seeds=[0]), path, jobs=0).before == 1


# --- one run at a time ------------------------------------------------------------------------------------------------


def test_a_folder_has_one_run_at_a_time(path: Path) -> None:
    lock = path / ".lock"
    assert owner(lock) is None
    with FolderLock(lock):
        assert owner(lock) == os.getpid()
        with pytest.raises(ConfigError, match=f"is being run by process {os.getpid()}; `searchlab status"):
            FolderLock(lock, patience_s=0.0).__enter__()
    assert owner(lock) is None


def test_what_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a run folder: it has no manifest.json"):
        load(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": "other"}')
    with pytest.raises(ConfigError, match="not a manifest of version 1"):
        load(tmp_path)


def test_a_strategy_that_repeats_itself_uses_its_budget(path: Path) -> None:
    assert run(one({"Stuck": {}}, seeds=0), path, jobs=0).exit_code == 0
    (cell,) = load(path).cells
    jobs = [r.job for r in RecordStore(Folder(path).records_path(cell.id))]
    assert len(jobs) == len(set(jobs)) == len(cell.seconds) == 12


def test_the_end_of_a_space_is_said(path: Path) -> None:
    class Noting(Observer):
        notes: list[str] = []

        def changed(self, row: CellRow, event: Event, board: RunState) -> None:
            if isinstance(event, Noted):
                self.notes.append(event.text)

    seen = Noting()
    assert run(one("random", seeds=0, budget={"trials": 400, "batch": 50}), path, jobs=0, observer=seen).exit_code == 0
    assert seen.notes == ["the space is exhausted after 324 of 400 trials"]
    assert seen.notes[0] in (path / "log.txt").read_text()
