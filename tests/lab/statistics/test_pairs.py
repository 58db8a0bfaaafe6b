"""Pairs and rankings: wins, probabilities, effect sizes, verdicts, groups."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab.made import failed_cell, made_run, renamed, scaled
from scipy import stats

from searchlab.lab.statistics import ComparedBy, Verdict, a12, cliffs_delta, magnitude, notes, pairs, ranking, scores
from searchlab.lab.statistics.aggregate import Resampler
from searchlab.lab.statistics.effects import compared
from searchlab.lab.statistics.pairs import improvement

times = st.lists(st.one_of(st.floats(1e-6, 1e3), st.just(np.inf)), min_size=2, max_size=6)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@settings(max_examples=50)
@given(times, st.data(), st.sampled_from([0.0, 0.02, 0.5]))
def test_probabilities_of_improvement_add_up_to_one(a, data, band):
    b = data.draw(st.lists(st.sampled_from([*a, 1.0]), min_size=len(a), max_size=len(a)))
    both = {("t", ""): (np.array(a), np.array(b))}
    turned = {("t", ""): (np.array(b), np.array(a))}
    resampler = Resampler({("t", ""): len(a)}, rng(), 100)
    one, other = improvement(both, resampler, band), improvement(turned, resampler, band)
    assert one.value + other.value == pytest.approx(1.0)
    assert one.low + other.high == pytest.approx(1.0)
    assert one.low <= one.value <= one.high


def test_effect_sizes_agree_with_mann_whitney():
    a, b = rng(1).normal(size=12), rng(2).normal(0.5, 1, 15)
    u = stats.mannwhitneyu(-a, -b).statistic  # counts pairs in which a is faster
    assert a12(np.exp(a), np.exp(b)) == pytest.approx(u / (12 * 15))
    assert cliffs_delta(np.exp(a), np.exp(b)) == pytest.approx(2 * u / (12 * 15) - 1)


@pytest.mark.parametrize(("delta", "word"), [(0.1, "negligible"), (-0.2, "small"), (0.4, "medium"), (-0.9, "large")])
def test_magnitudes(delta, word):
    assert magnitude(delta) == word


def test_tie_band():
    a, b = np.array([1.0, 1.0, 1.0, np.inf, np.inf]), np.array([1.02, 1.03, 0.9, 1.0, np.inf])
    assert compared(a, b, 0.02).tolist() == [0, -1, 1, 1, 0]


def test_a_clear_difference_is_found():
    (pair,) = pairs(scores(made_run({"good": 1.0, "bad": 1.5}).cells), rng())
    assert (pair.wins, pair.ties, pair.losses, pair.blocks) == (20, 0, 0, 20)
    assert pair.verdict == "faster" and pair.p_holm == pytest.approx(2 / 2**20)
    assert pair.speedup.low < 1.5 < pair.speedup.high
    assert (pair.improvement.value, pair.delta, pair.magnitude) == (1.0, 1.0, "large")
    (turned,) = pairs(scores(made_run({"bad": 1.5, "good": 1.0}).cells), rng())
    assert turned.verdict == "slower"


def test_equal_entries_are_seldom_told_apart():
    claims = 0
    for seed in range(60):
        (pair,) = pairs(scores(made_run(["a", "b"], seeds=10, trials=4, rng=rng(seed)).cells), rng())
        claims += pair.verdict.ordered
    assert claims <= 8  # 5 % of 60 is 3; 9 or more have a chance below one in two hundred


def test_three_seeds_of_one_task_are_no_claim():
    run = made_run({"good": 1.0, "bad": 3.0}, ["t"], seeds=3)
    (pair,) = pairs(scores(run.cells), rng())
    assert pair.verdict == Verdict.UNKNOWN and pair.wins == 3
    assert any("fewer than 10" in n for n in notes(run.cells))


def test_only_what_both_have_is_compared():
    run = made_run({"a": 1.0, "b": 1.2}, ["t"], seeds=4)
    cells = [c for c in run.cells if not (c.entry == "b" and c.seed > 1)]
    (pair,) = pairs(scores(cells), rng())
    assert pair.blocks == 2
    assert any("2 cells missing: 2 of 4 pairs" in n for n in notes(cells))


def test_nothing_in_common():
    cells = [*made_run(["a"], ["t"]).cells, *made_run(["b"], ["u"]).cells]
    (pair,) = pairs(scores(cells), rng())
    assert (pair.blocks, pair.speedup, pair.verdict) == (0, None, Verdict.UNKNOWN)
    found = ranking(scores(cells), rng())
    assert (found.blocks, found.critical_difference) == (0, None)
    assert found.cliques == (("a", "b"),)


def test_failures_lose_and_have_no_speedup():
    cells = [*made_run(["a"], ["t"], seeds=8).cells, *(failed_cell("b", "t", s) for s in range(8))]
    (pair,) = pairs(scores(cells), rng())
    assert (pair.wins, pair.speedup, pair.verdict) == (8, None, "faster")
    assert any("8 cells found no working program" in n and "b 8" in n for n in notes(cells))


def test_ties_everywhere():
    run = made_run(["a", "b", "c"], noise=0.0, failing=0.0)
    found = ranking(scores(run.cells), rng())
    assert {p.ties for p in found.pairs} == {20} and {p.p for p in found.pairs} == {1.0}
    assert found.cliques == (("a", "b", "c"),) and found.mean_ranks == {"a": 2.0, "b": 2.0, "c": 2.0}
    assert "all entries found the same time on each task" in notes(run.cells)


def test_tasks_as_blocks():
    tasks = [f"t{n}" for n in range(8)]
    (pair,) = pairs(scores(made_run({"a": 1.0, "b": 1.5}, tasks, seeds=3).cells), rng(), unit="task")
    assert pair.blocks == 8 and pair.p == pytest.approx(2 / 2**8)


def test_a_control_has_fewer_comparisons():
    rows = scores(made_run({"a": 1.0, "b": 1.1, "c": 1.2, "d": 1.3}).cells)
    found = pairs(rows, rng(), control="c")
    assert [(p.a, p.b) for p in found] == [("c", "a"), ("c", "b"), ("c", "d")]


def test_groups_of_a_ranking():
    run = made_run({"slow": 2.0, "fast": 1.0, "also-fast": 1.0, "slowest": 3.0}, ["t", "u", "v"], seeds=10)
    found = ranking(scores(run.cells), rng())
    assert {frozenset(c) for c in found.cliques} == {
        frozenset({"fast", "also-fast"}),
        frozenset({"slow"}),
        frozenset({"slowest"}),
    }
    assert found.letters["fast"] == found.letters["also-fast"] == "a"
    assert (found.letters["slow"], found.letters["slowest"]) == ("b", "c")
    assert found.friedman.p_f < 1e-6 and found.blocks == 30
    assert set(found.nemenyi_cliques[0]) == {"fast", "also-fast"}


def test_without_friedman_no_pair_is_claimed():
    run = made_run(["a", "b", "c", "d"], ["t"], seeds=5, rng=rng(2))
    found = ranking(scores(run.cells), rng())
    assert found.friedman.p_f >= 0.05
    assert found.cliques == (found.entries,)


@settings(max_examples=10)
@given(st.permutations(["a", "b", "c"]), st.floats(0.01, 100))
def test_rankings_do_not_depend_on_order_names_or_scale(order, scale):
    run = made_run({"a": 1.0, "b": 1.05, "c": 1.3}, seeds=6, trials=4, rng=rng(5))
    expected = ranking(scores(run.cells), rng())
    names = dict(zip("abc", ("z", "y", "x"), strict=True))
    cells = [renamed(scaled(c, scale), entry=names[c.entry]) for e in order for c in run.cells if c.entry == e]
    found = ranking(scores(cells), rng())
    assert found.mean_ranks == pytest.approx({names[e]: r for e, r in expected.mean_ranks.items()})
    assert {frozenset(c) for c in found.cliques} == {frozenset(names[e] for e in c) for c in expected.cliques}


def test_margins_of_a_factor():
    factors = {f"{s}-{m}": {"strategy": s, "model": m} for s in ("x", "y") for m in ("p", "q")}
    worth = {"x-p": 1.0, "x-q": 2.0, "y-p": 1.3, "y-q": 2.6}
    run = made_run(worth, ["t"], seeds=10, factors=factors, noise=0.01)
    (pair,) = pairs(scores(run.cells, ComparedBy("strategy")), rng())
    assert (pair.a, pair.b, pair.blocks, pair.verdict) == ("x", "y", 20, "faster")
    assert pair.speedup.value == pytest.approx(1.3, rel=0.02)


@pytest.mark.parametrize("cells", [(), made_run(["a"], ["t"], seeds=1).cells])
def test_nothing_to_compare(cells):
    assert pairs(scores(cells), rng()) == ()
    found = ranking(scores(cells), rng())
    assert found.pairs == () and found.friedman is None
    assert notes(cells)
