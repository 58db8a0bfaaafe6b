"""Trees trained ahead: the same from the same data, better than the estimate on what they have not seen, and harmless
where they are wrong, on other features, or not there at all."""

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_programs import AVX2, recorded

from costmodels import pretrained, pretraining, roofline
from costmodels.gbt import GBTModel
from costmodels.mlp import MLPModel
from costmodels.pretrained import SHIPPED, PretrainedTrees, read, read_card, shipped, trust
from costmodels.pretraining import table, train
from costmodels.roofline import RooflineModel
from searchlab.analysis import Schema, schema
from searchlab.dataset.stored import StoredTask
from searchlab.errors import ComponentError
from searchlab.search import History, Task, Trials
from searchlab.search import space as space_of
from searchlab.search.knob import Floats
from searchlab.search.pair_order import in_order
from searchlab.targets import parse as parse_target
from searchlab.testing.models import made_up_seconds, tiled_space, trials
from searchlab.workloads import parse

pytest.importorskip("xgboost")
ROOT = Path(__file__).parents[2]
WORK = ("matmul:m=24,n=32,k=16", "matmul:m=16,n=48,k=40", "softmax:rows=16,cols=32", "softmax:rows=8,cols=96",
        "dense:m=8,n=32,k=24", "dense:m=12,n=64,k=16,activation=relu")  # fmt: skip
SPACE = tiled_space()
TEST = SPACE.sample_new(200, np.random.default_rng(2)).points


@cache
def small() -> tuple[StoredTask, ...]:
    return tuple(recorded(work, 40) for work in WORK)


@pytest.fixture(scope="module", autouse=True)
def few_trees() -> Iterator[None]:
    """Settings for small data, so that training takes little time."""
    with pytest.MonkeyPatch.context() as patched:
        few = {"max_depth": 4, "rounds": 40}
        patched.setattr(pretraining, "SETTINGS", {"few": few, "fewer": {**few, "rounds": 10}})
        yield


@pytest.fixture(scope="module")
def trained(few_trees: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trees")
    train([t.trials for t in small()], folder)
    return folder


@pytest.fixture
def start(trained: Path, monkeypatch: pytest.MonkeyPatch) -> PretrainedTrees:
    """The small trees in place of those shipped."""
    found = read(trained)
    monkeypatch.setattr(pretrained, "shipped", lambda: found)
    return found


# --- training ---------------------------------------------------------------------------------------------------------


def test_the_same_data_and_seed_give_the_same_trees(trained: Path, tmp_path: Path) -> None:
    card = GBTModel.pretrain([t.trials for t in small()], tmp_path / "again")
    again, first = read(tmp_path / "again"), read(trained)
    assert again.digest == first.digest
    assert {k: v for k, v in card.items() if k != "seconds"} == {k: v for k, v in first.card.items() if k != "seconds"}
    assert card["tasks"] == 6 and card["programs"] == sum(int(np.isfinite(t.seconds).sum()) for t in small())
    assert card["settings"]["name"] == max(card["tried"], key=card["tried"].get)
    assert card["machines"] == ["x86-64-v3, 2 threads"] and card["operators"].keys() == {"dense", "matmul", "softmax"}
    train([t.trials for t in small()], tmp_path / "other", seed=1)
    assert read(tmp_path / "other").digest != first.digest


def test_they_rank_what_was_left_out(trained: Path) -> None:
    card = read_card(trained)
    for kind in ("unseen_operator", "unseen_shape"):
        assert card["accuracy"][kind]["pairs"] > 0.6 and card["accuracy"][kind]["regret"] < 2
    assert "| all | 6 |" in table(card) and table(card).count("\n") == 3 + 2 + 1


def test_too_little_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ComponentError, match="training needs tasks of 2 operators and 6 workloads"):
        train([t.trials for t in small()[:2]], tmp_path)
    with pytest.raises(ComponentError, match="'mlp' starts from nothing that could be trained"):
        MLPModel.pretrain([], tmp_path)


# --- starting from them -----------------------------------------------------------------------------------------------


def test_a_search_begins_with_them_and_says_so(start: PretrainedTrees) -> None:
    model = GBTModel(np.random.default_rng(0))
    assert model.ready and model.seen(SPACE) == start.summary
    assert start.summary == f"trees trained on {start.card['programs']} programs of 6 tasks"
    on_gpu = space_of("sketch", Task(parse("matmul:m=16,n=16,k=16"), parse_target("cuda:arch=sm_80")))
    assert model.seen(on_gpu) == ""  # they know programs for CPUs
    rows = SPACE.features(TEST, "summary")
    assert (model.predict(SPACE, TEST) == -start.scores(rows, None)).all()
    stored = recorded("matmul:m=40,n=24,k=32", 60, seed=3)
    points, seconds = stored.trials.points, stored.seconds
    good = np.isfinite(seconds)
    ours, estimate = (m.predict(stored.trials.space, points)[good] for m in (model, RooflineModel()))
    assert in_order(ours, seconds[good]) > in_order(estimate, seconds[good])


def test_only_where_they_were_trained_for(start: PretrainedTrees) -> None:
    others: tuple[dict[str, object], ...] = (
        {"pretrained": False}, {"prior": False}, {"view": "curves"}, {"objective": "rank"}, {"objective": "pack-sum"},
        {"label": "score"}, {"settings": "ansor"}, {"settings": "autotvm"},
    )  # fmt: skip
    for options in others:
        model = GBTModel(**options)  # type: ignore[arg-type]
        assert model.seen(SPACE) == "" and not model.pretrained, options


def test_without_them_it_is_what_it_was(start: PretrainedTrees) -> None:
    model = GBTModel(np.random.default_rng(0), pretrained=False)
    assert (model.predict(SPACE, TEST) == RooflineModel().predict(SPACE, TEST)).all()


def _fitted(history: Trials, **options: object) -> Floats:
    model = GBTModel(np.random.default_rng(0), **options)  # type: ignore[arg-type]
    model.fit(History.of([history]))
    return model.predict(SPACE, TEST)


def test_measurements_overrule_them(start: PretrainedTrees) -> None:
    """In a space of one's own, on times that contradict them, they fade, and new trees learn what they miss."""
    points = SPACE.sample_new(240, np.random.default_rng(1)).points
    against = np.exp(start.scores(SPACE.features(points, "summary"), None))  # what they favour is slow
    reverse = np.exp(start.scores(SPACE.features(TEST, "summary"), None))
    model = GBTModel(np.random.default_rng(0))
    model.fit(History.of([Trials("t", SPACE, points, against)]))
    assert model._weight == 0.0 and in_order(model.predict(SPACE, TEST), reverse) > 0.9
    plain = in_order(_fitted(trials(SPACE, 240, 1), pretrained=False), made_up_seconds(SPACE, TEST))
    assert in_order(_fitted(trials(SPACE, 240, 1)), made_up_seconds(SPACE, TEST)) > plain - 0.03


def test_a_history_of_other_tasks_and_failures(start: PretrainedTrees) -> None:
    other = tiled_space(96, 64, 32)
    failed = Trials("f", other, other.sample(5, np.random.default_rng(0)), np.full(5, np.inf))
    model = GBTModel(np.random.default_rng(0))
    model.fit(History.of([trials(other, 60, 1), failed, trials(SPACE, 3, 2)]))
    assert np.isfinite(model.predict(SPACE, TEST)).all()
    model.fit(History.of([trials(other, 60, 1), failed]))
    assert np.isfinite(model.predict(SPACE, TEST)).all() and model._weight == 1.0


@given(
    st.lists(st.tuples(st.floats(-4, 4), st.floats(-7, 0)), max_size=40),
    st.sampled_from(["as they are", "equal scores", "equal times"]),
)
def test_trust_is_always_a_number_in_bounds(pairs: list[tuple[float, float]], form: str) -> None:
    scores, measured = (np.array(column, float) for column in zip(*pairs)) if pairs else (np.empty(0), np.empty(0))
    scores = np.zeros_like(scores) if form == "equal scores" else scores
    measured = np.zeros_like(measured) if form == "equal times" else measured
    assert 0.0 <= trust(scores, measured) <= 1.5
    assert form != "equal scores" or trust(scores, measured) == 1.0


def test_trust_follows_the_measurements() -> None:
    x = np.linspace(-2, 2, 32)
    noise = 0.2 * np.random.default_rng(0).standard_normal(32)
    assert trust(x, x + noise) == pytest.approx(1.0, abs=0.1)
    assert trust(x, 0.3 * x + noise) == pytest.approx(0.3, abs=0.1)
    assert trust(x, noise) < 0.1 and trust(x, -x + noise) == 0.0
    assert trust(0.02 * x, noise) > 0.7  # programs chosen because they are alike say little


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_saved_model_goes_on_as_it_was_trained(start: PretrainedTrees, tmp_path: Path) -> None:
    taught = trials(SPACE, 60, 1)
    for name, options in {"with": {}, "without": {"pretrained": False}}.items():
        model = GBTModel(np.random.default_rng(0), **options)  # type: ignore[arg-type]
        model.fit(History.of([taught]))
        model.save(tmp_path / name)
        again = GBTModel()
        again.load(tmp_path / name)
        assert (again.predict(SPACE, TEST) == model.predict(SPACE, TEST)).all()


def test_trees_other_than_those_it_was_saved_with(
    start: PretrainedTrees, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = GBTModel(np.random.default_rng(0))
    model.fit(History.of([trials(SPACE, 60, 1)]))
    model.save(tmp_path / "model")
    monkeypatch.setattr(pretrained, "shipped", lambda: PretrainedTrees(start.booster, start.card, "others"))
    with pytest.raises(
        ComponentError, match=f"starts from pretrained trees {start.digest}, which are not those shipped"
    ):
        GBTModel().load(tmp_path / "model")


def test_trees_of_other_features_are_refused_with_a_fallback(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = read(trained)
    pretrained.write(tmp_path / "old", found.booster, {**found.card, "version": 1})
    now = schema("summary")
    with pytest.raises(ComponentError, match=rf"version 1 of the view 'summary', but .* version {now.version}"):
        read(tmp_path / "old")
    with pytest.warns(UserWarning, match="starts from the analytical estimate instead"):
        assert shipped(tmp_path / "old") is None
    monkeypatch.setattr(pretrained, "shipped", lambda: None)
    model = GBTModel(np.random.default_rng(0))
    assert (model.predict(SPACE, TEST) == RooflineModel().predict(SPACE, TEST)).all() and model.seen(SPACE) == ""


def test_a_view_may_gain_columns(start: PretrainedTrees, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees find theirs by name, wherever they are."""
    rows = SPACE.features(TEST, "summary")
    wanted = start.scores(rows, None)
    now = schema("summary")
    wider = Schema(now.name, now.version, ("new", *now.columns[::-1], "newer"))
    for module in (pretrained, roofline):
        monkeypatch.setattr(module, "schema", lambda _: wider)
    pretrained._places.cache_clear()
    noise = np.full((len(rows), 1), 7, np.float32)
    got = start.scores(np.concatenate([noise, rows[:, ::-1], noise], axis=1), None)
    pretrained._places.cache_clear()
    assert (got == wanted).all()


def test_a_column_that_is_gone_is_named(trained: Path, tmp_path: Path) -> None:
    found = read(trained)
    pretrained.write(tmp_path, found.booster, {**found.card, "columns": [*found.columns, "all_hopes", "main_fears"]})
    with pytest.raises(ComponentError, match="that this searchlab does not have: all_hopes, main_fears"):
        read(tmp_path)


def test_trees_that_have_seen_no_calls_say_nothing_about_them(start: PretrainedTrees) -> None:
    space = space_of("template", Task(parse("matmul:m=32,n=32,k=32,dtype=uint8"), AVX2))
    assert space.tensorized and not SPACE.tensorized
    points = space.sample(50, np.random.default_rng(0))
    seen = PretrainedTrees(start.booster, {**start.card, "called": 9}, "seen")
    unseen = PretrainedTrees(start.booster, {**start.card, "called": 0}, "unseen")
    assert seen.knows(space) and unseen.knows(SPACE) and not unseen.knows(space)
    for trees, others in ((seen, False), (unseen, True)):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(pretrained, "shipped", lambda found=trees: found)
            same = GBTModel().predict(space, points) == RooflineModel().predict(space, points)
            assert same.all() == others


@pytest.mark.parametrize("damage", ["no folder", "no card", "half a card", "half the trees"])
def test_trees_that_cannot_be_read(damage: str, trained: Path, tmp_path: Path) -> None:
    card, raw = (trained / "gbt.json").read_text(), (trained / "gbt.ubj").read_bytes()
    if damage != "no folder":
        (tmp_path / "gbt.ubj").write_bytes(raw[: len(raw) // 2] if damage == "half the trees" else raw)
    if damage in ("half a card", "half the trees"):
        (tmp_path / "gbt.json").write_text(card[: len(card) // 2] if damage == "half a card" else card)
    with pytest.raises(ComponentError, match="no pretrained trees that can be read|is damaged"):
        read(tmp_path)


def test_what_is_shipped() -> None:
    """The trees and their card, small, for the features of today; data sets stay outside the package."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        packaged = tomllib.load(file)["tool"]["setuptools"]["package-data"]
    assert packaged["costmodels"] == ["shipped/*"]
    assert {f.name for f in SHIPPED.iterdir()} == {"gbt.json", "gbt.ubj"}
    assert sum(f.stat().st_size for f in SHIPPED.iterdir()) < 5e6
    assert not [f for package in ("searchlab", "spaces", "costmodels") for f in (ROOT / package).rglob("*.zip")]
    found = read(SHIPPED)
    assert found.card["tasks"] >= 60 and found.card["accuracy"]["unseen_operator"]["pairs"] > 0.75
    for kind in ("unseen_operator", "unseen_shape"):
        assert found.card["accuracy"][kind]["regret"] < found.card["accuracy"]["estimate"]["regret"]
    task = Task(parse("conv2d:ci=16,co=16,h=14,w=14,k=3,padding=1"), AVX2)
    space = space_of("sketch", task)
    points = space.sample(200, np.random.default_rng(0))
    model = GBTModel(np.random.default_rng(0))
    assert np.isfinite(model.predict(space, points)).all() and model.seen(space) == found.summary
