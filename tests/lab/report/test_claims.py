"""Statements of experiments on runs whose truth is known."""

from dataclasses import replace
from typing import Any

import pytest
from lab.made import failed_cell, made_run, saying

from searchlab.lab.report import Report
from searchlab.lab.report.claims import HELD, OPEN, REFUTED, JudgedClaim, check
from searchlab.lab.report.material import Material
from searchlab.lab.results import Run


def run_with(*claims: dict[str, Any], seeds: int = 10) -> Run:
    worth = {"sketch/gbt": 1.0, "sketch/none": 1.3, "template/gbt": 1.5, "template/none": 1.9, "twin/gbt": 1.0}
    factors = {e: dict(zip(("space", "model"), e.split("/"))) for e in worth}
    run = made_run(worth, ["matmul", "conv2d"], seeds, 16, noise=0.02, factors=factors)
    return saying(run, expect=list(claims))


def checked(claim: dict[str, Any], seeds: int = 10) -> JudgedClaim:
    (found,) = check(Material.of([run_with(claim, seeds=seeds)]))
    return found


@pytest.mark.parametrize(
    ("claim", "result"),
    [
        ({"better": "sketch/gbt", "than": "sketch/none"}, HELD),
        ({"better": "sketch/none", "than": "sketch/gbt"}, REFUTED),
        ({"better": "sketch/gbt", "than": "sketch/none", "by": 1.2}, HELD),
        ({"better": "sketch/gbt", "than": "sketch/none", "by": 1.6}, REFUTED),
        ({"better": "sketch/*", "than": "template/*"}, HELD),
        ({"better": "sketch/gbt", "than": "twin/gbt"}, OPEN),
        ({"better": {"space": "sketch"}, "than": {"space": "template"}}, HELD),
        ({"better": {"model": "gbt"}, "than": {"model": "none"}}, HELD),
        ({"better": {"model": "none"}, "than": {"model": "gbt"}}, REFUTED),
        ({"same": "sketch/gbt", "as": "twin/gbt"}, HELD),
        ({"same": "sketch/gbt", "as": "template/none"}, REFUTED),
        ({"better": "sketch/gbt", "than": "template/none", "on": "auc"}, HELD),
        ({"better": "sketch/gbt", "than": "template/none", "on": "trials-to-target"}, HELD),
        ({"better": "sketch/gbt", "than": "sketch/none", "tasks": "conv*"}, HELD),
        ({"better": "sketch/gbt", "than": "sketch/none", "tasks": "nothing"}, OPEN),
        ({"better": "sketch/gbt", "than": "nobody"}, OPEN),
    ],
)
def test_a_claim(claim: dict[str, Any], result: str) -> None:
    assert checked(claim).result == result


def test_few_seeds_decide_nothing() -> None:
    assert checked({"better": "sketch/gbt", "than": "sketch/none"}, seeds=2).result == OPEN


def test_a_factor_needs_its_whole_interval() -> None:
    assert checked({"better": "sketch/gbt", "than": "sketch/none", "by": 1.3}).result == OPEN


def test_one_seed_refutes_nothing_by_itself() -> None:
    assert checked({"same": "sketch/gbt", "as": "template/none"}, seeds=1).result == OPEN


def test_a_failure_is_not_hidden_behind_a_mean() -> None:
    run = run_with({"same": "sketch/gbt", "as": "twin/gbt"})
    cells = tuple(
        failed_cell(c.entry, c.task, c.seed) if (c.entry, c.seed) == ("sketch/gbt", 0) else c for c in run.cells
    )
    (found,) = check(Material.of([replace(run, cells=cells)]))
    assert found.result == OPEN


def test_factors_pair_like_with_like() -> None:
    found = checked({"better": {"space": "sketch"}, "than": {"space": "template"}})
    assert "40 pairs" in found.figures  # two models, two tasks, ten seeds
    assert found.claim == "space sketch is better than space template (time found)"


def test_the_report_lists_claims() -> None:
    report = Report.of([run_with({"better": "sketch/gbt", "than": "sketch/none", "note": "a paper, figure 7"})])
    assert "1 of 1 statements of the experiment held" in report.html and "a paper, figure 7" in report.html


def test_factors_that_change_along_with_the_named_one_do_not_keep_sides_apart() -> None:
    factors = {
        "template/learned": {"space": "template", "strategy": "evolutionary", "model": "gbt"},
        "template/random": {"space": "template", "strategy": "random", "model": "none"},
        "sketch/learned": {"space": "sketch", "strategy": "evolutionary", "model": "gbt"},
        "sketch/random": {"space": "sketch", "strategy": "random", "model": "none"},
    }
    worth = dict(zip(factors, (1.0, 1.3, 3.0, 3.9), strict=True))
    run = made_run(worth, ["matmul", "conv2d"], 10, 16, noise=0.02, factors=factors)
    claim = {"better": {"strategy": "evolutionary"}, "than": {"strategy": "random"}}
    (found,) = check(Material.of([saying(run, expect=[claim])]))
    assert found.result == HELD and "40 pairs" in found.figures  # template with template, sketch with sketch
