"""Cost models: they rank programs they have not seen, repeat with a seed, survive a file, and refuse nonsense."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from costmodels.ensemble import EnsembleModel
from costmodels.gbt import GBTModel, missed
from costmodels.mlp import MLPModel
from costmodels.roofline import RooflineModel
from costmodels.simple import NoModel, RandomModel
from costmodels.transfer import TransferModel
from costmodels.treegru import TreeGRUModel
from searchlab.errors import ComponentError
from searchlab.ir import knob
from searchlab.lab.study import judge
from searchlab.schedule import Schedule
from searchlab.search import CostModel, History, Points, Sketch, Space, Trials, menu, split_knob
from searchlab.search.knob import Floats
from searchlab.workloads import parse

pytest.importorskip("xgboost")
SMALL_NET = {"batches": 150, "hidden": 24, "rate": 6e-3}
Make = Callable[[np.random.Generator], CostModel]
MODELS: dict[str, Make] = {
    "rank": lambda r: GBTModel(r),
    "regression": lambda r: GBTModel(r, objective="regression", label="log"),
    "knobs": lambda r: GBTModel(r, view="knobs"),
    "pack-sum": lambda r: GBTModel(r, objective="pack-sum"),
    "ensemble": lambda r: EnsembleModel(r, {"costmodels.gbt:GBTModel": {"objective": "regression"}}, count=3),
    "transfer": lambda r: TransferModel(r, {"costmodels.gbt:GBTModel": {"objective": "regression"}}),
    "mlp": lambda r: MLPModel(r, **SMALL_NET),
    "treegru": lambda r: TreeGRUModel(r, **SMALL_NET),
    "treegru-slots": lambda r: TreeGRUModel(r, slots=4, **SMALL_NET),
}


def tiled(m: int, n: int, k: int) -> Space:
    """A product in tiles of two levels, in two structures."""

    def sketch(name: str, order: Callable[[list[str], list[str], list[str]], list[str]]) -> Sketch:
        s = Schedule(parse(f"matmul:m={m},n={n},k={k}").program)
        i, j, r = s.loops("C")
        rows = s.split(i, [None, knob("i1")])
        columns = s.split(j, [None, knob("j1")])
        sums = s.split(r, [None, knob("k1")])
        s.reorder(*order(rows, columns, sums))
        s.vectorize(columns[1])
        s.annotate("C", "unroll_up_to", knob("unroll"))
        knobs = (split_knob("i", m, 2), split_knob("j", n, 2), split_knob("k", k, 2), menu("unroll", [1, 16, 256]))
        return Sketch(name, knobs, program=s.program)

    plain = sketch("plain", lambda i, j, k: [i[0], j[0], k[0], k[1], i[1], j[1]])
    blocked = sketch("blocked", lambda i, j, k: [k[0], i[0], j[0], k[1], i[1], j[1]])
    return Space([plain, blocked])


def seconds(space: Space, points: Points) -> Floats:
    """Made-up times with the shape of real ones: lanes, register tiles, unrolling, and structures that differ."""
    v = space.values(points)
    tile = v["i1"] * np.ceil(v["j1"] / 8)
    lanes = np.minimum(v["j1"], 8)
    rolled = np.where(v["unroll"] >= v["i1"] * v["j1"], 1.0, 2.0)
    found = rolled * np.where(tile > 12, 2.5, 1.0) / (lanes * np.minimum(tile, 8)) * (1 + 0.4 * points.sketch)
    return np.asarray(found * (1 + 2.0 / v["k1"]))


SPACE, OTHER = tiled(64, 96, 48), tiled(96, 64, 32)


def trials(space: Space, count: int, seed: int, task: str = "t") -> Trials:
    points = space.sample_new(count, np.random.default_rng(seed)).points
    found = seconds(space, points)
    found[::17] = np.inf  # some fail
    return Trials(task, space, points, found)


TRAIN, TEST = trials(SPACE, 240, 1), SPACE.sample_new(200, np.random.default_rng(2)).points


def fitted(make: Make, seed: int = 0) -> CostModel:
    model = make(np.random.default_rng(seed))
    model.fit(History.of([TRAIN]))
    return model


@cache
def known(name: str) -> CostModel:
    """One fitted model of each kind, for tests that only look at it."""
    return fitted(MODELS[name])


@pytest.mark.parametrize("name", MODELS)
def test_it_ranks_programs_it_has_not_seen(name: str) -> None:
    model = known(name)
    assert model.ready
    found = model.predict(SPACE, TEST)
    assert found.shape == (len(TEST),) and found.dtype == np.float64 and np.isfinite(found).all()
    quality = judge(found, seconds(SPACE, TEST))
    assert quality is not None and quality.pairwise > 0.7, quality


@pytest.mark.parametrize("name", MODELS)
def test_the_same_seed_gives_the_same_numbers(name: str) -> None:
    assert (fitted(MODELS[name]).predict(SPACE, TEST) == known(name).predict(SPACE, TEST)).all()


@pytest.mark.parametrize("name", [n for n in MODELS if n not in ("ensemble", "transfer")])
def test_a_saved_model_predicts_the_same(name: str, tmp_path: Path) -> None:
    model = known(name)
    model.save(tmp_path / "model")
    loaded = MODELS[name](np.random.default_rng(9))
    loaded.load(tmp_path / "model")
    assert (loaded.predict(SPACE, TEST) == model.predict(SPACE, TEST)).all()


@pytest.mark.parametrize("name", MODELS)
def test_one_point_scores_the_same_alone_and_in_a_crowd(name: str) -> None:
    model = known(name)
    crowd = model.predict(SPACE, TEST)
    alone = np.concatenate([model.predict(SPACE, TEST[n]) for n in range(5)])
    assert alone == pytest.approx(crowd[:5], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_too_little_to_learn_from(name: str) -> None:
    model = MODELS[name](np.random.default_rng(0))
    points = SPACE.sample(2, np.random.default_rng(0))
    model.fit(History.of([Trials("t", SPACE, points, np.array([np.inf, 1.0]))]))
    assert not model.ready
    everything_failed = Trials("t", SPACE, TEST, np.full(len(TEST), np.inf))
    model.fit(History.of([everything_failed]))
    assert not model.ready


def test_models_that_learn_nothing() -> None:
    assert not fitted(lambda r: NoModel(r)).ready
    random = fitted(lambda r: RandomModel(r)).predict(SPACE, TEST)
    assert len(set(random.tolist())) == len(TEST)
    roofline = judge(fitted(lambda r: RooflineModel(r)).predict(SPACE, TEST), seconds(SPACE, TEST))
    assert roofline is not None and roofline.pairwise > 0.5


def test_ablation_flags_change_predictions() -> None:
    def of(**options: object) -> Floats:
        return fitted(lambda r: GBTModel(r, **options)).predict(SPACE, TEST)  # type: ignore[arg-type]

    packed = {"objective": "pack-sum"}
    assert (of(**packed) != of(**packed, weighted=False)).any()
    assert (of() != of(objective="rank")).any()
    assert (of() != of(label="score")).any()
    assert (of() != of(view="curves")).any()
    assert (of(settings="ansor", rounds=20) != of(settings="autotvm", rounds=20)).any()
    for option in ({"eta": 0.05}, {"max_depth": 2}, {"rounds": 5}):
        assert (of() != of(**option)).any(), option


def test_acquisitions_differ() -> None:
    base = {"costmodels.gbt:GBTModel": {"objective": "regression"}}
    found = [
        fitted(lambda r, a=a: EnsembleModel(r, base, count=3, acquisition=a)).predict(SPACE, TEST)  # type: ignore[misc]
        for a in ("mean", "ei", "ucb")
    ]
    assert (found[0] != found[2]).any() and (found[1] <= 0).all()


def test_transfer_knows_before_the_first_trial_and_forgets_later() -> None:
    model = TransferModel(np.random.default_rng(0), {"costmodels.gbt:GBTModel": {"objective": "regression"}}, half=32)
    other, nothing = trials(OTHER, 240, 5, "other"), Trials("t", SPACE, Points.empty(SPACE.width), np.empty(0))
    model.fit(History.of([other, nothing]))
    assert model.ready and model.discount == 1.0
    quality = judge(model.predict(SPACE, TEST), seconds(SPACE, TEST))
    assert quality is not None and quality.pairwise > 0.75
    model.fit(History.of([other, TRAIN]))
    assert model.discount == 0.0


def test_recall_that_is_missed() -> None:
    from costmodels.features import Data

    scores = np.array([1.0, 0.5, 0.2, 0.1])
    data = Data(np.zeros((4, 1)), np.arange(4), scores, np.zeros(4, np.int64))
    assert missed(scores, data) == 0.0
    assert missed(-scores, data) == pytest.approx(1 - (0 + 0 + 2 / 3 + 1) / 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "rnk"}, "unknown objective 'rnk'"),
        ({"settings": "tvm"}, "unknown settings 'tvm'"),
        ({"label": "x"}, "unknown label 'x'"),
        ({"objective": "pack-sum", "view": "knobs"}, "does not go with view"),
        ({"view": "statements"}, "does not go with view"),
    ],
)
def test_what_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ComponentError, match=message):
        GBTModel(**options)  # type: ignore[arg-type]
