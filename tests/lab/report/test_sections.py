"""Sections that need more than made-up cells: ablations, noise, and programs of real runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lab.made import made_run
from typer.testing import CliRunner

from searchlab.cli import app
from searchlab.lab.config import load as load_experiment
from searchlab.lab.records import Record, RecordStore
from searchlab.lab.report import Report
from searchlab.lab.report.blocks import ProgramText
from searchlab.lab.report.material import Material
from searchlab.lab.report.steadiness import final_times, spreads
from searchlab.lab.run import load, run
from searchlab.lab.run.runoff import holder
from searchlab.lab.study import Finish, TaskSubject

RECORDED = """
name: recorded
workloads: [{table: matmul-256}]
strategy: random
budget: {trials: 12}
seeds: 0..1
sweep: {strategy: [random, local]}
"""
REAL = """
name: real
workloads: [{matmul: {m: 16, n: 16, k: 16}}]
space: sketch
model: none
strategy: random
budget: {trials: 4, batch: 4}
seeds: 0
"""


def test_ablation_bars_are_ordered_by_what_is_lost() -> None:
    worth = {"full": 1.0, "without crossover": 1.05, "without model": 1.4}
    factors = {e: {"space": "sketch", "ablation": e} for e in worth}
    report = Report.of([made_run(worth, seeds=10, trials=8, noise=0.01, factors=factors)])
    (figure,) = [f for f in report.figures if f.id == "ablation"]
    assert figure.title == "The loss without each part of full"
    assert figure.file.index(">without model<") < figure.file.index(">without crossover<")
    assert "1.40 ×, p &lt; 0.001 ★" in figure.file


def test_ablation_compares_within_what_is_swept() -> None:
    worth = {"a/full": 1.0, "a/without x": 1.2, "b/full": 3.0, "b/without x": 3.6}
    factors = {e: {"space": e[0], "ablation": e[2:]} for e in worth}
    report = Report.of([made_run(worth, seeds=5, trials=8, noise=0.001, factors=factors)])
    (figure,) = [f for f in report.figures if f.id == "ablation"]
    assert "1.20 ×" in figure.file


def test_noise_comes_from_the_repeats(tmp_path: Path) -> None:
    made = made_run(["only"], ["t"], seeds=1, trials=2)
    (cell,) = made.cells
    store = RecordStore(tmp_path / "records" / f"{cell.id}.jsonl")
    store.append(Record(task="t", status="ok", times=(0.9, 1.0, 1.1), cell=cell.id))
    store.append(Record(task="t", status="run", cell=cell.id))
    material = Material.of([replace(made, folder=str(tmp_path))])
    assert np.allclose(spreads(material)["t"], [0.1])
    assert "noise-table" in Report(material).html


def test_the_page_says_how_final_times_were_taken() -> None:
    own, raced = made_run(["a", "b"], seeds=2, trials=4), made_run(["c"], seeds=2, trials=4, name="raced")
    raced = replace(raced, noise=0.034)
    assert "measured by each cell at its own end" in final_times(Material.of([own]))
    report = Report.of([raced])
    assert "interleaved in one process" in report.html and "up to 3.4 %" in report.html
    assert "run-offs in 1 of 2 runs:" in final_times(Material.of([own, raced]))
    assert final_times(Material.of([made_run(seeds=2, trials=4, recorded=True)])) == ""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "e.yaml").write_text(RECORDED)
    run(load_experiment(folder / "e.yaml"), folder / "run", jobs=0, source=RECORDED)
    return folder / "run"


def test_a_recorded_run(recorded: Path) -> None:
    report = Report.of([load(recorded)])
    assert "simulated time" in report.html and "optimum of the table" in report.html
    assert "looked up in recorded tables" in report.headline.extent


def test_the_command_writes_page_and_figures(recorded: Path, tmp_path: Path) -> None:
    page, figures = tmp_path / "deep" / "p.html", tmp_path / "figures"
    done = CliRunner().invoke(app, ["report", str(recorded), "-o", str(page), "--figures", str(figures)])
    assert done.exit_code == 0, done.output
    assert page.read_text().startswith("<!doctype html>") and (figures / "scores.svg").exists()
    assert "cannot be told apart" in done.output and str(page) in done.output.replace("\n", "")


def test_the_page_is_beside_the_run_by_default(recorded: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(recorded), "--json"])
    assert done.exit_code == 0 and (recorded / "report.html").exists() and '"headline"' in done.output


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert done.exit_code == 2 and "is not a run folder" in " ".join(done.output.split())


def test_programs_of_a_real_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its programs are searched and measured; the races at its end have no part in them."""
    monkeypatch.setattr(TaskSubject, "final", lambda self, finalists, best_s, *_: Finish(0, best_s))
    monkeypatch.setattr(holder, "hold", lambda *_: None)
    (tmp_path / "e.yaml").write_text(REAL)
    run(load_experiment(tmp_path / "e.yaml"), tmp_path / "run", jobs=0, source=REAL)
    report = Report.of([load(tmp_path / "run")])
    (program,) = [b for s in report.sections for b in s.blocks if isinstance(b, ProgramText)]
    texts = {t.title: t.text for t in program.texts}
    assert "for " in texts["loops"] and "define " in texts["LLVM IR"] and "ret" in texts["assembly"]
    assert "<summary>assembly</summary>" in report.html
