"""The parts that strategies are made of: shortlists, stages, forests, Gaussian processes, improvements."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from searchlab.search import Points, Space, Strategy
from searchlab.strategies import Diverse, Epsilon, Forest, Polish, Random, Shortlist, Top
from searchlab.strategies.process import Process
from searchlab.strategies.surrogates import Candidates, GaussianSurrogate, Observations, Ranks, log_improvement
from searchlab.testing import small_space
from searchlab.testing.strategies import cost


def strategy(seed: int = 0) -> Strategy:
    return Random(small_space(), np.random.default_rng(seed))


def test_a_shortlist_holds_the_best_new_points_of_all() -> None:
    own = strategy()
    space, rng = own.space, np.random.default_rng(1)
    known = own.draw(30)
    found = Shortlist(space, 10, own.fresh)
    offered = [space.sample(50, rng) for _ in range(6)]
    changed = [found.offer(points, cost(points)) for points in offered]
    new = own.fresh(Points.concat([known, *offered]))
    assert found.scores.tolist() == sorted(cost(new).tolist())[:10]
    assert len(set(space.key(found.points).tolist())) == 10 and own.fresh(found.points) == found.points
    assert changed[0] and not found.offer(offered[0], cost(offered[0]))


def test_top_takes_the_first() -> None:
    points = small_space().sample(5, np.random.default_rng(0))
    assert Top().choose(points, np.arange(5.0), 3).tolist() == [0, 1, 2]
    assert Top().choose(points, np.arange(5.0), 9).tolist() == [0, 1, 2, 3, 4]


def test_diverse_gains_options_that_are_new() -> None:
    points = Points.of([[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1], [0, 2, 2]])
    scores = np.arange(5.0)
    assert Diverse().choose(points, scores, 3).tolist() == [0, 3, 4]  # each shows two options that are new
    assert Diverse(prediction=10.0).choose(points, scores, 3).tolist() == [0, 1, 2]
    assert Diverse().choose(points[:0], scores[:0], 3).tolist() == []


def test_a_share_is_carried_over_small_batches() -> None:
    share = Epsilon(0.05)
    assert sum(share.part(1) for _ in range(100)) == 5
    assert share.part(64) == 3


def test_polish_takes_neighbours_of_the_best() -> None:
    own = strategy()
    points = own.ask(20)
    own.tell(points, cost(points))
    best = own.leaders(1)
    near = own.fresh(own.space.neighbours(best))
    taken = Polish(1.0).fill(own, 2, cost)
    assert len(taken) == min(2, len(near)) and cost(taken).tolist() == sorted(cost(near).tolist())[:2]


# --- surrogates -------------------------------------------------------------------------------------------------------


def test_a_forest_learns_steps() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((300, 4))
    y = (x[:, 0] > 0.5) + 2.0 * (x[:, 2] > 0.3)
    forest = Forest(np.random.default_rng(1), trees=32)
    forest.fit(x, y)
    other = rng.random((200, 4))
    truth = (other[:, 0] > 0.5) + 2.0 * (other[:, 2] > 0.3)
    assert np.corrcoef(forest.predict(other), truth)[0, 1] > 0.95
    assert np.allclose(forest.predict(x), y)  # leaves of one row


def test_a_forest_keeps_to_leaf_and_depth() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((64, 2)), rng.random(64)
    stump = Forest(np.random.default_rng(1), trees=4, depth=1)
    stump.fit(x, y)
    assert all(len(np.unique(tree)) <= 2 for tree in stump.ask(x)[0])
    coarse = Forest(np.random.default_rng(1), trees=4, leaf=16)
    coarse.fit(x, y)
    assert all(np.unique(tree, return_counts=True)[1].min() >= 16 for tree in coarse.ask(x)[1])
    flat = Forest(np.random.default_rng(1), trees=3)
    flat.fit(x[:1], y[:1])
    assert np.allclose(flat.predict(x), y[0])


def test_a_process_that_grows_equals_one_that_starts_anew() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((120, 3))
    y = np.sin(5 * x[:, 0]) + x[:, 1]
    grown, anew = Process(x), Process(x)
    grown.fit(x[:20], y[:20])
    anew.theta = grown.theta
    grown.restart(x[:5])
    for n in range(5, 100):
        grown.add(n)
    anew.restart(x[:100])
    for a, b in zip(grown.predict(y[:100]), anew.predict(y[:100]), strict=True):
        assert np.allclose(a, b, atol=2e-3)
    mean, error = anew.predict(y[:100])
    assert np.abs(mean[100:] - y[100:]).max() < 0.2 and error[100:].mean() > error[:100].mean()


def test_the_gradient_of_the_fit() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((15, 3)), rng.standard_normal(15)
    process = Process(x)
    apart = ((x[:, None] - x[None]) ** 2).transpose(2, 0, 1).reshape(3, -1)
    theta = rng.normal(-0.5, 0.3, 4)
    _, slope = process._loss(theta, apart, y)
    for n in range(4):
        step = np.zeros(4)
        step[n] = 1e-5
        high, low = process._loss(theta + step, apart, y)[0], process._loss(theta - step, apart, y)[0]
        assert slope[n] == pytest.approx((high - low) / 2e-5, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize(("mean", "error"), [(0.0, 1.0), (2.0, 0.5), (-1.0, 0.3), (3.0, 1.0)])
def test_expected_improvement(mean: float, error: float) -> None:
    exact = quad(lambda v: max(0.5 - v, 0.0) * norm.pdf(v, mean, error), mean - 12 * error, 0.5)[0]
    found = log_improvement(np.array([mean]), np.array([error]), 0.5)[0]
    assert found == pytest.approx(np.log(exact), abs=1e-3)


def test_improvements_keep_their_order_where_they_underflow() -> None:
    found = log_improvement(np.array([10.0, 100.0, 1000.0]), np.ones(3), 0.0)
    assert np.isfinite(found).all() and (np.diff(found) < 0).all()


def test_ranks_are_between_0_and_1_and_tell_points_apart() -> None:
    space = small_space()
    points = space.enumerate()
    numbers = Ranks(space)(points)
    assert numbers.min() == 0 and numbers.max() == 1
    assert len(np.unique(numbers, axis=0)) == len(points)


def known(space: Space, points: Points, lie: float | None = None) -> Observations:
    values = np.log(cost(points))
    return Observations(Ranks(space)(points), space.key(points), values, float(values.min()), lie)


def test_a_surrogate_leaves_out_what_it_cannot_hold() -> None:
    space = small_space()
    everything = space.enumerate()
    among = Candidates(everything, Ranks(space)(everything), space.key(everything))
    points = space.sample_new(60, np.random.default_rng(0)).points
    chosen, expected = GaussianSurrogate(most=20).choose(known(space, points), among, 70)
    assert len(chosen) == len(expected) == len(everything) - 60
    assert not set(space.key(everything[chosen]).tolist()) & set(space.key(points).tolist())
