"""Run-offs: who takes part, which times count, and what becomes of one that is disturbed."""

import json
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab.export.small_run import write as write_run

from searchlab.lab.config import load as load_experiment
from searchlab.lab.folder.folder_lock import owner
from searchlab.lab.manifest import FORMAT, Cell
from searchlab.lab.records import Record
from searchlab.lab.results import CellResult, Winner
from searchlab.lab.run import Folder, Observer, RunSummary, load, run
from searchlab.lab.run.runoff import holder, holding
from searchlab.lab.run.runoff.runoff import (
    RunOff,
    RunoffGroup,
    groups,
    pending,
    read,
    results,
    run_offs,
    write,
)
from searchlab.lab.run.status import status
from searchlab.search import Task, space
from searchlab.targets import parse as target
from searchlab.workloads import parse as workload

_fork = multiprocessing.get_context("fork")
_PATIENCE_S = 120.0
MATMUL, NATIVE = "matmul:m=16,n=16,k=16", {"native": {"threads": 1}}
PARTS = {"space": "template", "model": "none", "strategy": "random"}
CONFIG = {"workload": MATMUL, "target": NATIVE, **PARTS, "measure": {"local": {}}, "budget": {"trials": 4}}


def made(path: Path, **cells: dict[str, Any]) -> Folder:
    """A folder with these cells; each has found a point of its own unless it says something else."""
    folder, entries = Folder(path), []
    for number, (id, given) in enumerate(cells.items()):
        said = {"state": "done", "knobs": {"t": number}, **given}
        config = {**CONFIG, **said.get("config", {})}
        more = {"table": said.get("table"), "kept": said.get("kept", False)}
        entries.append({"id": id, "entry": id, "task": "t", "seed": 0, "factors": {}, "config": config, **more})
        best = None if said["knobs"] is None else Winner(0, said["knobs"], "", 1e-3 * (number + 1))
        if said["state"] != "waiting":
            folder.write_result(replace(CellResult.waiting(Cell.of(entries[-1])), state=said["state"], best=best))
    folder.write_manifest({"format": FORMAT, "version": 1, "name": "made", "started": "", "cells": entries})
    return folder


def raced(folder: Folder, group: RunoffGroup, **changes: Any) -> RunOff:
    """Writes a run-off in which the n-th cell takes n + 1 microseconds."""
    seconds = {cell: 1e-6 * (n + 1) for n, cell in enumerate(group.points)}
    found = replace(RunOff(group.task, seconds, group.points, {"numpy": 5e-6}, noise=0.03), **changes)
    write(folder, group, found)
    return found


def members(folder: Folder) -> list[list[str]]:
    return [list(g.points) for g in groups(folder)]


# --- who takes part ---------------------------------------------------------------------------------------------------


def test_cells_of_one_workload_and_target_are_a_group(tmp_path: Path) -> None:
    other = {"config": {"target": {"native": {"threads": 2}}}}
    another = {"config": {"workload": "matmul:m=32,n=16,k=16"}}
    folder = made(tmp_path, a={}, b=other, c={}, d=another, e=other, f={"config": {"space": "sketch"}})
    assert members(folder) == [["a", "c", "f"], ["b", "e"]]  # a cell that is alone has nobody to race with
    assert len({g.path(folder) for g in groups(folder)}) == 2
    assert [g.points for g in pending(folder)] == [g.points for g in groups(folder)]


@pytest.mark.parametrize(
    "cell",
    [
        {"state": "failed"},
        {"knobs": None},
        {"kept": True},
        {"kept": True, "state": "waiting"},
        {"table": "matmul-256"},
        {"config": {"measure": {"ray": {}}}},
    ],
)
def test_who_takes_no_part(tmp_path: Path, cell: dict[str, Any]) -> None:
    assert members(made(tmp_path, a={}, b=cell, c={})) == [["a", "c"]]
    assert members(made(tmp_path, a={}, b=cell)) == []


@pytest.mark.parametrize("state", ["waiting", "interrupted"])
def test_all_cells_have_to_end_first(tmp_path: Path, state: str) -> None:
    assert groups(made(tmp_path, a={}, b={"state": state}, c={})) == []


# --- which times count ------------------------------------------------------------------------------------------------


def test_times_of_the_run_off_take_the_place_of_the_cells_own(tmp_path: Path) -> None:
    folder = made(tmp_path, a={}, b={"state": "failed", "knobs": None}, c={}, d={"kept": True})
    assert load(tmp_path).noise is None and run_offs(folder) == []
    raced(folder, groups(folder)[0])
    assert pending(folder) == []
    found = load(tmp_path)
    assert [c.final_s for c in found.cells if c.id != "b"] == [1e-6, 2e-6, 4e-3] and found.noise == 0.03
    assert [dict(c.baselines) for c in found.cells] == [{"numpy": 5e-6}, {}, {"numpy": 5e-6}, {}]
    assert list(results(folder)) == ["a", "b", "c", "d"]
    assert [row.best_s for row in status(tmp_path).rows] == [1e-6, None, 2e-6]


def test_points_that_have_changed_race_again(tmp_path: Path) -> None:
    folder = made(tmp_path, a={}, b={})
    raced(folder, groups(folder)[0])
    changed = made(tmp_path, a={}, b={"knobs": {"t": 7}})
    assert len(pending(changed)) == 1 and results(changed)["a"].final_s == 1e-3 and load(tmp_path).noise is None
    healed = made(tmp_path, a={}, b={}, c={})
    assert len(pending(healed)) == 1


def test_where_a_program_is_wrong_all_keep_their_times(tmp_path: Path) -> None:
    folder = made(tmp_path, a={}, b={})
    raced(folder, groups(folder)[0], wrong={"b": "it is another one"}, seconds={"a": 1e-6})
    assert pending(folder) == [] and run_offs(folder) == []
    assert [r.final_s for r in results(folder).values()] == [1e-3, 2e-3]


@pytest.mark.parametrize(
    "damage", ["", "[1]", '{"task": "t"}', '{"task": "t", "seconds": {}, "points": 3}', '{"x": 1}']
)
def test_a_torn_file_is_not_trusted(tmp_path: Path, damage: str) -> None:
    folder = made(tmp_path, a={}, b={})
    (group,) = groups(folder)
    raced(folder, group)
    group.path(folder).write_text(damage)
    assert read(folder, group) is None and len(pending(folder)) == 1


# --- races ------------------------------------------------------------------------------------------------------------


def real_points(count: int) -> list[dict[str, Any]]:
    found = space("template", Task(workload(MATMUL), target(NATIVE)))
    points = found.sample(count, np.random.default_rng(0))
    return [found.choice(points[n]) for n in range(count)]


def test_a_program_that_two_cells_found_runs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "_FEW", 1)
    one, other = real_points(2)
    folder = made(tmp_path, a={"knobs": one}, b={"knobs": other}, c={"knobs": one})
    said: list[str] = []
    holder.hold(folder, said.append, threading.Event())
    assert [s for s in said if "waiting" not in s] == ["run-off on t: the best programs of 3 cells, interleaved"]
    (found,) = run_offs(folder)
    assert found.seconds["a"] == found.seconds["c"] > 0 and found.seconds["b"] > 0
    assert {"default", "numpy"} <= found.baselines.keys() and not found.wrong and 0 <= found.noise < np.inf
    assert [r.final_s for r in results(folder).values()] == list(found.seconds[c] for c in "abc")


def test_a_space_that_gives_other_programs_now_has_no_run_off(tmp_path: Path) -> None:
    one, other = real_points(2)
    folder = made(tmp_path, a={"knobs": one}, b={"knobs": other})
    folder.records("b").append(Record(task="t", status="ok", times=(1.0,), knobs=other, program="another", cell="b"))
    said: list[str] = []
    holder.hold(folder, said.append, threading.Event())
    assert "keep each cell's own times" in said[-1] and "no longer gives the program that was measured" in said[-1]
    assert pending(folder) == [] and results(folder)["a"].final_s == 1e-3


def test_an_error_does_not_keep_other_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"config": {"target": {"native": {"threads": 2}}}}
    folder = made(tmp_path, a={}, b={}, c=other, d=other)

    def race(folder: Folder, group: RunoffGroup, say: Any) -> RunOff:
        if "a" in group.points:
            raise ValueError("too bad")
        return raced(folder, group)

    monkeypatch.setattr(holder, "race", race)
    said: list[str] = []
    holder.hold(folder, said.append, threading.Event())
    assert "ValueError: too bad" in said[1] and [list(g.points) for g in pending(folder)] == [["a", "b"]]
    stop = threading.Event()
    stop.set()
    holder.hold(folder, pytest.fail, stop)


# --- in a run ---------------------------------------------------------------------------------------------------------


class Heard(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def noted(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose cells are done, but that has had no run-off."""
    with pytest.MonkeyPatch.context() as patch:
        return write_run(tmp_path_factory.mktemp("searched") / "run", patch)


@pytest.fixture
def path(searched: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(searched, tmp_path / "run"))


def go_on(path: Path, **options: Any) -> RunSummary:
    return run(load_experiment(path / "experiment.yaml"), path, **options)


def made_race(patch: pytest.MonkeyPatch, how: str) -> None:
    patch.setattr(holding, "_MODULE", "lab.run.made_racing")
    patch.setenv("MADE_RACE", how)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


def test_a_finished_run_gets_its_run_off_once(path: Path) -> None:
    heard, before = Heard(), load(path)
    assert len(pending(Folder(path))) == 1
    summary = go_on(path, jobs=1, observer=heard)
    assert (summary.exit_code, summary.before, summary.done) == (0, 2, 0)
    assert "run-off on matmul(m=64, n=64, k=64): the best programs of 2 cells, interleaved" in heard.notes
    assert heard.notes[0] in (path / "log.txt").read_text()
    found = load(path)
    assert found.noise is not None and all("torch" in c.baselines or "numpy" in c.baselines for c in found.cells)
    assert [c.final_s for c in found.cells] != [c.final_s for c in before.cells]
    again = Heard()
    assert go_on(path, jobs=1, observer=again).exit_code == 0 and again.notes == []


def test_the_process_of_the_run_may_hold_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "race", lambda folder, group, say: raced(folder, group))
    heard = Heard()
    assert go_on(path, jobs=0, observer=heard).exit_code == 0
    assert len(heard.notes) == 1 and load(path).cells[0].final_s == 1e-6


def test_a_crash_costs_the_run_off_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_race(monkeypatch, "crash")
    heard, before = Heard(), [c.final_s for c in load(path).cells]
    summary = go_on(path, jobs=1, observer=heard)
    assert summary.exit_code == 0 and "ended by signal SIGKILL" in heard.notes[-1]
    assert "results keep each cell's own times" in heard.notes[-1]
    assert [c.final_s for c in load(path).cells] == before and len(pending(Folder(path))) == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_run_that_ends_during_the_run_off(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    made_race(monkeypatch, "slow")
    process = _fork.Process(target=lambda: sys.exit(go_on(path, jobs=1).exit_code))
    process.start()
    until(lambda: "interleaved" in (path / "log.txt").read_text())
    assert process.pid is not None
    os.kill(process.pid, number)
    process.join(_PATIENCE_S)
    assert process.exitcode == code
    until(lambda: owner(path / ".lock") is None)  # the other process holds the lock as long as it lives
    assert len(pending(Folder(path))) == 1
    monkeypatch.setattr(holder, "race", lambda folder, group, say: raced(folder, group))
    assert go_on(path, jobs=0).exit_code == 0 and pending(Folder(path)) == []


def test_a_run_that_stops_at_a_failure_has_no_run_off(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from searchlab.lab.run import OnError
    from searchlab.lab.run.execute import measurers

    monkeypatch.setattr(measurers.Measurers, "of", lambda *_: 1 / 0)
    victim = max(path.glob("cells/*.json"))
    victim.write_text(json.dumps({}))
    heard = Heard()
    assert go_on(path, jobs=0, on_error=OnError.parse("stop"), observer=heard).exit_code == 1
    assert heard.notes == [] and not (path / "runoffs").exists()
