"""Searches on streams: the space of knobs, trials that are checked, bounds as values, and seeds."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlab.errors import GraphError, SpaceError
from searchlab.graph import GraphBuilder
from searchlab.lab.records import RecordStore
from searchlab.lab.study import Study
from searchlab.lab.study.stream_subject import StreamSubject
from searchlab.measure.job import PENALISED, Outcome
from searchlab.targets import parse
from searchlab.video import ResidualOptions, StreamOptions, residual
from searchlab.video.stream_bench import StreamBench
from searchlab.video.stream_space import FACTORS, LEVELS, StreamChoice, stream_space
from searchlab.video.video_settings import VideoSettings

NETWORK = Path(__file__).parents[1] / "stream_network.py"
GIVEN: dict[str, Any] = {
    "model": f"{NETWORK}:make",
    "clip": {"frames": 8, "height": 24, "width": 24, "noise": 0.003},
    "frames": 8,
    "bound": {"relative_error": 0.05},
}


@cache
def bench(*rules: str) -> StreamBench:
    settings = VideoSettings.of(GIVEN | {"rules": list(rules or ("propagated",))})
    return StreamBench(settings, parse({"native": {"threads": 1}}))


def study(seed: int = 0, strategy: str = "evolutionary", **options: Any) -> Study:
    return Study(StreamSubject(bench()), model=None, strategy=strategy, seed=seed, batch=8, **options)


def test_settings_are_read_back() -> None:
    settings = VideoSettings.of(GIVEN)
    assert VideoSettings.of(settings.plain) == settings and settings.rules == ("propagated",)
    assert settings.label == "stream_network.py:make on made clip (noise 0.003) within 5 %"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bound": {"relative_error": 2}}, "relative_error = 2; a share between 0 and 1"),
        ({"bound": 0.01}, "accepted: {relative_error: 0.01}"),
        ({"frames": 2}, "frames = 2; a whole number of at least 3"),
        ({"rules": ["propagate"]}, "did you mean 'propagated'"),
        ({"clip": {"nois": 1}}, "did you mean 'noise'"),
        ({"clip": "nowhere.mp4"}, "the clip nowhere.mp4 cannot be read"),
        ({"kernal": "skip"}, "a video takes no 'kernal'"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        VideoSettings.of(GIVEN | change)


def test_the_space_has_a_sketch_for_each_rule_and_a_knob_for_each_map() -> None:
    space = bench("propagated", "truncated").space
    assert [s.name for s in space.sketches] == ["propagated", "truncated"]
    names = [k.name for k in space.sketches[0].knobs]
    assert names == ["level", "tilt", "x conv2d", "x conv2d_1", "refresh", "dense_above"]  # none for the classifier
    seeds = [StreamChoice.of(space.choice(p)) for p in space.seeds]
    assert {s.rule for s in seeds} == {"propagated", "truncated"} and len(seeds) == 8
    assert all(len(set(s.shares.values())) == 1 for s in seeds)
    assert len({next(iter(s.shares.values())) for s in seeds}) == 4


def test_blocks_are_structures() -> None:
    """Blocks are for changes that are followed; other rules have none."""
    given = GIVEN | {"rules": ["propagated", "truncated"], "blocks": [1, 4, "row"]}
    made = StreamBench(VideoSettings.of(given), bench().target)
    assert list(made.plans) == ["propagated", "propagated by 4", "propagated by row", "truncated"]
    work = [made.check(StreamChoice.single(name, made.plans[name], 0.1)).work for name in list(made.plans)[:3]]
    assert work[0] < work[1] < work[2] < 1
    assert VideoSettings.of(made.settings.plain) == made.settings


def test_products_are_structures() -> None:
    given = GIVEN | {"rules": ["propagated", "truncated"], "products": ["float32", "bfloat16", "int8"]}
    made = StreamBench(VideoSettings.of(given), bench().target)
    assert list(made.plans) == ["propagated", "propagated in bfloat16", "propagated in int8", "truncated"]
    errors = [made.check(StreamChoice.single(name, made.plans[name], 0.0)).error for name in list(made.plans)[:3]]
    assert errors[0] < 1e-5 < errors[1] < 5e-3 < errors[2] < 0.05
    assert VideoSettings.of(made.settings.plain) == made.settings


def test_thresholds_of_a_point() -> None:
    space = bench().space
    point = space.seeds[0]
    knobs = {**space.choice(point)["knobs"], "level": LEVELS[3], "tilt": 4.0, "x conv2d_1": FACTORS[-1], "refresh": 8}
    choice = StreamChoice.of({"sketch": "propagated", "knobs": knobs})
    assert choice.shares == pytest.approx({"conv2d": LEVELS[3] / 2, "conv2d_1": 2 * LEVELS[3] * FACTORS[-1]})
    assert choice.options == StreamOptions(refresh=8, dense_above=1.0)
    stream = bench().stream(choice)
    deviation = bench().clip[0].std()
    assert stream.thresholds[0] == pytest.approx(LEVELS[3] / 2 * deviation, rel=1e-4)


def test_maps_that_several_layers_read_have_a_factor_in_common() -> None:
    rng = np.random.default_rng(0)
    b = GraphBuilder("main")
    h = b.input("x", (1, 3, 8, 8))
    weights = iter(rng.normal(0, 0.2, (4, inputs, 1, 1)).astype("float32") for inputs in (3, 4, 4))
    one, two, three = (b.constant(f"w{n}", w) for n, w in enumerate(weights))
    h = b.relu(b.conv2d(h, one))
    plan = residual(b.build(b.conv2d(h, two) + b.conv2d(h, three)), ResidualOptions(kernel="skip"))
    space = stream_space({"propagated": plan}, fit=True)
    assert [k.name for k in space.sketches[0].knobs][:4] == ["tilt", "forks", "x conv2d", "forked x conv2d_1"]
    assert [space.choice(p)["knobs"]["forks"] for p in space.seeds][:3] == [1.0, 0.35, 0.35]
    knobs = {**space.choice(space.seeds[1])["knobs"], "x conv2d": 2.0, "forked x conv2d_1": 4.0}
    shares = StreamChoice.of({"sketch": "propagated", "knobs": knobs}).shares
    assert shares == pytest.approx({"conv2d": 2.0, "conv2d_1": 4 * 0.35})


def test_a_check_has_the_errors_of_all_frames() -> None:
    plan = bench().plans["propagated"]
    fine, coarse = (bench().check(StreamChoice.single("propagated", plan, level)) for level in (0.0, 0.5))
    assert fine.error < 1e-5 and len(fine.errors) == 8 and fine.dense == ("first", *[""] * 7)
    assert coarse.error > 0.05 and coarse.work < fine.work
    assert [a.layer for a in coarse.layers] == ["conv2d", "conv2d_1", "linear"]


def test_what_violates_the_bound_is_a_value() -> None:
    """It has its true times, but counts as slower than computing everything; so the best is always within."""
    with study() as found:
        best = found.optimize(trials=24)
        subject = found.subject
        assert isinstance(subject, StreamSubject)
        records = [subject.bench.check(StreamChoice.of(found.space.choice(p))) for p in found.trials.points]
    bound = subject.bench.settings.relative_error
    violating = np.array([c.error > bound for c in records])
    assert violating.any() and not violating.all() and np.isfinite(found.trials.seconds).all()
    assert found.trials.seconds[violating].min() > found.trials.seconds[~violating].min()
    assert subject.bench.check(StreamChoice.of(found.space.choice(best.point))).error <= bound
    assert found.finish().baselines["dense"] > 0
    with pytest.raises(SpaceError, match="is a stream"):
        best.kernel  # noqa: B018


def test_penalised_outcomes() -> None:
    plain = Outcome("a", "ok", (1.0, 2.0))
    assert plain.fastest == 1 and Outcome("a", "ok", (1.0, 2.0), notes={PENALISED: "7"}).fastest == 7
    assert Outcome("a", "run", (), notes={PENALISED: "7"}).fastest == np.inf


def test_records_resume_a_search(tmp_path: Path) -> None:
    with RecordStore(tmp_path / "records.jsonl") as store, study(store=store, cell="c") as first:
        first.optimize(trials=16)
        written = list(store.records())
    assert len(written) == 16
    assert all({"relative_error", "median_s", "p95_s", "drift", "layers"} <= set(r.notes) for r in written)
    with RecordStore(tmp_path / "records.jsonl") as store, study(store=store, cell="c") as again:
        again.optimize(trials=16)
        assert len(list(store.records())) == 16  # nothing was measured again
    assert again.trials.points == first.trials.points
    assert np.array_equal(again.trials.seconds, first.trials.seconds)


def test_a_fit_ends_just_within_the_bound() -> None:
    fitting = StreamBench(VideoSettings.of(GIVEN | {"fit": True}), bench().target)
    assert "level" not in [k.name for k in fitting.space.sketches[0].knobs]
    choice = StreamChoice.of(fitting.space.choice(fitting.space.seeds[0]))
    assert set(choice.shares.values()) == {1.0}
    tried, check = fitting.tried(choice)
    assert 0.5 * 0.05 < check.error <= 0.05 and len(set(tried.shares.values())) == 1
    assert fitting.check(tried).error == pytest.approx(check.error)


@pytest.mark.parametrize("strategy", ["random", "local", "annealing", "genetic"])
def test_any_strategy_searches_streams(strategy: str) -> None:
    with study(strategy=strategy) as found:
        assert found.optimize(trials=12).seconds > 0 and len(found.trials) == 12
