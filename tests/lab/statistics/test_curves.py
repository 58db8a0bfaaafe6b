"""Areas, curves and time to target, by hand and against known estimators."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.made import bare_cell, failed_cell, made_run, scaled

from searchlab.lab.results import CellResult
from searchlab.lab.statistics import ALL, AXES, areas, progress, reach
from searchlab.lab.statistics.reaching import restricted_mean, survival


def cell(seconds, elapsed=None, entry="a", seed=0, task="t") -> CellResult:
    times = np.array(seconds, dtype=float)
    when = np.arange(1.0, len(times) + 1) if elapsed is None else np.array(elapsed, dtype=float)
    status = tuple("ok" if np.isfinite(s) else "run" for s in times)
    return CellResult(bare_cell(entry, task, seed), "done", times, when, status)


def test_area_by_trials():
    (row,) = areas([cell([np.inf, 4.0, 8.0, 2.0])])
    assert row.score == pytest.approx((0 + 0.5 + 0.5 + 1) / 4)


def test_a_search_that_ends_early_keeps_its_best():
    rows = areas([cell([4.0, 2.0]), cell([4.0, 4.0, 4.0, 4.0], seed=1)])
    assert [r.score for r in rows] == pytest.approx([(0.5 + 1 + 1 + 1) / 4, 0.5])


def test_area_by_time():
    (row,) = areas([cell([4.0, 2.0], elapsed=[1.0, 3.0])], "time")
    assert row.score == pytest.approx((0 * 1 + 0.5 * 2) / 3)
    (row,) = areas([cell([4.0, 2.0], elapsed=[1.0, 3.0])], "time", horizon=5.0)
    assert row.score == pytest.approx((0 * 1 + 0.5 * 2 + 1 * 2) / 5)


def test_area_by_the_logarithm_of_time():
    (row,) = areas([cell([4.0, 2.0, 2.0], elapsed=[1.0, 2.0, 8.0])], "log-time")
    assert row.score == pytest.approx((0.5 * 1 + 1 * 2) / 3)  # three doublings


@pytest.mark.parametrize("axis", AXES)
def test_areas_of_failures_and_of_nothing(axis):
    assert areas([], axis) == ()
    assert [r.score for r in areas([failed_cell("a", "t", 0)], axis)] == [0.0]
    assert [r.score for r in areas([cell([np.inf, np.inf])], axis)] == [0.0]
    assert all(0 <= r.score <= 1 for r in areas(made_run().cells, axis))


@pytest.mark.parametrize("axis", AXES)
def test_areas_do_not_depend_on_the_unit_of_time(axis):
    run = made_run(seeds=2, trials=10)
    other = [scaled(c, 7) for c in run.cells]
    assert [r.score for r in areas(other, axis)] == pytest.approx([r.score for r in areas(run.cells, axis)])


@pytest.mark.parametrize("axis", AXES)
def test_curves_rise_and_lie_within_their_bands(axis):
    run = made_run({"a": 1.0, "b": 1.2}, seeds=4)
    found = progress(run.cells, np.random.default_rng(0), axis, points=12, draws=50)
    for entry in ("a", "b"):
        values = [p.value for p in found if p.entry == entry]
        assert 0 < len(values) <= 12 and np.all(np.diff(values) >= -1e-12)
    assert all(p.low <= p.value <= p.high for p in found)


def test_curves_end_at_the_final_score():
    found = progress([cell([4.0, 2.0]), cell([3.0, 2.0], seed=1)], np.random.default_rng(0))
    assert [p.x for p in found] == [1.0, 2.0]
    assert [p.value for p in found] == pytest.approx([(2 / 4 + 2 / 3) / 2, 1.0])
    assert progress([failed_cell("a", "t", 0)], np.random.default_rng(0)) == ()


def test_reaching_with_censoring():
    cells = [cell([4, 2, 2, 2]), cell([4, 4, 4, 2], seed=1), cell([4, 4, 4, 4], seed=2)]
    row = next(r for r in reach(cells) if r.task == ALL)
    assert (row.cells, row.reached, row.share) == (3, 2, pytest.approx(2 / 3))
    assert row.expected == pytest.approx((2 + 4 + 4) / 2)
    assert row.median == 4.0
    # searching: 1 up to 2, then 2/3 up to 4
    assert (row.restricted_mean, row.horizon) == (pytest.approx(2 * 1 + 2 * 2 / 3), 4.0)


def test_never_reached():
    cells = [cell([2.0, 1.0]), cell([4.0, 4.0], entry="b"), failed_cell("c", "t", 0)]
    rows = {r.entry: r for r in reach(cells) if r.task == "t"}
    assert (rows["b"].expected, rows["b"].median, rows["b"].share) == (None, None, 0.0)
    assert (rows["c"].expected, rows["c"].share) == (None, 0.0)
    assert reach([]) == ()


def test_reaching_by_time():
    rows = reach([cell([4.0, 2.0], elapsed=[1.5, 3.5])], axis="time")
    assert rows[0].expected == rows[0].median == 3.5


def test_kaplan_meier_as_published():
    # Freireich et al. 1963, 6-MP: the curve in every textbook
    weeks = np.array([6, 6, 6, 7, 10, 13, 16, 22, 23, 6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35], dtype=float)
    relapse = np.array([True] * 9 + [False] * 12)
    places, left = survival(weeks, relapse)
    assert places.tolist() == [6, 7, 10, 13, 16, 22, 23]
    assert left == pytest.approx([0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448], abs=5e-4)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=20), st.integers(1, 25))
def test_restricted_mean_without_censoring_is_the_mean_of_cut_costs(costs, horizon):
    values = np.array(costs, dtype=float)
    found = restricted_mean(values, np.ones(len(values), dtype=bool), float(horizon))
    assert found == pytest.approx(np.minimum(values, horizon).mean())
