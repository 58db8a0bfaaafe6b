"""Forecasts of a run's duration, held to what finished runs took."""

from dataclasses import replace
from pathlib import Path

import pytest

from searchlab.lab.cells import cells
from searchlab.lab.config import from_data
from searchlab.lab.results import CellResult
from searchlab.lab.run import Folder
from searchlab.lab.run.execute.forecast import cell_s, forecast

KEPT = Path(__file__).parents[1] / "kept"


def finished(run: str) -> list[CellResult]:
    return [r for r in Folder(KEPT / run).results() if r.state == "done"]


def took(results: list[CellResult]) -> float:
    return sum(sum(r.ledger.values()) for r in results)


@pytest.mark.parametrize("run", ["tasks", "network"])
def test_cells_take_as_long_as_they_are_expected_to(run: str) -> None:
    """As a whole, since single cells of a fraction of a second depend on what else the machine did."""
    results = finished(run)
    assert 1 / 1.5 < sum(cell_s(r.cell, len(r.seconds)) for r in results) / took(results) < 1.5


def test_finished_cells_set_the_pace_of_their_task() -> None:
    results = finished("tasks")
    first, rest = [r for r in results if r.seed == 0], [r.cell for r in results if r.seed == 1]
    slow = [replace(r, ledger={k: 10 * v for k, v in r.ledger.items()}) for r in first]
    found, slower = forecast(rest, first), forecast(rest, slow)
    assert not found.guessed and slower.seconds - found.seconds == pytest.approx(9 * took(first))


def test_finished_cells_of_other_tasks_correct_the_guess() -> None:
    results = finished("tasks")
    known, other = [r for r in results if "matmul" in r.task], [r.cell for r in results if "softmax" in r.task]
    slow = [replace(r, ledger={k: 10 * v for k, v in r.ledger.items()}) for r in known]
    expected = sum(cell_s(c, c.trials or 0) for c in other)
    ratio = took(known) / sum(cell_s(r.cell, len(r.seconds)) for r in known)
    assert forecast(other, slow).seconds - forecast(other, known).seconds == pytest.approx(9 * ratio * expected)


def experiment(**changes: object) -> float:
    given = {"workloads": ["matmul:m=64,n=64,k=64"], "target": "x86-64-v3", "model": "none", "seeds": [0]}
    return forecast(cells(from_data({**given, "budget": {"trials": 64}, **changes})), []).seconds


def test_what_takes_longer() -> None:
    plain = experiment()
    assert experiment(workloads=["conv2d:ci=8,co=8,h=14,w=14,k=3,padding=1"]) > plain + 64 * 0.1  # edges are built
    assert experiment(model="gbt") > plain  # features are compiled
    one, two = experiment(seeds=[0]), experiment(seeds=[0, 1])
    assert two > 2 * one - 12 and two > one + 4  # a run-off is held, processes start once
    assert experiment(workloads=["matmul:m=2048,n=2048,k=2048"]) > 5 * plain
    assert experiment(budget={"seconds": 1000}) == pytest.approx(1000, abs=15)
    assert experiment(budget={"seconds": 2, "trials": 64}) < plain
