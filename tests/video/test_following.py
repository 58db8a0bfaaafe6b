"""Changes that are followed by lists of pixels give what the residual graph gives, in place and from any state."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_videos import RandomNetwork
from stream_network import frames_of, two_branches

from searchlab.errors import GraphError
from searchlab.graph import evaluate_graph
from searchlab.ir.bfloat16 import from_bits, to_bits
from searchlab.ir.interpret import interpret
from searchlab.targets import parse
from searchlab.video import ResidualModel, ResidualOptions, Stream, StreamOptions, relative_error, residual
from searchlab.video.change_programs import packed_weight, pairs_program, tile_pairs
from searchlab.video.following import HeldState
from searchlab.video.front import LayerStep, MapStep, PoolStep, front_of
from searchlab.video.product_formats import HALVES, STEPPED, ProductFormat
from searchlab.video.window_geometry import MapShape, WindowGeometry

OPTIONS = {"threads": 1}


@cache
def branches(granularity: str) -> tuple[ResidualModel, ResidualModel]:
    made = (ResidualOptions(kernel=kernel, granularity=granularity) for kernel in ("skip", "whole"))
    followed, whole = (ResidualModel(two_branches(), options, options=OPTIONS) for options in made)
    assert followed.following is not None and whole.following is None
    return followed, whole


def test_a_front_reaches_to_the_classifier() -> None:
    front = front_of(residual(two_branches(), ResidualOptions(kernel="skip")))
    assert front is not None
    kinds = [type(s) for s in front.steps]
    assert kinds == [LayerStep, PoolStep, LayerStep, LayerStep, LayerStep, MapStep, PoolStep]
    assert front.kept == ("reshape", "linear") and len(front.outputs) == 1 and front.tail is not None


@pytest.mark.parametrize("granularity", ["pixel", "element"])
@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), threshold=st.sampled_from([0.0, 0.02, 0.1]))
def test_it_gives_what_the_graph_gives(granularity: str, seed: int, threshold: float) -> None:
    followed, whole = branches(granularity)
    rng = np.random.default_rng(seed)
    frames = frames_of(rng, 4, (1, 3, 12, 12))
    # Layers of the tail are computed as a whole: no threshold applies to them.
    given = {name: threshold for name in followed.plan.thresholded if name != "linear"}
    thresholds = followed.plan.thresholds(given)
    _, state = followed.first(frames[0])
    other = state
    for frame in frames[1:]:
        output, counts, state = followed.step(frame, thresholds, state)
        wanted, numbers, other = whole.step(frame, thresholds, other)
        assert relative_error(output, wanted) < 1e-4
        for a, b in zip(state, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        points = len(followed.plan.points)
        for number, name in ((n, p.name) for n, p in enumerate(followed.plan.points)):
            if name != "linear":  # rounding may decide about a change that is as large as the threshold
                assert abs(counts[number].sum() - numbers[number].sum()) <= 0.1 * numbers[number].sum() + 4
        assert all(float(n[0]) >= 0 for n in counts[points:])


@settings(max_examples=12)
@given(data=st.data(), threshold=st.sampled_from([0.0, 0.05]))
def test_random_networks(data: st.DataObject, threshold: float) -> None:
    network = RandomNetwork(lambda low, high: data.draw(st.integers(low, high)))
    module = network.module(data.draw(st.integers(1, 4)))
    model = ResidualModel(module, ResidualOptions(kernel="skip", granularity="pixel"), options=OPTIONS)
    frames = frames_of(np.random.default_rng(data.draw(st.integers(0, 99))), 3, (1, 3, 8, 8))
    stream = Stream(model, 0.0, StreamOptions(cut=None))
    for frame in frames:
        assert relative_error(stream.frame(frame), evaluate_graph(module, frame)) < 1e-4
    again = Stream(model, threshold, StreamOptions(cut=None, compare=True))
    for frame in frames:
        again.frame(frame)
    assert again.account is not None and again.account.errors["output"] < 1.0


@pytest.mark.parametrize("block", [2, 4, "row"])
def test_blocks_are_passed_on_together(block: int | str) -> None:
    options = ResidualOptions(kernel="skip", granularity="pixel", block=block)
    model = ResidualModel(two_branches(), options, options=OPTIONS)
    before = np.zeros((1, 3, 12, 12), np.float32)
    after = before.copy()
    after[0, 1, 5, 6] = 1.0
    after[0, 2, 6, 6] = 0.01  # below the threshold
    _, state = model.first(before)
    *_, state = model.step(after, model.plan.thresholds(0.1), state)
    seen = state[model.plan.points[0].slot]
    height, width = (1, 12) if block == "row" else (block, block)
    assert (seen[0, 2, 6, 6] == np.float32(0.02)) == (5 // height == 6 // height and 6 // width == 6 // width)
    assert seen[0, 1, 5, 6] == 1.0
    output, _, _ = model.step(after, model.plan.thresholds(0.0), state)
    assert relative_error(output, evaluate_graph(two_branches(), after)) < 1e-5


def test_blocks_of_other_ways_are_refused() -> None:
    with pytest.raises(GraphError, match="at least 1, or 'row'"):
        ResidualOptions(kernel="skip", block="column")
    with pytest.raises(GraphError, match="takes kernel = 'skip'"):
        ResidualOptions(block=4)
    with pytest.raises(GraphError, match="products = 'bfloat16' takes kernel = 'skip'"):
        ResidualOptions(products="bfloat16")
    with pytest.raises(GraphError, match="did you mean 'bfloat16'"):
        ResidualOptions(products="bfloat")


@pytest.mark.parametrize(("products", "format", "most"), [("bfloat16", HALVES, 5e-3), ("int16", STEPPED, 1e-3)])
@pytest.mark.parametrize("cpu", ["native", "x86-64-v3"])
def test_products_of_fewer_bits_lose_little_and_nothing_adds_up(
    cpu: str, products: str, format: ProductFormat, most: float
) -> None:
    """What rounding leaves of a change is part of a later one, and that of weights is of all changes together."""
    target = parse(cpu).with_threads(1)
    options = ResidualOptions(kernel="skip", granularity="pixel", products=products)
    half, whole = (ResidualModel(two_branches(), o, target) for o in (options, replace(options, products="float32")))
    assert (
        half.following is not None and list(half.following.programs.formats.values()).count(format) == 1
    )  # neither the frame nor channels by themselves
    streams = [Stream(m, 0.0, StreamOptions(cut=None)) for m in (half, whole)]
    errors, rounded = [], False
    for frame in frames_of(np.random.default_rng(5), 60, (1, 3, 12, 12)):
        narrow, wide = (s.frame(frame) for s in streams)
        errors.append(relative_error(narrow, whole.dense(frame)))
        rounded |= not np.array_equal(narrow, wide)
    assert rounded and max(errors) < most
    assert np.mean(errors[40:]) < 4 * np.mean(errors[5:20]) + 1e-4


def test_programs_of_bfloat16_are_those_of_numpy() -> None:
    target = parse("x86-64-v3").with_threads(1)
    rng = np.random.default_rng(0)
    inputs, outputs, taps, pixels = 6, 8, 3, 5
    program, group = pairs_program(inputs, outputs, target, HALVES), tile_pairs(outputs, target)
    weight = rng.normal(0, 1, (outputs, inputs, taps)).astype(np.float32)
    change = to_bits(rng.normal(0, 1, (pixels + 1, inputs)).astype(np.float32))
    source, place = (rng.integers(0, pixels, (4, group)).astype(np.int32) for _ in range(2))
    place[:] = [rng.permutation(pixels)[:group] for _ in range(4)]
    tap, before = np.array([0, 2, 1, 0], np.int32), rng.normal(0, 1, (pixels + 1, outputs)).astype(np.float32)
    number, wanted = np.array([3], np.int32), before.astype(float)
    rounded = from_bits(to_bits(weight))
    for g in range(3):
        wanted[place[g]] += from_bits(change)[source[g]] @ rounded[:, :, tap[g]].T
    packed = np.ascontiguousarray(packed_weight(weight, target, HALVES))
    given = {"number": number, "source": source, "place": place, "tap": tap, "change": change, "weight": packed}
    sizes = {"rows": pixels + 1, "places": pixels + 1, "groups": 4, "taps": taps}
    found = interpret(program, {**given, "sums": before.copy()}, sizes)
    np.testing.assert_allclose(found["sums"], wanted, rtol=1e-5, atol=1e-5)


def test_a_state_is_changed_in_place_and_thresholds_may_change() -> None:
    followed, _ = branches("pixel")
    frames = frames_of(np.random.default_rng(0), 3, (1, 3, 12, 12))
    _, first = followed.first(frames[0])
    kept = [a.copy() for a in first]
    high = followed.plan.thresholds({n: 10.0 for n in followed.plan.thresholded})
    _, counts, state = followed.step(frames[1], high, first)
    assert isinstance(state, HeldState) and not any(c.any() for c in counts[: len(followed.plan.points) - 1])
    for a, b in zip(first, kept, strict=True):
        np.testing.assert_array_equal(a, b)  # what is not a state of its own is copied
    sums = state[followed.plan.layers[0].slot]
    # Nothing in the frame changes any more, but by now the changes exceed the threshold.
    output, _, after = followed.step(frames[1], followed.plan.thresholds(0.0), state)
    assert np.shares_memory(after[followed.plan.layers[0].slot], sums)
    assert relative_error(output, evaluate_graph(two_branches(), frames[1])) < 1e-5


def test_streams_are_independent_and_resumed(tmp_path) -> None:
    followed, _ = branches("pixel")
    rng = np.random.default_rng(3)
    frames = frames_of(rng, 6, (1, 3, 12, 12))
    one, other = (Stream(followed, 0.02, StreamOptions(cut=None)) for _ in range(2))
    for frame in frames[:4]:
        one.frame(frame)
        other.frame(frame[:, ::-1])
    one.save(tmp_path / "stream.npz")
    resumed = Stream.resumed(followed, tmp_path / "stream.npz", StreamOptions(cut=None))
    for frame in frames[4:]:
        np.testing.assert_array_equal(resumed.frame(frame), one.frame(frame))


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v2"])
def test_other_vectors(cpu: str) -> None:
    target = parse(cpu).with_threads(1)
    model = ResidualModel(two_branches(), ResidualOptions(kernel="skip"), target)
    frames = frames_of(np.random.default_rng(4), 3, (1, 3, 12, 12))
    stream = Stream(model, 0.0, StreamOptions(cut=None))
    for frame in frames:
        assert relative_error(stream.frame(frame), evaluate_graph(two_branches(), frame)) < 1e-5


@given(
    sides=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 1), st.integers(0, 1)),
)
def test_windows_and_what_reaches_them_agree(
    sides: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]
) -> None:
    made = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(sides, padding, kernel, stride, strict=True)]
    if min(made) < 1:
        return
    geometry = WindowGeometry(MapShape(1, *sides), MapShape(1, *made), kernel, stride, padding)
    image = np.arange(sides[0] * sides[1]).reshape(sides)
    padded = np.pad(image, [(p, p) for p in padding], constant_values=image.size)
    windows, (down, across) = geometry.windows(), geometry.reaching
    for place, (h, w) in enumerate(np.ndindex(*made)):
        top, left = h * stride[0], w * stride[1]
        np.testing.assert_array_equal(
            windows[place], padded[top : top + kernel[0], left : left + kernel[1]].reshape(-1)
        )
    for tap, pixel in np.ndindex(geometry.taps, image.size):
        (places,) = np.nonzero(windows[:, tap] == pixel)
        (i, j), (y, x) = divmod(tap, kernel[1]), divmod(pixel, sides[1])
        assert list(places) == ([down[i, y] + across[j, x]] if min(down[i, y], across[j, x]) >= 0 else [])
