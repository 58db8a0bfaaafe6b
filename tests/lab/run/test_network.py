"""Networks as one subject: one budget, times of the whole, and their tasks' programs, races and lessons."""

import itertools
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab.export.small_run import Unsteady, write
from lab.run.runs import content, replay
from lab.run.test_cell import Made, no_race, searched

from searchlab.lab.cells import cells
from searchlab.lab.config import dump, from_data, load
from searchlab.lab.export.finding import best_programs
from searchlab.lab.history.origins import digest
from searchlab.lab.history.trials import past
from searchlab.lab.leaderboard import boards, recorded_tables
from searchlab.lab.leaderboard.validation import validate
from searchlab.lab.manifest import Cell
from searchlab.lab.replay import replay as replayed
from searchlab.lab.report import Report
from searchlab.lab.report.blocks import ProgramText
from searchlab.lab.results import CellResult, Run
from searchlab.lab.run import Folder, run
from searchlab.lab.run import load as load_run
from searchlab.lab.run.runoff import holder
from searchlab.lab.run.runoff.runoff import RunOff, groups
from searchlab.lab.run.runoff.runoff import write as write_run_off
from searchlab.lab.study import Study
from searchlab.measure.recorded.tables import load as table

TABLES = {"matmul-256": 5, "softmax-128x1024": 1, "conv2d-32x28x28": 2}
TASKS = {"matmul:m=64,n=64,k=64": 4, "matmul:m=96,n=32,k=48": 1.5, "softmax:rows=32,cols=64": 1}
BOTH = {"budget.scheduler": ["gradient", "round-robin"]}


def tables(**changes: Any) -> Any:
    given = {"workloads": [{"network": {"name": "three", "tables": TABLES}}], "strategy": "annealing", "sweep": BOTH}
    return replay(**{**given, **changes})


def tasks(**changes: Any) -> dict[str, Any]:
    return {
        "name": "net",
        "target": {"native": {"threads": 1}},
        "workloads": [{"network": {"name": "three", "tasks": TASKS}}],
        "space": "sketch",
        "model": "none",
        "strategy": "genetic",
        "budget": {"trials": 8, "batch": 4},
        "measure": {"local": {"repeats": 3}},
        "seeds": [0],
        "sweep": BOTH,
        **changes,
    }


def total(result: CellResult) -> float:
    assert result.best is not None
    return float(sum(p.weight * p.best.seconds for p in result.best.parts))


# --- what a file says -------------------------------------------------------------------------------------------------


def test_a_network_is_one_subject() -> None:
    (cell,) = cells(from_data({"name": "n", "workloads": [{"network": "resnet18"}], "seeds": 0, "effort": "smoke"}))
    assert cell.task == "resnet18" and len(cell.parts) > 5 and max(p.weight for p in cell.parts) > 1
    assert cell.trials == 8 * len(cell.parts) and cell.config["budget"]["scheduler"] == "gradient"
    assert [c.task for c in cell.searches] == [p.label for p in cell.parts]
    assert {c.id for c in cell.searches} == {cell.id} and not cell.recorded


def test_single_tasks_are_what_they_were() -> None:
    """Cells of runs that were made before there were networks are known by the same ids."""
    settings = {"name": "w", "workloads": ["matmul:m=16,n=16,k=16"], "seeds": [0], "model": "none"}
    (cell,) = cells(from_data({**settings, "budget": {"trials": 4, "batch": 2, "thrift": 0}}))
    assert cell.config["budget"] == {"trials": 4, "seconds": None, "batch": 2}
    assert cell.searches == (cell,) and cell.trials == 4


def test_what_was_resolved_gives_the_same_cells(tmp_path: Path) -> None:
    for experiment in (from_data(tasks()), tables(), from_data({"name": "r", "workloads": {"network": "resnet18"}})):
        (tmp_path / "again.yaml").write_text(dump(experiment))
        assert [c.id for c in cells(load(tmp_path / "again.yaml"))] == [c.id for c in cells(experiment)]


def test_weights_and_schedulers_make_other_cells() -> None:
    first, second = (c.id for c in cells(from_data(tasks(seeds=[0]))))
    changed = {"network": {"name": "three", "tasks": {**TASKS, "softmax:rows=32,cols=64": 2}}}
    assert len({first, second, *(c.id for c in cells(from_data(tasks(workloads=[changed]))))}) == 4


def test_a_shared_model_makes_other_cells_and_none_those_of_before() -> None:
    def ids(**budget: Any) -> list[str]:
        given = {"trials": 8, "batch": 4, **budget}
        return [c.id for c in cells(from_data(tasks(model="gbt", budget=given)))]

    assert ids() == ids(share_model=False)
    assert not set(ids()) & set(ids(share_model=True))
    (cell, _) = cells(from_data(tasks(model="gbt", budget={"trials": 8, "share_model": True})))
    assert cell.config["budget"]["share_model"] is True and Cell.of(cell.row).budget.share_model
    (plain, _) = cells(from_data(tasks()))
    assert "share_model" not in plain.config["budget"] and not Cell.of(plain.row).budget.share_model


# --- on recorded tables -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("network") / "run"
    assert run(tables(), path, jobs=0).exit_code == 0
    return path


def test_times_are_those_of_the_whole(recorded: Path) -> None:
    for cell in load_run(recorded).cells:
        assert cell.state == "done" and len(cell.seconds) == len(cell.elapsed) == 36 and cell.task == "three"
        assert cell.final_s == pytest.approx(total(cell)) and cell.optimum_s is not None
        assert cell.optimum_s == pytest.approx(sum(w * table(t).best for t, w in TABLES.items()))
        assert cell.optimum_s <= cell.final_s
        first = next(n for n, s in enumerate(cell.seconds) if np.isfinite(s))
        assert first >= 8 and np.isinf(cell.seconds[:8]).all()  # until the third task had its first turn
        assert (np.diff(cell.elapsed) >= 0).all() and cell.elapsed[0] > 0


def test_turns(recorded: Path) -> None:
    run_ = load_run(recorded)
    for cell in run_.cells:
        turns = [r.part for r in cell.rounds]
        assert sorted(turns[:3]) == [0, 1, 2] and len(turns) == 9
        if cell.entry.endswith("round-robin"):
            assert all(turns.count(n) == 3 for n in range(3))
    assert {c.entry for c in run_.cells} == {"scheduler=gradient", "scheduler=round-robin"}


def test_the_same_seed_gives_the_same(recorded: Path, tmp_path: Path) -> None:
    assert run(tables(), tmp_path / "again", jobs=2).exit_code == 0
    assert content(tmp_path / "again") == content(recorded)


def test_a_replay_takes_the_same_way(recorded: Path) -> None:
    found = list(replayed(recorded))
    assert [(r.trials, r.same, r.departure) for r in found] == [(36, 36, "")] * 4


def test_boards_and_reports(recorded: Path) -> None:
    run_ = load_run(recorded)
    assert recorded_tables([run_]) == ({}, ())
    (board,) = boards([run_])
    assert board.tasks == ("three",) and len(board.standings) == 2
    html = Report.of([run_]).html
    assert "Networks, task by task" in html and "three: trials that each task got" in html


def test_what_was_found_is_looked_up_again(recorded: Path) -> None:
    checks = validate(recorded, np.random.default_rng(0), sample=100)
    assert len(checks) == 4 * 3 and all(c.good for c in checks) and {c.task for c in checks} == set(TABLES)


# --- on tasks, with made-up times -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        return write(tmp_path_factory.mktemp("network") / "run", patch, **tasks())


def test_the_programs_of_its_tasks(measured: Path) -> None:
    found = best_programs(measured, top=2)
    assert len(found) == 3
    for programs, text in zip(found.values(), TASKS, strict=True):
        assert len(programs) == 2 and programs[0].confirmed
        assert programs[0].workload.label.startswith(text.partition(":")[0])
        assert programs[0].record is not None and programs[0].record.program == programs[0].program.hash
    (softmax,) = best_programs(measured, "softmax")
    assert softmax.startswith("softmax")


def test_the_report_shows_them(measured: Path) -> None:
    (section,) = [s for s in Report.of([load_run(measured)]).sections if s.id == "programs"]
    shown = [b for b in section.blocks if isinstance(b, ProgramText)]
    assert [b.task for b in shown] == list(best_programs(measured))
    assert all([c.title for c in b.texts] == ["loops", "LLVM IR", "assembly"] for b in shown)


def test_a_history_of_a_network(measured: Path) -> None:
    known = past(str(measured), digest(str(measured)))
    assert len({k.trials.task for k in known.known}) == 3 and not known.unfit
    assert sum(k.records for k in known.known) == 2 * 24


def test_second_looks_belong_to_their_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "run", monkeypatch, Unsteady, **tasks(budget={"trials": 16, "batch": 4}))
    results = list(Folder(folder).results())
    assert len({r.part for c in results for r in c.rounds if r.looks}) > 1
    assert all(r.ok for r in replayed(folder))


@pytest.fixture
def cell() -> Cell:
    (found, _) = cells(from_data(tasks()))
    return found


@pytest.mark.parametrize("at", [2, 6, 11, 17])
def test_a_stopped_network_goes_on(cell: Cell, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Study, "finish", no_race)
    whole, _ = searched(cell, tmp_path / "whole", monkeypatch, Made())
    assert whole.state == "done" and len(whole.seconds) == 24
    stop, first, rest = threading.Event(), Made(), Made()
    first.at = lambda count: stop.set() if count == at else None
    part, _ = searched(cell, tmp_path / "run", monkeypatch, first, stop)
    assert part.state == "interrupted" and len(list(Folder(tmp_path / "run").records(cell.id))) == at
    found, _ = searched(cell, tmp_path / "run", monkeypatch, rest)
    assert len(first.asked) + len(rest.asked) == 24
    assert found.seconds.tolist() == whole.seconds.tolist() and found.status == whole.status
    assert [r.part for r in found.rounds] == [r.part for r in whole.rounds]
    assert found.best == whole.best
    assert (np.diff(found.elapsed) >= 0).all()


def test_run_offs_race_each_task(measured: Path) -> None:
    folder = Folder(measured)
    found = groups(folder)
    assert len(found) == 3 and all(len(g.found) == 2 for g in found)
    before = {c.id: c for c in load_run(measured).cells}
    for group, seconds in zip(found, itertools.count(1), strict=False):
        times = {cell: 1e-6 * seconds for cell in group.points}
        write_run_off(folder, group, RunOff(group.task, times, group.points, {"numpy": 2e-6 * seconds}))
    for c in load_run(measured).cells:
        assert c.final_s == pytest.approx(4 * 1e-6 + 1.5 * 2e-6 + 3e-6) and c.baselines["numpy"] == 2 * c.final_s
        assert before[c.id].final_s != c.final_s and c.seconds.tolist() == before[c.id].seconds.tolist()


def test_a_race_of_real_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hold = holder.hold
    monkeypatch.setattr(holder, "_FEW", 1)
    monkeypatch.setattr(holder, "_MOST_S", 0.1)
    folder = write(tmp_path / "run", monkeypatch, **tasks())
    said: list[str] = []
    hold(Folder(folder), said.append, threading.Event())
    run_: Run = load_run(folder)
    assert sum(text.startswith("run-off on") for text in said) == 3 and run_.noise is not None  # others may time, too
    assert all({"default", "numpy"} <= set(c.baselines) and c.final_s == pytest.approx(total(c)) for c in run_.cells)
    assert json.loads(next(iter((folder / "runoffs").iterdir())).read_text())["seconds"]
