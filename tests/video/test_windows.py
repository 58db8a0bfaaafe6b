"""Windows that changes reach: where they lie, the programs that compute them anew, and pools of activations."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stream_network import frames_of

from searchlab.backend import compile as compile_program
from searchlab.graph import GraphBuilder, GraphModule, evaluate_graph
from searchlab.ir.interpret import interpret
from searchlab.targets import CpuTarget, parse
from searchlab.video import ResidualModel, ResidualOptions, Stream, StreamOptions, relative_error
from searchlab.video.frame_calls import FrameCalls, PixelList
from searchlab.video.front import LayerStep, MapStep, PoolStep
from searchlab.video.pixel_values import PixelValue
from searchlab.video.window_geometry import MapShape, PaddedImage, ReachedPlaces, WindowGeometry
from searchlab.video.window_programs import WINDOWS, see_program, window_weight, windows_program

PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))


@st.composite
def geometries(draw: st.DrawFn, dilated: bool = True) -> WindowGeometry:
    kernel, stride = draw(PAIRS), draw(PAIRS)
    padding = tuple(draw(st.integers(0, k - 1)) for k in kernel)
    dilation = draw(PAIRS) if dilated else (1, 1)
    made = draw(st.tuples(st.integers(1, 6), st.integers(1, 6)))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    sides = [max(1, (m - 1) * s + n - 2 * p) for m, s, n, p in zip(made, stride, spans, padding, strict=True)]
    made = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(sides, padding, spans, stride, strict=True)]
    return WindowGeometry(MapShape(3, *sides), MapShape(8, *made), kernel, stride, padding, dilation)


def listed(pixels: np.ndarray, room: int) -> PixelList:
    found = PixelList.of(range(room))
    found.items[: len(pixels)], found.number[0] = pixels, len(pixels)
    return found


@given(geometry=geometries(), data=st.data())
def test_reached_places_are_those_whose_windows_hold_a_pixel(geometry: WindowGeometry, data: st.DataObject) -> None:
    count, places = geometry.given.pixels, geometry.made.pixels
    several = [sorted(data.draw(st.sets(st.integers(0, count - 1), max_size=5))) for _ in range(2)]
    made, groups, calls = PixelList.of(range(places), group=WINDOWS), np.zeros(1, np.int32), FrameCalls()
    calls.reached([listed(np.array(p, np.int32), count) for p in several], geometry.reach, made, groups)
    wanted = np.flatnonzero(np.isin(geometry.windows(), several[0] + several[1]).any(axis=1))
    for _ in range(2):  # flags are taken back
        calls()
        np.testing.assert_array_equal(made.items[: made.number[0]], wanted)
        filled = made.grouped[: groups[0]].reshape(-1)
        assert groups[0] == -(-len(wanted) // WINDOWS) and set(filled[len(wanted) :]) <= {places}


@pytest.mark.parametrize("block", [1, 2, 3, "row"])
def test_blocks_reach_themselves(block: int | str) -> None:
    shape = MapShape(1, 5, 7)
    reach = ReachedPlaces.block(shape, block)
    height, width = (1, 7) if block == "row" else (block, block)
    rows, columns = np.divmod(np.arange(shape.pixels), shape.width)
    for pixel in range(shape.pixels):
        found = (reach.lines[rows[pixel]][:, None] + reach.columns[columns[pixel]]).reshape(-1)
        same = (rows // height == rows[pixel] // height) & (columns // width == columns[pixel] // width)
        assert sorted(n for n in found if n < shape.pixels) == list(np.flatnonzero(same))


def identity(channels: int) -> PixelValue:
    return PixelValue(channels, ("frame",), ("float32",), lambda x: x, planar=True)


@given(geometry=geometries(dilated=False), seed=st.integers(0, 10**6), by_element=st.booleans())
def test_seen_pixels_are_in_the_padded_image(geometry: WindowGeometry, seed: int, by_element: bool) -> None:
    rng, image = np.random.default_rng(seed), PaddedImage(geometry)
    channels, pixels = geometry.given.channels, geometry.given.pixels
    frame, before = (rng.normal(0, 1, (channels, pixels)).astype(np.float32) for _ in range(2))
    before[:, 0] = frame[:, 0]
    frame[0, -1] = np.nan  # not a number is not hidden
    active = rng.permutation(pixels)[: rng.integers(0, pixels + 1)].astype(np.int32)
    program = see_program(identity(channels), image, by_element)
    rows = listed(active, pixels)
    given = {"pixels": rows.items, "pixels_number": rows.number, "threshold": np.full(1, 0.5, np.float32)}
    given |= {"map0": frame, "inside": image.inside()[:pixels], "seen": before.copy(), "padded": image.filled(before)}
    found = interpret(program, given, {"rows": pixels, "entries": pixels + 1})
    limit = 0.5 if by_element else 0.0
    passed = np.zeros((channels, pixels), bool)
    passed[:, active] = ~(np.abs(frame - before)[:, active] <= limit)
    wanted = np.where(passed, frame, before)
    np.testing.assert_array_equal(found["seen"], wanted)
    np.testing.assert_array_equal(found["padded"], image.filled(wanted))
    np.testing.assert_array_equal(found["changed"], passed.sum(axis=1))


def convolved(geometry: WindowGeometry, weight: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """Every place of a convolution, (places, outputs), in double precision."""
    padded = np.append(frame.astype(float), np.zeros((len(frame), 1)), axis=1)
    windows = padded[:, geometry.windows()]  # channels, places, taps
    return np.einsum("cpt,oct->po", windows, weight.reshape(*weight.shape[:2], -1).astype(float))


@cache
def target_of(name: str) -> CpuTarget:
    return replace(parse(name), cores=2, threads=2)


@given(geometry=geometries(dilated=False), seed=st.integers(0, 10**6), cpu=st.sampled_from(["native", "x86-64-v3"]))
def test_windows_are_computed_anew(geometry: WindowGeometry, seed: int, cpu: str) -> None:
    rng, image, target = np.random.default_rng(seed), PaddedImage(geometry), target_of(cpu)
    outputs, places = geometry.made.channels, geometry.made.pixels
    weight = rng.normal(0, 1, (outputs, geometry.given.channels, *geometry.kernel)).astype(np.float32)
    frame = rng.normal(0, 1, (geometry.given.channels, geometry.given.pixels)).astype(np.float32)
    bias, before = (rng.normal(0, 1, shape).astype(np.float32) for shape in (outputs, (places + 1, outputs)))
    chosen = np.sort(rng.permutation(places)[: rng.integers(0, places + 1)]).astype(np.int32)
    groups = -(-len(chosen) // WINDOWS)
    place = np.full((places // WINDOWS + 1, WINDOWS), places, np.int32)
    place.reshape(-1)[: len(chosen)] = chosen
    program = windows_program(image, outputs, target)
    given = {"number": np.array([groups], np.int32), "place": place, "corner": image.corners(), "bias": bias}
    given |= {"padded": image.filled(frame), "weight": window_weight(weight, target)}
    sizes = {"groups": len(place), "places": places + 1}
    by_interpreter = interpret(program, {**given, "sums": before.copy()}, sizes)["sums"]
    compiled = before.copy()
    calls = FrameCalls()
    calls.kernel(compile_program(program, target), given, {"sums": compiled})
    calls()
    wanted = before.astype(float)
    wanted[chosen] = (convolved(geometry, weight, frame) + bias)[chosen]
    for found in (by_interpreter, compiled):
        np.testing.assert_allclose(found[:-1], wanted[:-1], rtol=1e-4, atol=1e-4)


def pooled(activation: str, pool: str, padding: int, others: int) -> GraphModule:
    """A convolution, an activation and a pool of it, which others may read as well."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("main")
    x = b.input("x", (1, 3, 12, 12))
    h = b.conv2d(x, b.constant("w", rng.normal(0, 1, (8, 3, 3, 3)).astype("float32")), padding=(1, 1))
    h = b.op(activation, h) if activation else h
    made = b.op(pool, h, kernel=(3, 3), stride=(2, 2), padding=(padding, padding))
    last = b.constant("v", rng.normal(0, 1, (4, 8, 1, 1)).astype("float32"))
    results = [b.conv2d(made, last)]
    results += [b.op(pool, h, kernel=(2, 2), stride=(2, 2), padding=(0, 0)) for _ in range(others)]
    return b.build(*results) if others else b.build(results[0])


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize(("activation", "pool"), [
    ("relu", "max_pool2d"), ("tanh", "max_pool2d"), ("neg", "max_pool2d"), ("", "max_pool2d"),
    ("relu", "avg_pool2d"), ("", "avg_pool2d"),
])  # fmt: skip
def test_pools_of_activations(activation: str, pool: str, padding: int, others: int) -> None:
    module = pooled(activation, pool, padding, others)
    options = ResidualOptions(kernel="skip", granularity="pixel")
    model = ResidualModel(module, options, options={"threads": 1})
    assert model.following is not None
    kinds = [type(s) for s in model.following.front.steps]
    if (activation, pool, others) == ("relu", "max_pool2d", 0):
        assert kinds == [LayerStep, PoolStep, LayerStep]  # no map of the activation
    if (activation, pool, others) == ("tanh", "max_pool2d", 0):
        assert kinds == [LayerStep, MapStep, PoolStep, LayerStep]
    stream = Stream(model, 0.0, StreamOptions(cut=None))
    for frame in frames_of(np.random.default_rng(1), 3, (1, 3, 12, 12)):
        assert relative_error(stream.frame(frame), evaluate_graph(module, frame)) < 1e-5


def test_sums_of_windows_do_not_drift() -> None:
    """Sums of the first layer depend on what was seen alone, so they are the same bits on any way there."""
    module = pooled("relu", "max_pool2d", 1, 0)
    model = ResidualModel(module, ResidualOptions(kernel="skip", granularity="pixel"), options={"threads": 1})
    rng = np.random.default_rng(2)
    *frames, last = frames_of(rng, 40, (1, 3, 12, 12))
    other = rng.normal(0, 1, last.shape).astype(np.float32)  # every pixel of it changes
    thresholds, (_, state) = model.plan.thresholds(0.0), model.first(frames[0])
    for frame in [*frames, other, last]:
        *_, state = model.step(frame, thresholds, state)
    _, direct = model.first(other)
    *_, direct = model.step(last, thresholds, direct)
    slot = model.plan.layers[0].slot
    np.testing.assert_array_equal(state[slot], direct[slot])
