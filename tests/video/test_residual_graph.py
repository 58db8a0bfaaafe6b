"""Residual graphs compute what the graphs they were made of compute, and drop what thresholds say."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_videos import RandomNetwork
from tiny_networks import tiny

from searchlab.errors import GraphError
from searchlab.graph import GraphBuilder, GraphModule, evaluate_graph, graph_from_json, graph_to_json
from searchlab.video import ClipOptions, ResidualOptions, ResidualPlan, made_clip, relative_error, residual
from searchlab.video.residual_options import GRANULARITIES, KERNELS, RULES

WAYS = [ResidualOptions(*way, smallest=0) for way in product(RULES, GRANULARITIES, KERNELS)]


def clip(frames: int, size: int, **changes: float) -> np.ndarray:
    options = ClipOptions(frames, size, size, **{"noise": 0.01, "camera": 0.3, "drift": 0.01, **changes})  # type: ignore[arg-type]
    return made_clip(options, np.random.default_rng(1))


def interpreted(plan: ResidualPlan, frames: np.ndarray, threshold: float) -> list[tuple]:  # type: ignore[type-arg]
    """The output, the counts and the state of every frame."""
    output, state = evaluate_graph(plan.module, frames[:1], function="first")
    found = [(output, None, state)]
    for frame in frames[1:]:
        found.append(evaluate_graph(plan.module, frame[None], plan.thresholds(threshold), found[-1][2]))
    return found


@settings(max_examples=40)
@given(st.data())
def test_without_threshold_random_networks_are_exact(data: st.DataObject) -> None:
    draw = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    module = RandomNetwork(draw).module(draw(1, 6))
    plan = residual(module, data.draw(st.sampled_from(WAYS)))
    frames = clip(4, 8)
    for frame, (output, *_) in zip(frames, interpreted(plan, frames, 0.0), strict=True):
        assert relative_error(output, evaluate_graph(module, frame[None])) < 1e-5


@settings(max_examples=20)
@given(st.data())
def test_what_is_held_back_is_never_more_than_the_threshold(data: st.DataObject) -> None:
    """What makes errors of the rule stay: inputs are seen up to the threshold, and sums are those of what was seen."""
    draw = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    module = RandomNetwork(draw).module(draw(1, 4))
    plan = residual(module, ResidualOptions(granularity=data.draw(st.sampled_from(GRANULARITIES))))
    threshold = data.draw(st.sampled_from([0.01, 0.1]))
    frames = clip(5, 8)
    for frame, (_, _, state) in zip(frames, interpreted(plan, frames, threshold), strict=True):
        for slot, kept in enumerate(plan.kept):
            assert kept.of != "x" or np.abs(frame[None] - state[slot]).max() <= threshold * (1 + 1e-6)
        for layer in plan.layers:
            _, weight, *bias = plan.module["first"].calls[layer.name].names()
            arrays = [state[plan.points[layer.point].slot], *(plan.module.constants[n].array for n in (weight, *bias))]
            wanted = layer.operator.reference(*(np.asarray(a, np.float64) for a in arrays))
            assert np.allclose(state[layer.slot], wanted, atol=1e-5)


def test_thresholds_drop_changes_and_some_of_the_result() -> None:
    plan, frames = residual(two_layers()), clip(3, 6)
    exact, near = (interpreted(plan, frames, threshold)[2] for threshold in (0.0, 0.02))
    assert 0 < near[1][0].sum() < exact[1][0].sum() == frames[0].size
    assert 1e-4 < relative_error(near[0], exact[0]) < 0.2


@pytest.mark.parametrize(
    "name", ["resnet18", *(pytest.param(n, marks=pytest.mark.slow) for n in ("mobilenet_v2", "unet"))]
)
@pytest.mark.parametrize("rule", RULES)
def test_without_threshold_networks_are_exact(name: str, rule: str) -> None:
    plan = residual(tiny(name), ResidualOptions(rule))
    frames = clip(3, 32 if name != "unet" else 16)
    for frame, (output, *_) in zip(frames, interpreted(plan, frames, 0.0), strict=True):
        assert relative_error(output, evaluate_graph(tiny(name), frame[None])) < 1e-4


def two_layers() -> GraphModule:
    rng = np.random.default_rng(0)
    b = GraphBuilder("main")
    x = b.input("x", (1, 3, 6, 6))
    w1, w2 = (b.constant(n, rng.standard_normal((4, c, 3, 3)).astype("float32")) for n, c in (("w1", 3), ("w2", 4)))
    h = b.relu(b.conv2d(x, w1, b.constant("b1", np.ones(4, "float32")), padding=(1, 1)))
    return b.build(b.conv2d(h, w2, padding=(1, 1)))


def test_a_still_clip_has_no_changes() -> None:
    plan = residual(two_layers())
    frames = np.repeat(clip(1, 6), 3, axis=0)
    found = interpreted(plan, frames, 0.0)
    for output, counts, state in found[1:]:
        assert [float(c.sum()) for c in counts] == [0, 0]
        assert np.array_equal(output, found[0][0])
        assert all(map(np.array_equal, state, found[0][2]))


def test_one_pixel_changes_its_neighbours() -> None:
    frames = np.zeros((2, 3, 6, 6), "float32")
    frames[1, 1, 2, 3] = 1
    plan = residual(two_layers(), ResidualOptions(kernel="skip", limit=1.0, smallest=0))
    _, counts, _ = interpreted(plan, frames, 0.5)[1]
    assert counts[0].tolist() == [0, 1, 0]  # one element of the second channel
    assert 0 < counts[1].max() <= 9
    first, second = (float(c[0]) for c in counts[2:])
    assert first == 9 and 9 <= second <= 25


def test_small_layers_are_not_worth_skipping() -> None:
    small = residual(two_layers(), ResidualOptions(kernel="skip", smallest=36))
    assert small.skipping == ()
    assert residual(two_layers(), ResidualOptions(kernel="skip", smallest=35)).skipping == ("conv2d", "conv2d_1")
    with pytest.raises(GraphError, match="smallest = -1"):
        ResidualOptions(smallest=-1)


def test_each_layer_has_its_threshold() -> None:
    plan = residual(two_layers())
    assert plan.thresholds({"conv2d_1": 0.25}).tolist() == [0, 0.25]
    with pytest.raises(GraphError, match="there is no threshold 'conv'; .*conv2d"):
        plan.thresholds({"conv": 1.0})
    with pytest.raises(GraphError, match="the threshold of 'conv2d' is -1"):
        plan.thresholds(-1.0)


def test_the_result_is_a_graph_like_others() -> None:
    plan = residual(two_layers())
    arrays = {name: constant.array for name, constant in plan.module.constants.items()}
    again = graph_from_json(graph_to_json(plan.module), arrays)
    assert str(again) == str(plan.module)
    assert set(again.functions) == {"dense", "first", "main"}


def test_layers_that_read_one_value_share_its_changes() -> None:
    b = GraphBuilder("main")
    x = b.input("x", (1, 2, 4, 4))
    w = b.constant("w", np.ones((2, 2, 1, 1), "float32"))
    v = b.constant("v", np.ones((2, 2, 3, 3), "float32"))
    plan = residual(b.build(b.conv2d(x, w) + b.conv2d(x, v, padding=(1, 1))))
    assert [p.name for p in plan.points] == ["conv2d"]
    assert [k.role for k in plan.kept] == ["input", "sum", "sum"]


def test_graphs_that_cannot_be_residual_are_refused() -> None:
    b = GraphBuilder("main")
    with pytest.raises(GraphError, match="no linear layer with constant weights"):
        residual(b.build(b.relu(b.input("x", (1, 4)))))
    b = GraphBuilder("main")
    with pytest.raises(GraphError, match=r"takes one frame.*main takes \(x: float32\[4\], y: float32\[4\]\)"):
        residual(b.build(b.input("x", (4,)) + b.input("y", (4,))))
    with pytest.raises(GraphError, match="rule = 'propagate'"):
        ResidualOptions(rule="propagate")
