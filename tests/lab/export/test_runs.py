"""The best programs of a run are found, rebuilt, exported and checked; bad requests say what would do."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import searchlab as sl
from searchlab.cli import app
from searchlab.errors import ExportError
from searchlab.lab.export import best_program, best_programs, verify
from searchlab.lab.folder.folder import Folder
from searchlab.lab.run import load as load_run
from searchlab.measure import Protocol
from searchlab.workloads import Workload

from .small_run import DATA, TABLE, Hiccups, write

Call = Callable[..., Any]
TWO = {"workloads": ["matmul:m=64,n=64,k=64", "softmax:rows=16,cols=32"]}


@pytest.fixture(scope="module")
def patch() -> Any:
    with pytest.MonkeyPatch.context() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch) -> Path:
    return write(tmp_path_factory.mktemp("run") / "small", patch)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch) -> Path:
    return write(tmp_path_factory.mktemp("run") / "two", patch, **{**DATA, **TWO})


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch) -> Path:
    return write(tmp_path_factory.mktemp("run") / "table", patch, **TABLE)


@pytest.fixture
def call() -> Call:
    return lambda *args: CliRunner().invoke(app, [str(a) for a in args])


def test_the_best_is_the_fastest_winner(folder: Path) -> None:
    found = best_program(folder)
    cells = load_run(folder).cells
    assert found.seconds == min(c.final_s for c in cells)
    (cell,) = [c for c in cells if c.id == found.cell.id]
    assert (found.point, found.entry) == (cell.best.point, cell.entry)
    assert found.record.program == found.program.hash
    assert found.confirmed


def test_the_next_best_follow_in_order_each_once(folder: Path) -> None:
    ((task, programs),) = best_programs(folder, top=8).items()
    assert task == "matmul(m=64, n=64, k=64)"
    assert len(programs) == 8
    times = [p.seconds for p in programs[1:]]
    assert times == sorted(times)
    assert len({p.program.hash for p in programs}) == 8
    assert not all(p.confirmed for p in programs)


def test_the_next_best_are_chosen_by_what_the_search_minimised(tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "hiccups", patch, Hiccups)
    ((_, found),) = best_programs(folder, entry="random", top=4).items()
    (cell,) = [c for c in Folder(folder).manifest().cells if c.entry == "random"]
    measured = sorted((min(r.times), r.program) for r in Folder(folder).records(cell.id).records(status="ok"))
    assert [(min(f.record.times), f.record.program) for f in found] == measured[:4]
    assert [f.seconds for f in found[1:]] == [seconds for seconds, _ in measured[1:4]]


def test_tasks_and_entries_are_chosen_by_parts_of_their_names(two: Path) -> None:
    assert list(best_programs(two)) == ["matmul(m=64, n=64, k=64)", "softmax(rows=16, cols=32)"]
    assert best_program(two, "softmax").entry in ("random", "genetic")
    assert {f.entry for fs in best_programs(two, entry="gen", top=3).values() for f in fs} == {"genetic"}
    with pytest.raises(ExportError, match="several tasks: name one of matmul"):
        best_program(two)
    with pytest.raises(ExportError, match="no task 'conv'; known: matmul"):
        best_program(two, "conv")
    with pytest.raises(ExportError, match="no entry 'randm'; did you mean 'random'"):
        best_programs(two, entry="randm")


def test_load_gives_a_callable_of_a_run(two: Path) -> None:
    workload = sl.workload("softmax", rows=16, cols=32)
    inputs = workload.inputs()
    assert workload.check(sl.load(two, task="softmax")(*inputs.values()), inputs) is None


def test_an_export_says_where_it_comes_from(folder: Path, tmp_path: Path) -> None:
    found = best_program(folder)
    done = found.export(tmp_path / "k")
    about = json.loads((done.folder / "kernel.json").read_text())
    assert about["workload"] == "matmul:m=64,n=64,k=64,dtype=float32"
    assert about["run"] == {"name": "small", "cell": found.cell.id, "entry": found.entry, "seed": 0}
    assert (about["knobs"], about["record"]) == (found.choice, found.record.id)
    assert found.point in (done.folder / "README.md").read_text()


def test_a_second_look_compares_with_what_was_recorded(folder: Path, tmp_path: Path) -> None:
    found = best_program(folder)
    done = found.export(tmp_path / "k")
    cores = os.sched_getaffinity(0)
    plan = Protocol(repeats=1, min_repeat_ms=0.01)
    seen = verify(done.folder, found.workload, found.program, found.target, found.seconds, rounds=3, protocol=plan)
    assert seen.wrong is None
    assert seen.low <= seen.ratio <= seen.high
    assert seen.gap == seen.exported_s / found.seconds - 1
    assert os.sched_getaffinity(0) == cores


def test_programs_that_are_no_longer_the_same_are_refused(folder: Path) -> None:
    found = best_program(folder)
    other = replace(found.record, program="0123456789abcdef")
    with pytest.raises(ExportError, match="no longer gives the program that was measured .the space or the workload"):
        replace(found, known=other).program  # noqa: B018
    elsewhere = replace(other, target="another", cpu="z80")
    with pytest.raises(ExportError, match="on another machine, z80 with 1 threads"):
        replace(found, known=elsewhere).program  # noqa: B018


def test_tables_have_points_but_no_programs(table: Path, tmp_path: Path, call: Call) -> None:
    found = best_program(table)
    assert "=" in found.point
    with pytest.raises(ExportError, match="its points have no programs"):
        found.export(tmp_path / "k")
    shown = call("best", table)
    assert shown.exit_code == 0
    assert "found by" in shown.stdout
    refused = call("best", table, "--export", tmp_path / "k")
    assert refused.exit_code == 2
    assert "its points have no programs" in refused.stderr


# --- the command ------------------------------------------------------------------------------------------------------


def test_best_shows_time_entry_point_and_loops(folder: Path, call: Call) -> None:
    shown = call("best", folder)
    found = best_program(folder)
    assert shown.exit_code == 0
    where = f"found by {found.entry}, seed 0"
    for text in ("matmul(m=64, n=64, k=64)", "x numpy", where, found.point, "program matmul"):
        assert text in shown.stdout
    assert "--export kernels --verify" in shown.stdout
    several = call("best", folder, "--top", 3).stdout
    assert "confirmed" in several and several.count("yes") >= 1


def test_best_exports_and_verifies(folder: Path, call: Call, tmp_path: Path) -> None:
    shown = call("best", folder, "--export", tmp_path, "--verify")
    assert shown.exit_code == 0, shown.output
    assert "agrees with numpy" in shown.stdout
    assert "recorded" in shown.stdout
    place = tmp_path / "matmul_m64_n64_k64"
    assert (place / "kernel.h").exists()
    workload = sl.workload("matmul", m=64, n=64, k=64)
    inputs = workload.inputs()
    assert workload.check(sl.load(place)(*inputs.values()), inputs) is None


def test_best_speaks_json(folder: Path, call: Call, tmp_path: Path) -> None:
    shown = call("best", folder, "--top", 2, "--json", "--export", tmp_path)
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [line["rank"] for line in lines] == [1, 2]
    assert lines[0]["export"]["folder"] == str(tmp_path / "matmul_m64_n64_k64")
    assert "export" not in lines[1]
    assert lines[0]["program"].startswith("program matmul")


def test_a_wrong_kernel_ends_with_one(folder: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workload, "check", lambda *_: "differs from the reference")
    shown = call("best", folder, "--verify")
    assert shown.exit_code == 1
    assert "wrong: differs from the reference" in shown.stdout


def test_what_is_no_run_is_named(tmp_path: Path, call: Call) -> None:
    for command in ("best", "replay"):
        refused = call(command, tmp_path)
        assert refused.exit_code == 2
        assert "is not a run folder" in refused.stderr
