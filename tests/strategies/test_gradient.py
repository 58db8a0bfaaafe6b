"""Gradient descent: relaxed knobs keep what options keep, slopes are slopes, and descents end at faster programs."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.search import Sketch, Space, Task, category, menu, space, split_knob
from searchlab.search.knob import Floats
from searchlab.strategies import Gradient
from searchlab.strategies.draft import estimated
from searchlab.strategies.gradient import _Hill
from searchlab.strategies.relaxation import Relaxation
from searchlab.strategies.surface import Surface
from searchlab.targets import parse as parse_target
from searchlab.testing import small_space
from searchlab.testing.models import tiled_space
from searchlab.workloads import parse

KNOBS = (
    split_knob("i", 96, 3, 16),
    menu("unroll", [0, 4, 16, 64]),
    category("layout", ["row", "column"]),
    menu("words", ["few", "some", "many"]),
    split_knob("j", 7, 2),
    menu("one", [5]),
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def relaxation() -> Relaxation:
    return Relaxation(Sketch("s", KNOBS))


def untaught(where: Space) -> Surface:
    return Surface(where, where.sample(0, rng()), np.empty(0))


def test_only_integers_in_order_are_relaxed() -> None:
    found = relaxation()
    assert found.symbols == ("i0", "i1", "i2", "unroll", "j0", "j1")
    np.testing.assert_allclose(found.directions @ found.directions.T, np.eye(4), atol=1e-12)  # 2 + 1 + 1


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), st.floats(0, 8))
def test_moves_keep_products_and_bounds(seed: int, far: float) -> None:
    found, r = relaxation(), rng(seed)
    options = Sketch("s", KNOBS).draw(20, r)
    moved = far * r.normal(size=(20, len(found.directions))) @ found.directions
    rows = found.inside(found.relaxed(options) + moved)
    low, high = found.bounds
    assert (rows >= low - 1e-9).all() and (rows <= high + 1e-9).all()
    values = found.values(options, rows)
    np.testing.assert_allclose(values["i0"] * values["i1"] * values["i2"], 96, rtol=1e-6)
    np.testing.assert_allclose(values["j0"] * values["j1"], 7, rtol=1e-6)
    assert (values["unroll"] >= 0).all() and (values["one"] == 5).all()


def test_options_are_where_they_are() -> None:
    found = relaxation()
    options = Sketch("s", KNOBS).draw(50, rng(1))
    rows = found.relaxed(options)
    np.testing.assert_allclose(found.inside(rows), rows, atol=1e-9)
    for symbol, value in found.values(options, rows).items():
        np.testing.assert_allclose(value, found.sketch.values(options)[symbol], rtol=1e-6, atol=1e-6)
    back, valid = found.rounded(options, rows, rng())
    assert valid.all() and (back == options).all()


def test_rounding_is_to_the_nearest_options() -> None:
    found = relaxation()
    options = Sketch("s", KNOBS).draw(40, rng(2))
    rows = found.inside(found.relaxed(options) + 0.4 * rng(3).normal(size=(40, 4)) @ found.directions)
    unroll = found.rounded(options, rows, rng())[0][:, 1]
    apart = np.abs(rows[:, 3:4] - np.log2(np.array([0, 4, 16, 64]) + 1))
    assert (unroll == apart.argmin(axis=1)).all()
    several = found.rounded(options, rows, rng(), 2)[0][:, 1]
    assert (several != unroll).any() and (np.sort(apart, axis=1)[:, 1] >= apart[np.arange(40), several] - 1e-12).all()


# --- the surface ------------------------------------------------------------------------------------------------------


def quadratic(where: Space) -> Surface:
    """The surface of a space without programs, taught by times that are exactly of its form."""
    points = where.enumerate()
    encoded = where.encode(points)
    return Surface(where, points, np.exp2(((encoded - 1.5) ** 2).sum(axis=1) - 20))


def test_a_surface_learns_what_has_its_form() -> None:
    where = small_space()
    points = where.sample(60, rng(4))
    logs = ((where.encode(points) - 1.5) ** 2).sum(axis=1)
    guess = quadratic(where).score(points)
    assert np.corrcoef(guess, logs)[0, 1] > 0.999


def test_without_measurements_it_is_the_estimate() -> None:
    where = tiled_space()
    points = where.sample(50, rng(5))
    np.testing.assert_allclose(untaught(where).score(points), estimated(where, points))
    failed = Surface(where, points, np.full(50, np.inf))
    np.testing.assert_allclose(failed.score(points), estimated(where, points))


def test_measurements_correct_the_estimate() -> None:
    """Times that contradict the estimate turn the surface around; failures count as slow."""
    where = tiled_space()
    points, unseen = where.sample(200, rng(6)), where.sample(100, rng(7))
    taught = Surface(where, points, np.exp2(-estimated(where, points)))
    assert np.corrcoef(taught.score(unseen), estimated(where, unseen))[0, 1] < -0.9
    wide = where.values(points)["j1"] > 12
    failing = Surface(where, points, np.where(wide, np.inf, 1e-3 * np.exp2(estimated(where, points) - 15)))
    bad = where.values(unseen)["j1"] > 12
    assert failing.score(unseen[bad]).mean() > untaught(where).score(unseen[bad]).mean() + 0.5


# --- descending -------------------------------------------------------------------------------------------------------


def test_slopes_are_those_of_the_surface() -> None:
    where = small_space()
    points = where.sample(30, rng(8))
    points = points[points.sketch == 1]
    found = Relaxation(where.sketches[1])
    rows = found.inside(found.relaxed(points.options) * 0.5 + 0.5 * found.relaxed(points.options).mean(axis=0))
    slope = _Hill(where, points, points.options, found, quadratic(where)).slope(rows)
    exact = (2 * (rows - 1.5)) @ found.directions.T @ found.directions
    unit = [v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-9) for v in (slope, exact)]
    steep = np.linalg.norm(exact, axis=1) > 1
    assert steep.sum() > 5 and ((unit[0] * unit[1]).sum(axis=1)[steep] > 0.9).all()


def after(where: Space, starts: int, steps: int) -> tuple[Floats, Floats]:
    """Estimates of random points, and of where descents from them end."""
    points = where.sample(starts, rng(9))
    strategy = Gradient(where, rng(10), steps=steps, roundings=1)
    ends = [e for s in np.unique(points.sketch) for e in strategy.descents(points[points.sketch == s], untaught(where))]
    return estimated(where, points), np.concatenate([estimated(where, e) for e in ends])


def test_descents_lead_to_faster_programs() -> None:
    before, end = after(tiled_space(), 200, 16)
    assert np.median(end) < np.quantile(before, 0.2) and end.min() <= before.min() + 0.1
    stayed = after(tiled_space(), 200, 0)
    assert sorted(stayed[0].tolist()) == pytest.approx(sorted(stayed[1].tolist()))


@cache
def made(generator: str) -> Space:
    return space(generator, Task(parse("matmul:m=48,n=32,k=24"), parse_target("x86-64-v3")))


@pytest.mark.parametrize("generator", ["sketch", "template", "task-mapping", "probabilistic"])
def test_all_spaces_can_be_descended(generator: str) -> None:
    where = made(generator)
    points = where.sample(64, rng(11))
    strategy = Gradient(where, rng(12), starts=64, steps=6)
    for sketch in np.unique(points.sketch):
        for ends in strategy.descents(points[points.sketch == sketch], untaught(where)):
            assert where.valid(ends).all()
    batch = strategy.ask(12, lambda p: estimated(where, p))
    assert where.valid(batch).all() and len(set(where.key(batch).tolist())) == 12
    assert estimated(where, batch).mean() < np.quantile(estimated(where, points), 0.3)


def test_without_a_model_measurements_lead() -> None:
    where = tiled_space()
    strategy = Gradient(where, rng(13), starts=32, steps=6, epsilon=0.0, breadth=0.0)
    # the opposite of what the estimate says
    for _ in range(6):
        points = strategy.ask(16)
        strategy.tell(points, np.exp2(-estimated(where, points)))
    random = estimated(where, where.sample(500, rng(14)))
    assert np.median(estimated(where, points)) > np.quantile(random, 0.9)
