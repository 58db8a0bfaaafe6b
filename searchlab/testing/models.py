"""The conformance suite of cost models."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from searchlab.ir.expr import knob
from searchlab.schedule import Schedule
from searchlab.search import CostModel, History, Points, Sketch, Space, Trials, menu, split_knob
from searchlab.search.knob import Floats
from searchlab.workloads import parse

Maker = Callable[..., CostModel]
_SEEN, _UNSEEN = 240, 120


def check_model(make: Maker, least: float | None = None, **options: Any) -> None:
    """Check a cost model class (or a factory that takes `rng=`) with options.

    Predictions are one finite number per point, independent of the other points in the call; the model accepts empty
    training data and failures alone; the same seed gives the same numbers, and so does a saved and reloaded model.
    `least` is the required fraction of correctly ordered pairs of unseen programs; None requires nothing.
    """

    def made(seed: int = 0) -> CostModel:
        return make(rng=np.random.default_rng(seed), **options)

    def fitted() -> CostModel:
        model = made()
        model.fit(History.of([trials(tiled_space(), _SEEN, 1)]))
        return model

    what = made().name
    _check_little(made(), what)
    model = fitted()
    if not model.ready:
        return  # a model that never predicts has no further requirements
    test = tiled_space().sample_new(_UNSEEN, np.random.default_rng(2)).points
    found = model.predict(tiled_space(), test)
    _check_numbers(found, len(test), what)
    assert (fitted().predict(tiled_space(), test) == found).all(), f"{what}: the same seed gave different numbers"
    _check_ranking(found, test, least, what)
    _check_file(model, made(9), test, what)
    _check_many(made(), what)


@cache
def tiled_space(m: int = 64, n: int = 96, k: int = 48) -> Space:
    """A space of a matrix product tiled at two levels, with two sketches and their programs."""

    def sketch(name: str, order: Callable[[list[str], list[str], list[str]], list[str]]) -> Sketch:
        s = Schedule(parse(f"matmul:m={m},n={n},k={k}").program)
        i, j, r = s.loops("C")
        rows, columns, sums = (s.split(lp, [None, knob(x)]) for lp, x in ((i, "i1"), (j, "j1"), (r, "k1")))
        s.reorder(*order(rows, columns, sums))
        s.vectorize(columns[1])
        s.annotate("C", "unroll_up_to", knob("unroll"))
        knobs = (split_knob("i", m, 2), split_knob("j", n, 2), split_knob("k", k, 2), menu("unroll", [1, 16, 256]))
        return Sketch(name, knobs, program=s.program)

    plain = sketch("plain", lambda i, j, k: [i[0], j[0], k[0], k[1], i[1], j[1]])
    blocked = sketch("blocked", lambda i, j, k: [k[0], i[0], j[0], k[1], i[1], j[1]])
    return Space([plain, blocked])


def made_up_seconds(space: Space, points: Points) -> Floats:
    """Synthetic times that depend on vector lanes, register tiles, unrolling and the sketch, as real ones do."""
    v = space.values(points)
    tile = v["i1"] * np.ceil(v["j1"] / 8)
    lanes = np.minimum(v["j1"], 8)
    rolled = np.where(v["unroll"] >= v["i1"] * v["j1"], 1.0, 2.0)
    found = rolled * np.where(tile > 12, 2.5, 1.0) / (lanes * np.minimum(tile, 8)) * (1 + 0.4 * points.sketch)
    return np.asarray(found * (1 + 2.0 / v["k1"]))


def trials(space: Space, count: int, seed: int, task: str = "t") -> Trials:
    """Random points with synthetic times; some of them failed."""
    points = space.sample_new(count, np.random.default_rng(seed)).points
    found = made_up_seconds(space, points)
    found[::17] = np.inf
    return Trials(task, space, points, found)


def _check_little(model: CostModel, what: str) -> None:
    """Check training on no data, on very little data, and on failures only."""
    space = tiled_space()
    points = space.sample_new(40, np.random.default_rng(0)).points
    for count, seconds in ((0, np.empty(0)), (2, np.array([np.inf, 1.0])), (40, np.full(40, np.inf))):
        model.fit(History.of([Trials("t", space, points[:count], seconds)]))
        if model.ready:
            _check_numbers(model.predict(space, points), len(points), what)


def _check_numbers(found: Floats, count: int, what: str) -> None:
    assert isinstance(found, np.ndarray) and found.shape == (count,), f"{what}: expected one number per point"
    assert found.dtype == np.float64 and np.isfinite(found).all(), f"{what}: predictions are finite float64 numbers"


def _check_ranking(found: Floats, test: Points, least: float | None, what: str) -> None:
    if least is None:
        return
    seconds = made_up_seconds(tiled_space(), test)
    first, second = np.triu_indices(len(test), 1)
    different = seconds[first] != seconds[second]
    right = ((found[first] < found[second]) == (seconds[first] < seconds[second]))[different].mean()
    assert right >= least, f"{what}: {right:.2f} of the pairs in the right order, at least {least} are asked for"


def _check_file(model: CostModel, other: CostModel, test: Points, what: str) -> None:
    before = model.predict(tiled_space(), test)
    if type(model).save is CostModel.save or (model.predict(tiled_space(), test) != before).any():
        return  # it cannot be saved, or draws its predictions
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        other.load(Path(folder) / "model")
    assert other.ready, f"{what}: a loaded model is not ready"
    assert (other.predict(tiled_space(), test) == before).all(), f"{what}: a loaded model predicts different numbers"


def _check_many(model: CostModel, what: str) -> None:
    """Check training with the history of another task, and that retraining keeps the history."""
    other = tiled_space(96, 64, 32)
    model.fit(History.of([trials(other, 120, 3, "other"), trials(tiled_space(), 60, 4)]))
    model.fit(History.of([trials(other, 120, 3, "other"), trials(tiled_space(), 90, 4)]))
    test = tiled_space().sample(10, np.random.default_rng(5))
    _check_numbers(model.predict(tiled_space(), test), len(test), what)
