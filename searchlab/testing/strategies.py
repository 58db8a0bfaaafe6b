"""The conformance suite of strategies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from searchlab.ir.expr import knob
from searchlab.search import Points, Scorer, Sketch, Space, Strategy, category, menu, split_knob
from searchlab.search.knob import Floats

Maker = Callable[..., Strategy]


def check_strategy(make: Maker, space: Space | None = None, **options: Any) -> None:
    """Check a strategy class (or a factory that takes `space=` and `rng=`) with options, with and without a cost model.

    Batches have the requested size and only valid points, none of them twice; the search stops when the space is
    exhausted; failures, and points that were not asked for, are accepted; the same seed gives the same batches.
    """
    space = space if space is not None else small_space()
    for model in (False, True):

        def made(seed: int = 0) -> Strategy:
            return make(space=space, rng=np.random.default_rng(seed), **options)

        score = cost if model else None
        what = f"{made().name} {'with' if model else 'without'} a model"
        _check_batches(made(), space, score, what)
        _check_untold(made(), space, score, what)
        _check_told(made(), space, score, what)
        _check_failures(made(), space, score, what)
        first, again = (_trace(made(7), space, score) for _ in range(2))
        assert first == again, f"{what}: the same seed gave different points"


def small_space() -> Space:
    """A space of a few hundred points with every kind of knob, two sketches and a constraint."""
    tile, unroll = split_knob("tile", 24, 2), menu("unroll", [1, 2, 4, 8])
    few = Sketch("plain", (tile, unroll))
    rule = knob("tile1") * knob("unroll") <= 64
    more = Sketch("packed", (tile, unroll, category("layout", ["row", "column", "block"])), (rule,))
    return Space([few, more], "small")


def cost(points: Points) -> Floats:
    """A deterministic landscape with one valley and steps between sketches; it also serves as a perfect cost model."""
    used = np.where(points.options >= 0, points.options, 0).astype(np.float64)
    middle = np.arange(1, points.width + 1) % 3
    return np.asarray(1e-3 * (1 + ((used - middle) ** 2).sum(axis=1) + 0.5 * points.sketch))


def measure(points: Points) -> Floats:
    """Measurements of the landscape, in which some points fail."""
    seconds = cost(points)
    return np.where(points.options.sum(axis=1) % 7 == 3, np.inf, seconds)


def _check_batches(strategy: Strategy, space: Space, score: Scorer | None, what: str) -> None:
    """Check batches of all sizes until the space is exhausted."""
    seen: set[int] = set()
    total, counts = space.size.valid, [1, 2, 3, 64, 0, 5, 1000]
    for n in range(total):
        count = counts[n % len(counts)]
        batch = strategy.ask(count, score)
        keys = space.key(batch).tolist()
        assert len(batch) <= count, f"{what}: {len(batch)} points for {count}"
        assert space.valid(batch).all(), f"{what}: points outside the space"
        assert len(set(keys)) == len(keys) and not seen & set(keys), f"{what}: a point was proposed twice"
        seen |= set(keys)
        strategy.tell(batch, measure(batch))
        if len(batch) < count:
            break
    assert len(seen) == total, f"{what}: ended after {len(seen)} of {total} points"
    assert not len(strategy.ask(4, score)), f"{what}: points were proposed after the end"


def _check_untold(strategy: Strategy, space: Space, score: Scorer | None, what: str) -> None:
    """Check several batches that are asked for before the first is told, and told in another order."""
    batches = [strategy.ask(6, score) for _ in range(4)]
    keys = space.key(Points.concat(batches)).tolist()
    assert len(set(keys)) == len(keys) == 24, f"{what}: batches that were not told yet repeat points or are too small"
    for batch in reversed(batches):
        order = np.arange(len(batch))[::-1]
        strategy.tell(batch[order], measure(batch[order]))
    assert len(strategy.ask(6, score)) == 6, f"{what}: a batch after a late answer is too small"


def _check_told(strategy: Strategy, space: Space, score: Scorer | None, what: str) -> None:
    """Check that points told without being asked for are not proposed, and that a point may be told twice."""
    given = space.sample_new(40, np.random.default_rng(1)).points
    strategy.tell(given, measure(given))
    strategy.tell(given[:3], measure(given[:3]))
    batch = strategy.ask(50, score)
    assert len(batch) == 50, f"{what}: {len(batch)} points for 50 after some were told"
    assert not set(space.key(batch).tolist()) & set(space.key(given).tolist()), f"{what}: proposed what it was told"


def _check_failures(strategy: Strategy, space: Space, score: Scorer | None, what: str) -> None:
    """Check that the search continues when every point fails."""
    for _ in range(5):
        batch = strategy.ask(8, score)
        assert len(batch) == 8, f"{what}: {len(batch)} points for 8 when all failed"
        strategy.tell(batch, np.full(len(batch), np.inf))


def _trace(strategy: Strategy, space: Space, score: Scorer | None) -> list[list[int]]:
    rows: list[list[int]] = []
    for count in (1, 4, 7, 16, 16):
        batch = strategy.ask(count, score)
        strategy.tell(batch, measure(batch))
        rows += batch.rows()
    return rows
