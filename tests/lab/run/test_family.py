"""Families in experiments: one subject with its sizes, a table in its result, and what reads it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab.export.small_run import write
from lab.run.test_cell import Made, no_race, searched
from typer.testing import CliRunner

import searchlab
from searchlab.cli import app
from searchlab.errors import ConfigError, ExportError
from searchlab.lab.cells import cells
from searchlab.lab.config import dump, from_data, load
from searchlab.lab.export import best_programs, family_results, tuned_family
from searchlab.lab.folder import cellfile
from searchlab.lab.manifest import Cell
from searchlab.lab.replay import replay
from searchlab.lab.report import Report
from searchlab.lab.report.blocks import TableBlock
from searchlab.lab.run import Folder
from searchlab.lab.run import load as load_run
from searchlab.lab.run.runoff.runoff import RunOff, groups
from searchlab.lab.run.runoff.runoff import write as write_run_off
from searchlab.lab.study import FamilyStudy, SizeTimes, Study
from searchlab.lab.study.table_choice import TableChoice

SPEC = "matmul:m=dyn(1..40, 1: 0.75, 16: 0.25),n=32,k=16,dtype=float32"
DATA = {"matmul": {"m": {"dyn": [1, 40], "weights": {"1": 3, "16": 1}}, "n": 32, "k": 16}}
LABEL = "matmul(m=1..40, n=32, k=16)"


def data(**changes: Any) -> dict[str, Any]:
    return {
        "name": "sizes",
        "target": "x86-64-v3",
        "workloads": [SPEC],
        "space": "template",
        "model": "none",
        "budget": {"trials": 8, "batch": 4},
        "measure": {"local": {"repeats": 3}},
        "seeds": [0],
        "sweep": {"strategy": ["random", "genetic"]},
        **changes,
    }


# --- what a file says -------------------------------------------------------------------------------------------------


def test_a_family_is_one_subject_with_its_sizes() -> None:
    cell, _ = cells(from_data(data()))
    assert cell.task == LABEL and cell.family == SPEC and cell.workload is None and not cell.recorded
    assert [(p.label, p.weight) for p in cell.parts] == [
        ("matmul(m=1, n=32, k=16)", 0.75),
        ("matmul(m=16, n=32, k=16)", 0.25),
    ]
    assert cell.trials == 16 and cell.config["budget"]["scheduler"] == "gradient"
    again = Cell.of(json.loads(json.dumps(cell.row)))
    assert again.family == SPEC and again.id == cell.id and again.config == cell.config


def test_text_and_data_are_the_same_experiment(tmp_path: Path) -> None:
    ids = [c.id for c in cells(from_data(data()))]
    by_data = from_data(data(workloads=[{"matmul": {**DATA["matmul"], "m": "dyn(1..40, 1: 0.75, 16: 0.25)"}}]))
    assert [c.id for c in cells(by_data)] == ids
    assert [c.parts for c in cells(from_data(data(workloads=[DATA])))] == [c.parts for c in cells(by_data)]
    (tmp_path / "again.yaml").write_text(dump(from_data(data())))
    assert [c.id for c in cells(load(tmp_path / "again.yaml"))] == ids


def test_families_and_workloads_go_together() -> None:
    found = cells(
        from_data(data(workloads=["matmul:m=8,n=8,k=8", SPEC], budget={"trials": 4, "scheduler": "round-robin"}))
    )
    assert {c.task for c in found} == {"matmul(m=8, n=8, k=8)", LABEL}
    (mine, *_) = [c for c in found if c.family]
    assert mine.scheduler == "round-robin"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("matmul:m=dyn(9..2)", "9..2 is no range of sizes"),
        ({"matmul": {"m": {"dyn": [1]}}}, "no range of sizes; accepted: {dyn: "),
        ("matmul:m=?", "needs numbers for sizes, or the range of one, such as m=dyn"),
        ({"matmul": {"m": "dyn(1..4)", "n": "?"}}, "one run-time size, and n is open"),
    ],
)
def test_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_data(data(workloads=[given]))


# --- a run, with made-up times ----------------------------------------------------------------------------------------


def unraced(self: FamilyStudy, part: int, chosen: TableChoice, seconds: float, most: float) -> SizeTimes:
    """Leaves it at the made-up times, of which the table has a tenth more than what was found alone."""
    size, weight = self.family.representatives[part]
    alone = self.studies[part].best_s
    return SizeTimes(size, weight, 1.1 * alone, alone, 2.0 * alone)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FamilyStudy, "_raced", unraced)
        return write(tmp_path_factory.mktemp("family") / "run", patch, **data())


def test_the_score_is_the_mean_time_of_a_call(measured: Path) -> None:
    for result in load_run(measured).cells:
        assert result.state == "done" and result.best is not None and (table := result.best.table) is not None
        assert table.regret == pytest.approx(0.1) and len(result.best.parts) == 2
        assert result.final_s == result.taken_s == pytest.approx(table.seconds)
        assert table.seconds == pytest.approx(sum(t.weight * t.seconds for t in table.times))
        assert result.baselines["default"] == pytest.approx(table.default_s)
        assert cellfile.from_json(json.loads(json.dumps(cellfile.to_json(result))), result.cell).best == result.best


def test_times_follow_the_run_off(measured: Path, tmp_path: Path) -> None:
    folder = Folder(measured)
    found = groups(folder)
    assert len(found) == 2 and all(len(g.found) == 2 for g in found)
    try:
        for group, seconds in zip(found, (1e-6, 3e-6), strict=True):
            write_run_off(folder, group, RunOff(group.task, dict.fromkeys(group.points, seconds), group.points))
        for result in load_run(measured).cells:
            factors = result.best.table.factors if result.best and result.best.table else ()
            assert result.final_s == pytest.approx(0.75 * 1e-6 * factors[0] + 0.25 * 3e-6 * factors[1])
            assert result.baselines["default"] == pytest.approx(2 * (0.75 * 1e-6 + 0.25 * 3e-6))
    finally:
        for group in found:
            group.path(folder).unlink()


def test_what_is_taken_home(measured: Path) -> None:
    (label,) = family_results(measured)
    tuned = tuned_family(measured)
    assert label == LABEL and tuned is not None and tuned.family.spec == SPEC
    assert tuned_family(measured, "m=16") is None and best_programs(measured, "m=16")
    assert best_programs(measured, sizes=False) == {}
    kernel, rng = searchlab.load(measured, "m=1..40"), np.random.default_rng(0)
    for m in (1, 5, 40):
        a, b = rng.random((m, 16), np.float32), rng.random((16, 32), np.float32)
        np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-4)


def test_a_table_of_other_programs_is_refused(measured: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(measured, copy)
    for file in (copy / "cells").glob("*.json"):
        text = json.loads(file.read_text())
        for program in text["best"]["table"]["programs"]:
            program["hash"] = "0" * 16
        file.write_text(json.dumps(text))
    with pytest.raises(ExportError, match="no longer gives the program that was measured"):
        searchlab.load(copy)


def test_report_and_command_line(measured: Path) -> None:
    sections = {s.id: s for s in Report.of([load_run(measured)]).sections}
    assert "networks" not in sections
    tables = [b for b in sections["sizes"].blocks if isinstance(b, TableBlock)]
    assert [t.id for t in tables] == ["family-1", "family-1-rule", "family-1-entries"]
    assert [row[0].text for row in tables[0].rows] == ["1", "16"] and "mean regret is 10.0 %" in tables[0].note
    runner = CliRunner()
    shown = runner.invoke(app, ["best", str(measured)])
    assert shown.exit_code == 0 and LABEL in shown.output and "10.0% on average" in shown.output, shown.output
    row = json.loads(runner.invoke(app, ["best", str(measured), "--json"]).output)
    assert row["task"] == LABEL and row["intervals"][-1]["high"] == 40 and row["regret"] == pytest.approx(0.1)
    refused = runner.invoke(app, ["best", str(measured), "--export", "x"])
    assert refused.exit_code == 2 and "is a family of sizes" in " ".join(refused.output.split())
    assert "m=16" in runner.invoke(app, ["show", "matmul:m=dyn(1..16, 16: 1)"]).output


def test_replays(measured: Path) -> None:
    assert all(r.ok for r in replay(measured))


@pytest.mark.parametrize("at", [2, 6, 11])
def test_a_stopped_family_goes_on(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell, _ = cells(from_data(data(target={"native": {"threads": 1}})))
    monkeypatch.setattr(Study, "finish", no_race)
    monkeypatch.setattr(FamilyStudy, "_raced", unraced)
    whole, _ = searched(cell, tmp_path / "whole", monkeypatch, Made())
    assert whole.state == "done" and len(whole.seconds) == 16
    stop, first, rest = threading.Event(), Made(), Made()
    first.at = lambda count: stop.set() if count == at else None
    part, _ = searched(cell, tmp_path / "run", monkeypatch, first, stop)
    assert part.state == "interrupted" and (part.best is None or part.best.table is None)
    found, _ = searched(cell, tmp_path / "run", monkeypatch, rest)
    assert len(first.asked) + len(rest.asked) == 16 and found.best == whole.best


def test_it_may_be_stopped_while_programs_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell, _ = cells(from_data(data(target={"native": {"threads": 1}})))
    monkeypatch.setattr(Study, "finish", no_race)
    monkeypatch.setattr(FamilyStudy, "_raced", unraced)
    stop = threading.Event()
    with monkeypatch.context() as patch:
        compare = FamilyStudy.compare
        patch.setattr(FamilyStudy, "compare", lambda self: (stop.set(), compare(self))[1])
        part, _ = searched(cell, tmp_path / "run", patch, Made(), stop)
    assert part.state == "interrupted" and len(part.seconds) == 16
    again = Made()
    found, _ = searched(cell, tmp_path / "run", monkeypatch, again)
    assert found.state == "done" and not again.asked and found.best is not None and found.best.table is not None
