"""The score for recorded spaces: random search scores 0, finding the optimum immediately scores 1."""

from itertools import permutations

import numpy as np
import pytest
from lab.made import made_run

from searchlab.errors import ResultError
from searchlab.lab.statistics import RandomSearch, mean_scores, recorded_scores
from searchlab.measure.recorded.tables import load

TABLE = np.array([3.0, 1.0, np.inf, 7.0, 2.0])


def best_so_far(times, worst):
    return np.minimum.accumulate(np.where(np.isfinite(times), times, worst))


def test_expectation_of_every_order():
    found = RandomSearch(TABLE, 4).expected
    drawn = [best_so_far(np.array(order), 7.0)[:4] for order in permutations(TABLE)]
    assert found == pytest.approx(np.mean(drawn, axis=0))


def test_random_search_has_expectation_zero_and_the_optimum_one():
    random = RandomSearch(TABLE, 4)
    assert np.mean([random.score(np.array(order)) for order in permutations(TABLE)]) == pytest.approx(0.0, abs=1e-12)
    assert random.score(np.array([1.0])) == pytest.approx(1.0)
    assert random.score(np.empty(0)) < 0


def test_where_random_search_has_arrived_nothing_counts():
    assert np.isfinite(RandomSearch(TABLE, 10).score(np.array([3.0, 1.0])))
    assert RandomSearch(np.array([2.0, 2.0]), 3).score(np.array([2.0])) == 0.0


def test_a_table_where_nothing_works():
    with pytest.raises(ResultError, match="no row of the table works"):
        RandomSearch(np.full(3, np.inf)).score(np.array([1.0]))


def test_random_search_in_a_shipped_table_is_about_zero():
    table = load("matmul-256")
    random, rng = RandomSearch(table.seconds, 100), np.random.default_rng(0)
    scores = [random.score(rng.permutation(table.seconds)[:100]) for _ in range(300)]
    assert abs(np.mean(scores)) < 4 * np.std(scores) / np.sqrt(len(scores))


def test_scores_of_cells():
    run = made_run({"a": 1.0, "b": 1.3}, {"t": 1e-3}, seeds=4, recorded=True)
    table = np.linspace(1e-3, 5e-3, 500)
    rows = recorded_scores(run.cells, {"t": table}, budget=40)
    assert len(rows) == 8
    found = mean_scores(rows, np.random.default_rng(0))
    assert found["a"].value > found["b"].value
    assert found["a"].low <= found["a"].value <= found["a"].high <= 1
