"""`searchlab run` and `searchlab status` as people and programs see them."""

import json
from pathlib import Path
from typing import Any

import pytest
from lab.run.runs import STRATEGIES, one
from typer.testing import CliRunner

from searchlab.cli import app
from searchlab.lab.config import dump
from searchlab.lab.run import load


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    strategies = ["random", "annealing"]
    (tmp_path / "small.yaml").write_text(dump(one("random", sweep={"strategy": strategies}, name="small")))
    return tmp_path


def call(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def test_a_run_and_the_same_again(here: Path) -> None:
    first = call("run", "small.yaml", "-j", "0")
    assert first.exit_code == 0, first.output
    for text in ("random", "annealing", "all 4 cells done", "searchlab report runs/small", "leaderboard runs/small"):
        assert text in first.output
    assert "[4/4]" in first.output and "seed 1" in first.output
    found = load("runs/small")
    assert found.command.startswith("searchlab") and "strategy" in found.source
    again = call("run", "runs/small", "-j", "0")
    assert again.exit_code == 0 and "all of them earlier" in again.output


def test_dry_run_writes_nothing(here: Path) -> None:
    found = call("run", "small.yaml", "budget.trials=20", "--dry-run")
    assert found.exit_code == 0 and "4 cells, 80 trials to go" in found.output and "expected time" in found.output
    assert not (here / "runs").exists()
    data = json.loads(call("run", "small.yaml", "--dry-run", "--json").output)
    assert data["trials"] == 48 and len(data["cells"]) == 4 and data["folder"] == "runs/small"
    call("run", "small.yaml", "-j", "0", "-q")
    found = call("run", "small.yaml", "seeds=0..2", "--dry-run")
    assert "6 cells (4 done before), 24 trials to go" in found.output


def test_quiet_and_json(here: Path) -> None:
    assert call("run", "small.yaml", "-j", "0", "-q").output == ""
    data = json.loads(call("run", "small.yaml", "-j", "0", "--json").output)
    assert data == {
        "folder": "runs/small", "done_before": 4, "done": 0, "left": 0, "failed": [], "interrupted": False
    }  # fmt: skip


def test_another_experiment_in_the_folder(here: Path) -> None:
    call("run", "small.yaml", "-j", "0", "-q")
    found = call("run", "small.yaml", "budget.trials=16", "-j", "0")
    assert found.exit_code == 2 and "budget.trials: 12 -> 16" in found.output and "--allow-drift" in found.output
    assert call("run", "small.yaml", "budget.trials=16", "-j", "0", "--fresh", "-q").exit_code == 0
    assert (here / "runs/small.old-1").is_dir()
    assert call("run", "small.yaml", "budget.trials=20", "-j", "0", "--allow-drift", "-q").exit_code == 0


def test_failures_are_told_at_once_and_again_at_the_end(here: Path) -> None:
    strategy = {f"{STRATEGIES}:Failing": {"file": "never"}}
    (here / "bad.yaml").write_text(dump(one("random", sweep={"strategy": ["random", strategy]}, name="bad")))
    found = call("run", "bad.yaml", "-j", "0")
    assert found.exit_code == 1
    assert found.output.count("RuntimeError: it was made to fail") == 4  # two cells, each twice
    assert (
        "2 failed" in found.output and "runs/bad/log.txt" in found.output and "searchlab run runs/bad" in found.output
    )
    data = json.loads(call("run", "bad.yaml", "-j", "0", "--json", "--on-error", "stop").stdout)
    assert len(data["failed"]) == 1 and data["left"] == 1
    shown = call("status", "runs/bad")
    assert "it was made to fail" in shown.output and "searchlab run runs/bad" in shown.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.yaml"], "nothing.yaml"),
        (["small.yaml", "--on-error", "shrug"], "continue, stop, retry:n"),
        (["."], "is not a run folder"),
        (["small.yaml", "strategie=random"], "strategie"),
    ],
)
def test_bad_usage_is_one_line(here: Path, words: list[str], message: str) -> None:
    found = call("run", *words)
    assert found.exit_code == 2 and message in found.output and "Traceback" not in found.output


def test_status(here: Path) -> None:
    call("run", "small.yaml", "-j", "0", "-q")
    shown = call("status", "runs/small")
    assert shown.exit_code == 0 and "4 cells: 4 done" in shown.output and "not running" in shown.output
    data = json.loads(call("status", "runs/small", "--json").output)
    assert data["complete"] and data["states"]["done"] == 4 and data["trials"] == 48 and len(data["rows"]) == 2
    next((here / "runs/small/cells").iterdir()).unlink()
    data = json.loads(call("status", "runs/small", "--json", "--watch").output)  # nobody runs it, so once
    assert data["states"] == {"done": 3, "running": 0, "interrupted": 1, "failed": 0, "waiting": 0}
    assert "searchlab run runs/small" in call("status", "runs/small").output
    assert call("status", ".").exit_code == 2


def test_what_was_not_chosen_is_shown(here: Path) -> None:
    (here / "least.yaml").write_text("workloads: {table: softmax-128x1024}\nseeds: 0\nbudget: {trials: 8, batch: 4}\n")
    planned = call("run", "least.yaml", "--dry-run")
    assert "all with model: none, strategy: bayesian" in planned.output
    (listed,) = json.loads(call("run", "least.yaml", "--dry-run", "--json").output)["cells"]
    assert listed["factors"] == {"model": "none", "strategy": "bayesian"}
    call("run", "least.yaml", "-j", "0", "-q")
    assert "all with model: none, strategy: bayesian" in call("status", "runs/least").output
    assert json.loads(call("status", "runs/least", "--json").output)["shared"] == listed["factors"]
    assert load("runs/least").config["strategy"] == "bayesian"


def test_a_search_that_is_random_for_want_of_a_model_says_so(here: Path) -> None:
    said = call("run", "small.yaml", "strategy=metropolis", "-j", "0", "-o", "blind").output
    assert "strategy 'metropolis' has no cost model here, so all candidates are random" in said
    said = call("run", "small.yaml", "strategy=metropolis", "model={gbt: {view: knobs}}", "-j", "0", "-o", "led").output
    assert "no cost model" not in said
