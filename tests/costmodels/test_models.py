"""Cost models: they rank programs they have not seen, repeat with a seed, survive a file, and refuse nonsense."""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
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
from searchlab.lab.study import judge
from searchlab.search import CostModel, History, Points, Trials
from searchlab.search.knob import Floats
from searchlab.targets import parse as parse_target
from searchlab.testing.models import check_model, made_up_seconds, tiled_space, trials

pytest.importorskip("xgboost")
SMALL_NET = {"batches": 150, "hidden": 24, "rate": 6e-3}
Make = Callable[[np.random.Generator], CostModel]
MODELS: dict[str, Make] = {
    "default": lambda r: GBTModel(r),
    "rank": lambda r: GBTModel(r, objective="rank"),
    "knobs": lambda r: GBTModel(r, view="knobs"),
    "pack-sum": lambda r: GBTModel(r, objective="pack-sum"),
    "ensemble": lambda r: EnsembleModel(r, {"costmodels.gbt:GBTModel": {"objective": "regression"}}, count=3),
    "transfer": lambda r: TransferModel(r, {"costmodels.gbt:GBTModel": {"objective": "regression"}}),
    "mlp": lambda r: MLPModel(r, **SMALL_NET),
    "treegru": lambda r: TreeGRUModel(r, **SMALL_NET),
    "treegru-slots": lambda r: TreeGRUModel(r, slots=4, **SMALL_NET),
}


SPACE, OTHER = tiled_space(), tiled_space(96, 64, 32)
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
def test_it_holds_to_what_every_model_must(name: str) -> None:
    check_model(lambda rng: MODELS[name](rng), least=0.7)


@pytest.mark.parametrize("make", [RandomModel, NoModel, RooflineModel])
def test_so_do_those_that_learn_nothing(make: type[CostModel]) -> None:
    check_model(make)


def test_a_model_of_other_features_is_refused(tmp_path: Path) -> None:
    known("rank").save(tmp_path / "model")
    with pytest.raises(ComponentError, match="saved as .*summary.*not the .*curves"):
        GBTModel(view="curves").load(tmp_path / "model")
    with pytest.raises(ComponentError, match="cannot be read"):
        GBTModel().load(tmp_path / "nothing")


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
    before = _order(model)
    model.fit(History.of([Trials("t", SPACE, points, np.array([np.inf, 1.0]))]))
    assert np.array_equal(_order(model), before)
    everything_failed = Trials("t", SPACE, TEST, np.full(len(TEST), np.inf))
    model.fit(History.of([everything_failed]))
    assert np.array_equal(_order(model), before)


def _order(model: CostModel) -> Floats:
    """The order in which a model puts the test programs; nothing if it is not ready."""
    return np.argsort(model.predict(SPACE, TEST), kind="stable") if model.ready else np.empty(0)


def test_trees_begin_as_the_estimate_and_leave_it_behind(tmp_path: Path) -> None:
    estimate = RooflineModel().predict(SPACE, TEST)
    model = GBTModel(np.random.default_rng(0), pretrained=False)
    assert np.array_equal(model.predict(SPACE, TEST), estimate)
    alone = fitted(lambda r: GBTModel(r, prior=False)).predict(SPACE, TEST)

    def apart(half: int) -> float:
        return float(
            np.abs(fitted(lambda r: GBTModel(r, pretrained=False, half=half)).predict(SPACE, TEST) - alone).max()
        )

    assert apart(1) == pytest.approx(0.0, abs=1e-6) and apart(64) > apart(32) > 0.0
    wrong = Trials("t", SPACE, TRAIN.points, np.exp(-RooflineModel().predict(SPACE, TRAIN.points)))
    misled, plain = (GBTModel(np.random.default_rng(0), prior=p, pretrained=False) for p in (True, False))
    for model_ in (misled, plain):
        model_.fit(History.of([wrong]))
    assert np.array_equal(misled.predict(SPACE, TEST), plain.predict(SPACE, TEST))  # it contradicts what was measured
    assert not GBTModel(prior=False).ready and not GBTModel(view="curves").ready
    model.save(tmp_path / "untaught")
    other = fitted(lambda r: GBTModel(r, pretrained=False))
    other.load(tmp_path / "untaught")
    assert np.array_equal(other.predict(SPACE, TEST), estimate)


def test_models_that_learn_nothing() -> None:
    assert not fitted(lambda r: NoModel(r)).ready
    random = fitted(lambda r: RandomModel(r)).predict(SPACE, TEST)
    assert len(set(random.tolist())) == len(TEST)
    roofline = judge(fitted(lambda r: RooflineModel(r)).predict(SPACE, TEST), made_up_seconds(SPACE, TEST))
    assert roofline is not None and roofline.pairwise > 0.5


def test_the_view_estimate_is_what_roofline_predicts() -> None:
    for target in (None, replace(parse_target("x86-64-v3"), cores=4, threads=3)):
        space = copy(SPACE)
        space.target = target
        short = space.features(TEST, "estimate")[:, 0] * np.log(2)
        np.testing.assert_allclose(short, RooflineModel().predict(space, TEST), rtol=1e-5)


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
    quality = judge(model.predict(SPACE, TEST), made_up_seconds(SPACE, TEST))
    assert quality is not None and quality.pairwise > 0.75
    model.fit(History.of([other, TRAIN]))
    assert model.discount == 0.0


def test_recall_that_is_missed() -> None:
    from costmodels.features import TrainingData

    scores = np.array([1.0, 0.5, 0.2, 0.1])
    data = TrainingData(np.zeros((4, 1)), np.arange(4), scores, np.zeros(4, np.int64))
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
