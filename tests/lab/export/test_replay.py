"""A replay repeats the run step by step, or reports where it deviates."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from searchlab.cli import app
from searchlab.errors import ExportError
from searchlab.lab.folder.folder import Folder
from searchlab.lab.replay import replay
from searchlab.strategies import Genetic

from .small_run import DATA, TABLE, Unsteady, write


def call(*args: object) -> Any:
    return CliRunner().invoke(app, [str(a) for a in args])


@pytest.mark.parametrize(
    ("strategy", "model"),
    [
        ("random", "none"),
        ("genetic", "none"),
        ({"annealing": {"chains": 8, "steps": 20}}, "random"),
        ({"evolutionary": {"population": 64}}, {"gbt": {"warmup": 8}}),
    ],
)
def test_the_way_is_the_same(strategy: Any, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "gbt" in model:
        pytest.importorskip("xgboost")
    changes = {**DATA, "strategy": strategy, "model": model, "sweep": {}}
    folder = write(tmp_path / "run", monkeypatch, **changes)
    before = {p: p.read_bytes() for p in folder.rglob("*.json*")}
    (found,) = replay(folder)
    assert (found.trials, found.same, found.departure) == (20, 20, "")
    assert {p: p.read_bytes() for p in folder.rglob("*.json*")} == before


def test_second_looks_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # with this seed, some of what seems best in its batch is not: there are second looks
    changes = {**DATA, "strategy": "genetic", "sweep": {}, "seeds": [1], "budget": {"trials": 48, "batch": 8}}
    folder = Folder(write(tmp_path / "run", monkeypatch, Unsteady, **changes))
    (result,) = folder.results()
    assert any(look.rival_s < result.seconds.max() for r in result.rounds for look in r.looks)
    (found,) = replay(folder.path)
    assert (found.trials, found.same, found.departure) == (48, 48, "")
    stopped = [dataclasses.replace(r, looks=()) for r in result.rounds]
    folder.write_result(dataclasses.replace(result, rounds=tuple(stopped)))
    (found,) = replay(folder.path)
    assert found.ok and found.same < 48  # what a second look said is not known


def test_tables_are_replayed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "run", monkeypatch, **TABLE)
    assert [(r.cell.seed, r.same, r.ok) for r in replay(folder)] == [(0, 40, True), (1, 40, True)]
    shown = call("replay", folder)
    assert shown.exit_code == 0
    assert "2 of 2 cells are reproducible" in shown.stdout


def test_a_run_that_was_stopped_within_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "run", monkeypatch, **{**DATA, "sweep": {}, "strategy": "genetic"})
    (records,) = (folder / "records").iterdir()
    lines = records.read_text().splitlines(keepends=True)
    records.write_text("".join(lines[:13]))
    (found,) = replay(folder)
    assert (found.trials, found.same, found.departure) == (13, 13, "")


def test_another_strategy_departs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "run", monkeypatch, **{**DATA, "start": "random"})
    monkeypatch.setattr(Genetic, "ask", _random_later(Genetic.ask))
    found = {r.cell.entry: r for r in replay(folder)}
    assert found["random"].ok
    assert found["genetic"].same == 16
    assert found["genetic"].departure.startswith("round 2, trial ")
    assert ": proposes " in found["genetic"].departure and "where the run measured " in found["genetic"].departure
    shown = call("replay", folder)
    assert shown.exit_code == 1
    assert "departs after 16 of 20 trials  genetic on matmul(m=64, n=64, k=64), seed 0" in shown.stdout
    lines = [json.loads(line) for line in call("replay", folder, "--json", "--entry", "genetic").stdout.splitlines()]
    assert [(line["entry"], line["same"], line["trials"]) for line in lines] == [("genetic", 16, 20)]


def _random_later(ask: Any) -> Any:
    """Random points for ever; the first two batches of the run were such anyway."""
    return lambda self, count, score=None: self.draw(count) if len(self.points) else ask(self, count, score)


def test_times_that_are_not_those_of_the_run_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(write(tmp_path / "run", monkeypatch, **{**DATA, "sweep": {}, "strategy": "random"}))
    (result,) = folder.results()
    result.seconds[:] = np.where(np.arange(20) == 5, 1.0, result.seconds)
    folder.write_result(result)
    (found,) = replay(folder.path)
    assert found.departure.startswith("trial 5: took ")


def test_nothing_to_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "run", monkeypatch)
    for path in (folder / "records").iterdir():
        path.unlink()
    with pytest.raises(ExportError, match="none of its 2 cells has measurements"):
        list(replay(folder))
    with pytest.raises(ExportError, match="no entry 'x'"):
        list(replay(folder, entry="x"))
