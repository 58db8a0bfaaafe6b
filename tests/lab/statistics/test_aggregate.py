"""Means, intervals and scores: values by hand, invariances, and intervals that cover the truth."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab.made import failed_cell, made_run, renamed, saying, scaled
from scipy import stats

from searchlab.errors import ResultError
from searchlab.lab.results import Run
from searchlab.lab.statistics import (
    BEST,
    ComparedBy,
    best_known,
    geometric_mean,
    iqm,
    pooled,
    scores,
    summaries,
    tie_band,
)
from searchlab.lab.statistics.aggregate import Resampler, estimate

floats = st.floats(1e-6, 1e3)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(st.lists(floats, min_size=1, max_size=30))
def test_iqm_lies_within_the_values(values):
    found = float(iqm(np.array(values)))
    assert min(values) <= found <= max(values)


@pytest.mark.parametrize("size", [4, 8, 40])
def test_iqm_is_the_trimmed_mean_where_quarters_are_whole(size):
    values = rng().random(size)
    assert float(iqm(values)) == pytest.approx(stats.trim_mean(values, 0.25))


def test_iqm_counts_a_value_across_the_edge_in_part():
    # of six values, the middle half is 0.5 x second + third + fourth + 0.5 x fifth
    assert float(iqm(np.array([0.0, 1, 2, 3, 4, 100]))) == pytest.approx((0.5 * 1 + 2 + 3 + 0.5 * 4) / 3)


def test_iqm_weights_are_copies():
    values = np.array([1.0, 5.0, 2.0])
    assert float(iqm(values, np.array([2.0, 1, 3]))) == pytest.approx(float(iqm(np.array([1.0, 1, 5, 2, 2, 2]))))


def test_geometric_mean():
    assert float(geometric_mean(np.array([1.0, 4.0]))) == pytest.approx(2.0)
    assert float(geometric_mean(np.array([1.0, 0.0]))) == 0.0


@settings(max_examples=30)
@given(
    st.lists(st.lists(floats, min_size=2, max_size=5), min_size=1, max_size=4), st.sampled_from([iqm, geometric_mean])
)
def test_intervals_contain_the_estimate(tasks, statistic):
    strata = {(f"t{n}", ""): np.array(v) for n, v in enumerate(tasks)}
    found = estimate(strata, statistic, Resampler({s: len(v) for s, v in strata.items()}, rng(), 200))
    assert found.low <= found.value <= found.high


def test_an_interval_needs_two_seeds():
    (found,) = summaries(scores(made_run(["a"], seeds=1).cells), rng())
    assert found.iqm.low is None and found.iqm.high is None


def test_intervals_cover_the_truth():
    hits, generator = 0, rng(3)
    for _ in range(200):
        strata = {("t", ""): np.exp(generator.normal(0, 0.3, 20)), ("u", ""): np.exp(generator.normal(0, 0.1, 20))}
        found = estimate(strata, geometric_mean, Resampler({s: 20 for s in strata}, generator, 400))
        hits += found.low <= 1.0 <= found.high
    assert 0.88 <= hits / 200 <= 0.99


def test_scores_against_the_best_known():
    run = made_run({"good": 1.0, "bad": 2.0}, noise=0.0, seeds=3)
    rows = scores(run.cells)
    assert {r.score for r in rows if r.entry == "good"} == {1.0}
    assert [r.score for r in rows if r.entry == "bad"] == pytest.approx([0.5] * 6)
    assert best_known(run.cells) == pytest.approx({"matmul": 1e-3, "conv2d": 2e-3})


def test_the_optimum_of_a_table_is_the_best_known():
    run = made_run({"a": 1.25}, noise=0.0, recorded=True)
    assert [r.score for r in scores(run.cells)] == pytest.approx([0.8] * 20)


def test_scores_against_a_baseline_and_an_entry():
    run = made_run({"good": 1.0, "bad": 2.0}, noise=0.0, seeds=3, baselines={"torch": 3.0})
    assert {round(r.score, 6) for r in scores(run.cells, to="torch")} == {3.0, 1.5}
    assert {round(r.score, 6) for r in scores(run.cells, to="bad")} == {2.0, 1.0}
    with pytest.raises(ResultError, match="no time of 'torhc' on matmul.*did you mean 'torch'"):
        scores(run.cells, to="torhc")


def test_a_baseline_that_a_cell_lacks_is_taken_from_the_others():
    run = made_run({"a": 1.0}, ["t"], seeds=2, noise=0.0, baselines={"torch": 3.0})
    cells = [*run.cells, failed_cell("a", "t", 9)]
    assert [r.score for r in scores(cells, to="torch")] == pytest.approx([3, 3, 0])


def test_failed_cells_score_zero_and_waiting_ones_do_not_count():
    cells = [*made_run(["a"], ["t"], seeds=2).cells, failed_cell("a", "t", 5)]
    rows = scores(cells)
    assert len(rows) == 3 and rows[-1].score == 0 and math.isinf(rows[-1].seconds)
    (found,) = summaries(rows, rng())
    assert (found.failed, found.geometric_mean.value) == (1, 0.0)


def test_the_same_seed_gives_the_same_intervals():
    rows = scores(made_run().cells)
    assert summaries(rows, rng(1)) == summaries(rows, rng(1))
    assert summaries(rows, rng(1)) != summaries(rows, rng(2))


@settings(max_examples=10)
@given(st.floats(1e-3, 1e3), st.permutations(range(3)))
def test_scale_and_order_do_not_matter(scale, order):
    worth = {"a": 1.0, "b": 1.1, "c": 1.3}
    run = made_run(worth, seeds=4, trials=8, rng=rng(7))
    by_entry = {e: [c for c in run.cells if c.entry == e] for e in worth}
    other = [scaled(c, scale) for n in order for c in by_entry[list(worth)[n]]]
    found, expected = ({s.entry: s for s in summaries(scores(x), rng(), 100)} for x in (other, run.cells))
    for entry in worth:
        assert found[entry].iqm.value == pytest.approx(expected[entry].iqm.value)
        assert found[entry].iqm.low == pytest.approx(expected[entry].iqm.low)


def test_levels_of_a_factor_are_compared_within_the_others():
    factors = {f"{s}-{m}": {"strategy": s, "model": m} for s in ("x", "y") for m in ("p", "q")}
    run = made_run(list(factors), ["t"], seeds=2, factors=factors)
    rows = scores(run.cells, ComparedBy("strategy"))
    assert {(r.entry, r.context) for r in rows} == {(s, f"model={m}") for s in ("x", "y") for m in ("p", "q")}
    with pytest.raises(ResultError, match="no factor 'strateg'; did you mean 'strategy'"):
        scores(run.cells, ComparedBy("strateg"))


def test_pooling_counts_a_cell_once_and_tells_namesakes_apart():
    one = made_run(["a"], ["t"], seeds=2)
    assert len(pooled([one, one])) == 2
    more = made_run(["a"], ["t"], seeds=[2, 3], name="more")
    assert {c.entry for c in pooled([one, more])} == {"a"}
    apart = {"a (made)", "a (more)"}
    for different in (
        replace(more, cells=tuple(renamed(c, id=c.id + "'", seed=c.seed - 2) for c in more.cells)),
        replace(more, machine={"cpu": "other"}),
        saying(more, budget={"trials": 7}),
        replace(more, cells=tuple(renamed(c, factors={"strategy": "b"}) for c in more.cells)),
    ):
        assert {c.entry for c in pooled([one, different])} == apart
    other = replace(one, cells=tuple(renamed(c, entry="b") for c in one.cells))
    assert len(pooled([one, other])) == 4  # the same cells under two names are two entries


def test_tie_band_is_the_noise_that_was_measured_or_two_percent():
    assert tie_band([made_run()]) == 0.02
    assert tie_band([made_run(), Run("r", (), noise=0.035)]) == 0.035
    assert tie_band([Run("r", (), noise=0.001)]) == 0.02
    assert BEST == "best"
