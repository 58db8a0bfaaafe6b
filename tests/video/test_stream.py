"""Streams on compiled models: exact without thresholds, bounded with them, saved, resumed, refreshed and accounted."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tiny_networks import tiny

from searchlab.errors import GraphError
from searchlab.graph import GraphBuilder, GraphModule, evaluate_graph
from searchlab.ir import size
from searchlab.targets import parse
from searchlab.video import (
    ClipOptions,
    ResidualModel,
    ResidualOptions,
    Stream,
    StreamOptions,
    made_clip,
    read_clip,
    relative_error,
    residual,
)
from searchlab.video.front import front_of
from searchlab.video.front_programs import FrontPrograms
from searchlab.video.residual_options import KERNELS, RULES

ROOT = Path(__file__).resolve().parents[2]
CLIPS = Path(os.environ.get("SEARCHLAB_CLIPS", ROOT.parent / "shared" / "data" / "video"))
needs_clips = pytest.mark.skipif(not (CLIPS / "static.npy.xz").is_file(), reason=f"no recorded clips in {CLIPS}")
NEVER = StreamOptions(cut=None, compare=True)


def three_layers(side: int = 24, channels: int = 8) -> GraphModule:
    rng = np.random.default_rng(5)
    b = GraphBuilder("main", ranges={size("n"): (1, 4)})
    h = b.input("x", (size("n"), 3, side, side))
    for number, inputs in enumerate((3, channels, channels)):
        weight = rng.normal(0, (2 / (9 * inputs)) ** 0.5, (channels, inputs, 3, 3)).astype("float32")
        bias = rng.normal(0, 0.1, channels).astype("float32")
        h = b.relu(b.conv2d(h, b.constant(f"w{number}", weight), b.constant(f"b{number}", bias), padding=(1, 1)))
    return b.build(h)


@cache
def model(rule: str = "propagated", kernel: str = "whole") -> ResidualModel:
    return ResidualModel(three_layers(), ResidualOptions(rule, kernel=kernel), options={"threads": 1})


def clip(frames: int = 6, seed: int = 0, **options: float) -> np.ndarray:
    made = ClipOptions(frames, 24, 24, **options)  # type: ignore[arg-type]
    return made_clip(made, np.random.default_rng(seed))


def errors(stream: Stream, frames: np.ndarray) -> list[float]:
    found = []
    for frame in frames:
        stream.frame(frame)
        assert stream.account is not None
        found.append(stream.account.errors["output"])
    return found


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("rule", RULES)
def test_without_threshold_a_long_stream_is_exact(rule: str, kernel: str) -> None:
    frames = clip(60, noise=0.01, drift=0.002, camera=0.2)
    assert max(errors(Stream(model(rule, kernel), 0.0, NEVER), frames)) < 1e-5


def test_a_compiled_network_is_exact() -> None:
    """Its first layer skips pixels, the others are too small for that."""
    compiled = ResidualModel(tiny("resnet18"), ResidualOptions(kernel="skip"), options={"threads": 1})
    assert len(compiled.plan.skipping) == 1 < len(compiled.plan.layers)
    frames = made_clip(ClipOptions(4, 32, 32, noise=0.01), np.random.default_rng(0))
    stream = Stream(compiled, 0.0, StreamOptions(cut=None))
    for frame in frames:
        assert relative_error(stream.frame(frame), evaluate_graph(tiny("resnet18"), frame[None])) < 1e-4


def test_errors_of_what_was_propagated_stay_and_of_what_was_previous_grow() -> None:
    """The brightness drifts by a tenth of the threshold per frame."""
    frames = clip(60, noise=0.005, drift=0.002)
    found = {rule: errors(Stream(model(rule), 0.02, NEVER), frames) for rule in RULES}
    early, late = ({rule: np.mean(e[at]) for rule, e in found.items()} for at in (slice(10, 20), slice(50, 60)))
    for rule in ("propagated", "truncated"):
        assert late[rule] < 1.3 * early[rule] and late[rule] < 0.05
    assert late["previous"] > 2.5 * early["previous"] and late["previous"] > 3 * late["propagated"]
    refreshed = errors(Stream(model("previous"), 0.02, StreamOptions(refresh=10, cut=None, compare=True)), frames)
    assert max(refreshed) < late["previous"] / 2 and refreshed[::10] == [0] * 6


@pytest.mark.parametrize("rule", RULES)
def test_a_stream_is_saved_and_resumed(rule: str, tmp_path: Path) -> None:
    frames = clip(8, noise=0.01)
    options = StreamOptions(refresh=5)
    stream = Stream(model(rule), 0.02, options)
    for frame in frames[:3]:
        stream.frame(frame)
    stream.save(tmp_path / "stream.npz")
    wanted = [stream.frame(frame) for frame in frames[3:]]
    again = Stream.resumed(model(rule), tmp_path / "stream.npz", options)
    assert again.number == 3
    for output, frame in zip(wanted, frames[3:], strict=True):
        assert np.array_equal(output, again.frame(frame))
    assert again.account is not None and again.account == stream.account


def test_only_states_of_the_model_are_resumed(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="after its first frame"):
        Stream(model()).save(tmp_path / "none.npz")
    stream = Stream(model())
    stream.frame(clip(1)[0])
    stream.save(tmp_path / "stream.npz")
    with pytest.raises(GraphError, match="is not the state of a stream of this model"):
        Stream.resumed(model("truncated"), tmp_path / "stream.npz")


def test_streams_do_not_disturb_each_other() -> None:
    clips = [clip(5, seed, noise=0.01) for seed in (0, 1)]
    alone = [[stream.frame(f) for f in frames] for frames in clips for stream in [Stream(model(), 0.02)]]
    streams = [Stream(model(), 0.02) for _ in clips]
    together = [[s.frame(frames[t]) for s, frames in zip(streams, clips, strict=True)] for t in range(5)]
    batch = Stream(model(), 0.02)
    for t in range(5):
        both = batch.frame(np.stack([frames[t] for frames in clips]))
        for number in (0, 1):
            assert np.array_equal(together[t][number], alone[number][t])
            assert relative_error(both[number : number + 1], alone[number][t]) < 1e-5


def test_callers_may_use_the_memory_of_frames_and_outputs_again() -> None:
    frames = clip(4, noise=0.01)
    kept, reusing = Stream(model(), 0.02), Stream(model(), 0.02)
    buffer = np.empty_like(frames[0])
    for frame in frames:
        buffer[...] = frame
        output = reusing.frame(buffer)
        assert np.array_equal(output, kept.frame(frame))
        output[...] = np.nan
        buffer[...] = np.nan


def test_why_all_of_a_frame_is_computed() -> None:
    frames = made_clip(ClipOptions(9, 24, 24, cuts=(4,)), np.random.default_rng(0))

    def reasons(**options: float) -> list[str]:
        stream, found = Stream(model(), 0.01, StreamOptions(**options)), []  # type: ignore[arg-type]
        for frame in frames:
            stream.frame(frame)
            assert stream.account is not None
            found.append(stream.account.dense)
        return found

    assert reasons() == ["first", "", "", "", "cut", "", "", "", ""]
    assert reasons(refresh=3) == ["first", "", "", "refresh", "cut", "", "", "refresh", ""]
    assert set(reasons(dense_above=0.0)[1:]) == {"dense"}
    with pytest.raises(GraphError, match="refresh = 0"):
        StreamOptions(refresh=0)
    with pytest.raises(GraphError, match="cut = 2"):
        StreamOptions(cut=2)


def test_a_stream_falls_back_while_the_camera_moves() -> None:
    """Frames of a moving camera go through the plain graph; when it rests, changes are worth it again."""
    moving = clip(20, camera=2.0)
    still = clip(30, seed=1, speed=0.2)
    stream = Stream(model(kernel="skip"), 0.02, StreamOptions(cut=None, dense_above=0.7))
    reasons = []
    for frame in (*moving, *still):
        output = stream.frame(frame)
        assert stream.account is not None
        reasons.append(stream.dense)
        if stream.dense:
            assert relative_error(output, stream.model.dense(frame[None])) < 1e-5
            assert stream.account.density == 1 and (stream.dense != "dense") == bool(stream.state)
    assert reasons[:2] == ["first", "dense"] and set(reasons[1:20]) == {"dense"}
    assert "again" in reasons[20:] and reasons[-1] == "" and reasons.count("again") == 1


def test_the_plain_graph_may_take_fewer_multiplications_than_its_layers() -> None:
    """Where its convolutions are Winograd's, fewer changes are worth it."""
    b = GraphBuilder("main")
    rng = np.random.default_rng(0)
    x = b.input("x", (1, 3, 16, 16))
    for number, (co, ci) in enumerate(((32, 3), (32, 32), (32, 32))):
        x = b.relu(
            b.conv2d(x, b.constant(f"w{number}", rng.normal(0, 0.1, (co, ci, 3, 3)).astype("float32")), padding=1)
        )
    module, options = b.build(b.mean(x, axes=(2, 3))), ResidualOptions(kernel="skip", granularity="pixel")
    shares = {}
    for winograd in (False, True):
        stream = Stream(ResidualModel(module, options, options={"winograd": winograd}), 0.0, StreamOptions(cut=None))
        for frame in rng.uniform(0, 1, (2, 3, 16, 16)):
            stream.frame(frame)
        assert stream.account is not None and stream.account.work == pytest.approx(1.0)
        shares[winograd] = stream._work()
    assert shares[False] == pytest.approx(1.0)
    assert 1.3 < shares[True] < 9 / 4


@pytest.mark.parametrize(
    ("cpu", "products", "wanted"),
    [
        ("x86-64-v3", "float32", 1.0),
        ("x86-64-v3", "int16", 1.6),
        ("x86-64-v3", "bfloat16", 0.65),
        ("x86-64-v4", "int16", 1.6),
    ],
)
def test_products_count_as_the_time_that_they_take(cpu: str, products: str, wanted: float) -> None:
    b = GraphBuilder("main")
    weight = np.random.default_rng(0).normal(0, 0.1, (32, 32, 3, 3)).astype("float32")
    h = b.relu(b.conv2d(b.input("x", (1, 3, 8, 8)), b.constant("first", weight[:, :3]), padding=1))
    module = b.build(b.conv2d(h, b.constant("second", weight), padding=1))
    plan = residual(module, ResidualOptions(kernel="skip", granularity="pixel", products=products))
    front = front_of(plan)
    assert front is not None
    # The frame is multiplied in float32 in any case.
    assert FrontPrograms(plan, front, parse(cpu)).speeds == {"conv2d": 1.0, "conv2d_1": wanted}


def test_frames_of_another_size_are_refused() -> None:
    stream = Stream(model())
    stream.frame(clip(1)[0])
    with pytest.raises(GraphError, match="a frame of shape"):
        stream.frame(np.zeros((2, 3, 24, 24)))


def test_accounts() -> None:
    frames = clip(3, objects=1)
    stream = Stream(model(kernel="skip"), 0.02)
    stream.frame(frames[0])
    assert stream.account is not None and stream.account.density == 1
    with pytest.raises(GraphError, match="computed as a whole"):
        stream.accelerator()
    stream.frame(frames[1])
    account = stream.account
    first, *others = account.layers
    assert first.whole == 24 * 24 * 8 * 3 * 9 and others[0].whole == 24 * 24 * 8 * 8 * 9
    changed = np.abs(frames[1] - frames[0]) > 0.02
    assert first.density == pytest.approx(changed.mean())
    assert first.changed == pytest.approx(first.whole * changed.mean())
    # output pixels are reached by whole windows, so more of them are computed than inputs have changed
    assert first.computed is not None and changed.any(axis=0).mean() < first.computed < 1
    stream.frame(frames[1])
    again = stream.account
    assert again is not None and again.layers[0].density == 0 and again.layers[0].computed == 0


def test_the_accelerator_counts_products_of_what_is_not_zero() -> None:
    b = GraphBuilder("main")
    weight = np.array([[1, 0, 2, 0], [3, 0, 0, 0], [4, 5, 6, 7]], "float32")
    module = b.build(b.linear(b.input("x", (1, 4)), b.constant("w", weight)))
    stream = Stream(ResidualModel(module, options={"threads": 1}), 0.0, StreamOptions(cut=None))
    stream.frame([[1, 1, 0, 1]])
    stream.frame([[2, 1, 0, 0]])  # inputs 0 and 3 change; 0 and 1 are not zero
    two = stream.accelerator(units=2)  # unit 0 has outputs 0 and 2
    assert (two.dense, two.zeros, two.changes) == (6, 3, 3)  # changes: 0 by 1 and 4, 3 by 7; unit 1: 0 by 3
    assert two.imbalance == 1.5
    one = stream.accelerator(units=1)
    assert (one.dense, one.zeros, one.changes, one.imbalance) == (12, 4, 4, 1)


def test_relative_thresholds() -> None:
    frames = clip(3, noise=0.01)
    stream = Stream(model(), relative=0.1)
    stream.frame(frames[0])
    assert stream.thresholds[0] == pytest.approx(0.1 * frames[0].std(), rel=1e-5)
    assert np.all(stream.thresholds > 0)
    with pytest.raises(GraphError, match="not both"):
        Stream(model(), 0.1, relative=0.1)


@needs_clips
def test_recorded_clips() -> None:
    """A still camera leaves little to compute at a small error; a moving one leaves more."""
    compiled = ResidualModel(three_layers(48), ResidualOptions(granularity="pixel"), options={"threads": 1})
    density = {}
    for name in ("static", "moving"):
        stream, found = Stream(compiled, relative=0.2, options=NEVER), []
        for frame in read_clip(CLIPS / f"{name}.npy.xz", size=48)[:12]:
            stream.frame(frame)
            assert stream.account is not None
            found.append(stream.account)
        assert found[-1].errors["output"] < 0.1
        density[name] = np.mean([account.density for account in found[1:]])
    assert density["static"] < 0.3 and density["static"] < density["moving"]
