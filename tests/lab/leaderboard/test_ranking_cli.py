"""`searchlab leaderboard` and `searchlab compare`: what they print, write and refuse."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab.made import made_run
from typer.testing import CliRunner

from searchlab.cli import app

FACTORS = {f"{s}-{m}": {"strategy": s, "model": m} for s in ("genetic", "random") for m in ("gbt", "none")}
WORTH = {"genetic-gbt": 1.0, "genetic-none": 1.1, "random-gbt": 1.4, "random-none": 1.5}
RUNS = {
    "swept": made_run(WORTH, factors=FACTORS, baselines={"torch": 2.0}),
    "small": made_run({"x": 1.0}, ["matmul"], seeds=2, machine="other", name="small"),
}
RUNS["empty"] = replace(RUNS["small"], cells=tuple(replace(c, state="waiting") for c in RUNS["small"].cells))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setattr("searchlab.lab.run.load", lambda folder: RUNS[str(folder)])
    monkeypatch.setattr("searchlab.cli.output.out._width", 160)
    return lambda *args: CliRunner().invoke(app, list(args))


def test_leaderboard(run):
    found = run("leaderboard", "swept", "small")
    assert found.exit_code == 0, found.output
    assert "genetic-gbt is better than all others." in found.output
    assert "Leaderboard: other" in found.output and "'x' is the only entry" in found.output
    assert "fewer than 10 give a hint, not a claim" in found.output
    assert "next: searchlab leaderboard swept small --card genetic-gbt" in found.output


def test_speed_up_over_a_baseline(run):
    found = run("leaderboard", "swept", "--to", "torch", "--json")
    (board,) = json.loads(found.output)
    assert board["rows"][0]["score"] == pytest.approx(2.0, rel=0.1)


def test_compare_by_a_factor(run):
    found = run("compare", "swept", "--by", "strategy", "--json")
    levels, every_two = json.loads(found.output)
    assert [r["entry"] for r in levels["rows"]] == ["genetic", "random"]
    (pair,) = every_two["rows"]
    assert (pair["blocks"], pair["verdict"]) == (40, "faster")
    assert pair["speedup"] == pytest.approx(1.38, rel=0.02)
    assert run("compare", "swept", "--by", "model").exit_code == 0


@pytest.mark.parametrize("form", ["markdown", "csv", "json", "latex", "html"])
def test_forms_to_a_file(run, form, tmp_path: Path):
    path = tmp_path / "board"
    found = run("leaderboard", "swept", "--format", form, "--out", str(path))
    assert found.exit_code == 0 and "written to" in found.output
    assert path.read_text() == run("leaderboard", "swept", "--format", form).output


def test_card(run):
    found = run("leaderboard", "swept", "--card", "random-gbt")
    assert found.exit_code == 0
    for text in ("made of", "strategy: random, model: gbt", "searchlab run made.yaml", "made-up-cpu"):
        assert text in found.output
    assert json.loads(run("leaderboard", "swept", "--card", "random-gbt", "--json").output)["seeds"] == list(range(10))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["leaderboard", "swept", "--card", "gentic-gbt"], "no entry 'gentic-gbt'; did you mean 'genetic-gbt'?"),
        (
            ["leaderboard", "swept", "--card", "random-gbt", "--format", "html"],
            "a card is printed as text, JSON or CSV",
        ),
        (["leaderboard", "swept", "--to", "numpy"], "no time of 'numpy' on matmul, conv2d"),
        (["leaderboard", "swept", "--metric", "tims"], "unknown metric 'tims'; did you mean 'time'?"),
        (["leaderboard", "empty"], "no cell of empty is finished"),
        (["compare", "swept", "--by", "space"], "has no factor 'space'; factors: entry, strategy, model"),
        (["compare", "swept", "--control", "nobody"], "no 'nobody' to compare with"),
        (["leaderboard", "swept", "--format", "csv", "--out", "/nowhere/board"], "cannot write"),
    ],
)
def test_what_is_refused(run, args, message):
    found = run(*args)
    assert found.exit_code == 2
    assert message in " ".join(found.output.split())


def test_the_same_seed_prints_the_same(run):
    assert run("compare", "swept").output == run("compare", "swept").output
    assert run("compare", "swept").output != run("compare", "swept", "--seed", "1").output
