"""Tests of significance against published examples, tables, brute force and scipy."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from searchlab.lab.statistics.significance import (
    cliques,
    critical_difference,
    friedman,
    holm,
    ranks_in_blocks,
    signed_ranks,
    wilcoxon,
)

# J. Demsar (2006), table 6: AUC of four variants of C4.5 on fourteen data sets.  The paper's ranks show that the two
# equal figures of the 13th were not equal before they were rounded; a little is added to the one it ranks higher.
AUC = np.array([
    [0.763, 0.768, 0.771, 0.798], [0.599, 0.591, 0.590, 0.569], [0.954, 0.971, 0.968, 0.967],
    [0.628, 0.661, 0.654, 0.657], [0.882, 0.888, 0.886, 0.898], [0.936, 0.931, 0.916, 0.931],
    [0.661, 0.668, 0.609, 0.685], [0.583, 0.583, 0.563, 0.625], [0.775, 0.838, 0.866, 0.875],
    [1.000, 1.000, 1.000, 1.000], [0.940, 0.962, 0.965, 0.962], [0.619, 0.666, 0.614, 0.669],
    [0.972, 0.981, 0.97501, 0.975], [0.957, 0.978, 0.946, 0.970],
])  # fmt: skip
# the same paper, table 5: q for 2 to 10 entries
Q = {0.05: [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164],
     0.10: [1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920]}  # fmt: skip


def test_friedman_as_published():
    ranks = ranks_in_blocks(-AUC).mean(axis=0)
    assert ranks == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)
    blocks, entries = AUC.shape
    plain = 12 * blocks / (entries * (entries + 1)) * ((ranks**2).sum() - entries * (entries + 1) ** 2 / 4)
    assert plain == pytest.approx(9.28, abs=5e-3)
    assert (blocks - 1) * plain / (blocks * (entries - 1) - plain) == pytest.approx(3.69, abs=5e-3)
    found = friedman(-AUC)  # ours corrects for ties, which makes it a little larger
    assert (found.statistic, found.p) == pytest.approx(stats.friedmanchisquare(*AUC.T))
    assert plain < found.statistic
    assert found.p_f == pytest.approx(stats.f.sf(found.f, 3, 39))


def test_wilcoxon_as_published():
    up, down, _ = signed_ranks(np.round(AUC[:, 1] - AUC[:, 0], 3))
    # the paper shares the ranks of the two differences that are zero (1.5 each) between both sums
    assert (up + 1.5, down + 1.5) == (93.0, 12.0)
    assert wilcoxon(np.round(AUC[:, 1] - AUC[:, 0], 3)) < 0.05


@pytest.mark.parametrize("alpha", Q)
def test_nemenyi_as_published(alpha):
    for entries, q in enumerate(Q[alpha], start=2):
        blocks = 14
        expected = q * np.sqrt(entries * (entries + 1) / (6 * blocks))
        assert critical_difference(entries, blocks, alpha) == pytest.approx(expected, abs=1e-3)


def test_critical_differences_of_the_example():
    assert critical_difference(4, 14, 0.05) == pytest.approx(1.25, abs=5e-3)
    assert critical_difference(4, 14, 0.10) == pytest.approx(1.12, abs=5e-3)


@given(st.lists(st.integers(-6, 6), min_size=1, max_size=9))
def test_wilcoxon_is_exact_with_ties_and_zeros(differences):
    d = np.array(differences, dtype=float)
    up, down, ranks = signed_ranks(d)
    sums = [np.dot(ranks, signs) for signs in product((0, 1), repeat=len(ranks))]
    expected = min(1.0, 2 * np.mean([s <= min(up, down) + 1e-9 for s in sums]))
    assert wilcoxon(d) == pytest.approx(expected if len(ranks) else 1.0)


@pytest.mark.parametrize("size", [8, 20, 45])
def test_wilcoxon_agrees_with_scipy_without_ties(size):
    d = np.random.default_rng(size).normal(0.3, 1, size)
    assert wilcoxon(d) == pytest.approx(stats.wilcoxon(d, method="exact").pvalue)


def test_wilcoxon_of_many_blocks_is_the_usual_approximation():
    d = np.random.default_rng(0).normal(0.1, 1, 200)
    expected = stats.wilcoxon(d, method="asymptotic", correction=True).pvalue
    assert wilcoxon(d) == pytest.approx(expected, rel=1e-6)


def test_failures_rank_highest_and_nothing_gives_one():
    assert wilcoxon(np.array([np.inf] * 6)) == pytest.approx(2 / 64)
    assert wilcoxon(np.zeros(5)) == 1.0
    assert wilcoxon(np.empty(0)) == 1.0


def test_holm():
    p = np.array([0.01, 0.04, 0.03, 0.005])  # by hand: 4 x 0.005, 3 x 0.01, 2 x 0.03, then not below it
    assert holm(p) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.empty(0)).size == 0


@pytest.mark.parametrize("times", [np.ones((5, 3)), np.ones((1, 4)), np.empty((0, 3)), np.full((4, 3), np.inf)])
def test_friedman_without_differences_says_so(times):
    found = friedman(times)
    assert (found.p, found.p_f) == (1.0, 1.0)


def test_friedman_with_the_same_order_everywhere():
    found = friedman(np.tile([1.0, 2.0, 3.0], (6, 1)))
    assert found.statistic == pytest.approx(12.0)
    assert found.p_f == 0.0


def test_friedman_p_agrees_with_permutations():
    rng = np.random.default_rng(1)
    times = rng.normal(size=(12, 3)) + [0, 0.5, 0.8]
    seen = friedman(times).statistic
    drawn = [friedman(rng.permuted(times, axis=1)).statistic for _ in range(2000)]
    assert friedman(times).p == pytest.approx(np.mean(np.array(drawn) >= seen - 1e-9), abs=0.03)


@given(st.integers(1, 7), st.data())
def test_two_differ_exactly_if_no_clique_holds_both(size, data):
    different = np.zeros((size, size), dtype=bool)
    for a in range(size):
        for b in range(a + 1, size):
            different[a, b] = different[b, a] = data.draw(st.booleans())
    found = [set(c) for c in cliques(different)]
    for a in range(size):
        assert any(a in c for c in found)
        for b in range(a + 1, size):
            assert different[a, b] == (not any({a, b} <= c for c in found))
    assert not any(c < d for c in found for d in found)
