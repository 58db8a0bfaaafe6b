"""Maps in bands of rows, each of which one thread computes: the same results as without, whatever lies across bands."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_network import frames_of

from searchlab.graph import GraphBuilder, GraphModule, evaluate_graph
from searchlab.targets import CpuTarget, parse
from searchlab.video import ResidualModel, ResidualOptions, Stream, StreamOptions, relative_error
from searchlab.video.front_programs import BAND_ROWS, BANDS
from searchlab.video.quantised import quantised
from searchlab.video.window_geometry import MapShape, WindowGeometry

SIDE = 2 * BANDS * BAND_ROWS
SHAPE = (1, 3, SIDE, SIDE)
PIXELS = ResidualOptions(kernel="skip", granularity="pixel")


def threads(count: int, cpu: str = "native") -> CpuTarget:
    return replace(parse(cpu), cores=2, threads=count)


@cache
def network() -> GraphModule:
    """Strides, pools and branches over maps of eight bands, of four, and of none."""
    rng = np.random.default_rng(1)
    b = GraphBuilder("main")

    def conv(x, outputs, inputs, kernel, **attributes):
        name = f"w{rng.integers(1 << 30)}"
        weight = rng.normal(0, (2 / (inputs * kernel**2)) ** 0.5, (outputs, inputs, kernel, kernel))
        bias = b.constant(f"{name}_bias", rng.normal(0, 0.1, outputs).astype("float32"))
        return b.conv2d(x, b.constant(name, weight.astype("float32")), bias, **attributes)

    h = b.relu(conv(b.input("x", SHAPE), 8, 3, 7, padding=(3, 3)))
    h = b.max_pool2d(h, kernel=(3, 3), stride=(2, 2), padding=(1, 1))
    h = b.relu(b.add(h, conv(b.relu(conv(h, 8, 8, 3, padding=(1, 1))), 8, 8, 3, padding=(2, 2), dilation=(2, 2))))
    left = b.relu(conv(h, 16, 8, 3, stride=(2, 2), padding=(1, 1)))
    h = b.relu(b.add(conv(left, 16, 16, 3, padding=(1, 1)), conv(h, 16, 8, 1, stride=(2, 2))))
    h = conv(h, 6, 16, 3, padding=(1, 1))
    return b.build(conv(h, 6, 6, 5, padding=(2, 2)))


@cache
def model(count: int, options: ResidualOptions = PIXELS) -> ResidualModel:
    return ResidualModel(network(), options, threads(count))


def test_maps_have_bands_where_there_are_rows_enough() -> None:
    following, alone = model(2).following, model(1).following
    assert following is not None and alone is not None
    counts, shapes = following.programs.bands, following.front.shapes
    assert {shapes[name].height: count for name, count in counts.items()} == {SIDE: 8, SIDE // 2: 4, SIDE // 4: 1}
    assert set(alone.programs.bands.values()) == {1}


@given(height=st.integers(1, 40), width=st.integers(1, 5), count=st.integers(1, 8))
def test_bands_are_all_of_a_map(height: int, width: int, count: int) -> None:
    bands = MapShape(1, height, width).bands(count)
    assert len(bands) == count and [p for band in bands for p in band] == list(range(height * width))


@given(
    height=st.integers(1, 12),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    data=st.data(),
)
def test_what_reaches_a_band(height: int, kernel: int, stride: int, padding: int, data: st.DataObject) -> None:
    made = (height + 2 * padding - kernel) // stride + 1
    if made < 1 or height + 2 * padding < kernel:
        return
    given, out = MapShape(1, height, 3), MapShape(1, made, 3)
    geometry = WindowGeometry(given, out, (kernel, 1), (stride, 1), (padding, 0))
    band = data.draw(st.sampled_from(out.bands(data.draw(st.integers(1, made)))))
    held = {p for p in geometry.windows()[list(band)].reshape(-1).tolist() if p < given.pixels}
    assert held <= set(geometry.sources(band))
    restricted = geometry.reach.within(band)
    for pixel in range(given.pixels):
        y, x = divmod(pixel, given.width)
        places = (restricted.lines[y][:, None] + restricted.columns[x]).reshape(-1)
        wanted = {p for p in band if pixel in geometry.windows()[p]}
        assert {p for p in places.tolist() if p < out.pixels} == wanted


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), patch=st.integers(1, SIDE), where=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_all_threads_give_what_one_gives(seed: int, patch: int, where: tuple[float, float]) -> None:
    """Changes on whatever side of a band's edge give the same results by one thread or two."""
    rng = np.random.default_rng(seed)
    y, x = (int(share * (SIDE - patch)) for share in where)
    frames = [rng.random(SHAPE, np.float32)]
    for _ in range(2):
        after = frames[-1].copy()
        after[..., y : y + patch, x : x + patch] += rng.normal(0, 0.2, (1, 3, patch, patch)).astype(np.float32)
        frames.append(after)
    for threshold in (0.0, 0.1):
        streams = [Stream(model(count), threshold, StreamOptions(cut=None)) for count in (1, 2)]
        for frame in frames:
            one, two = (stream.frame(frame) for stream in streams)
            assert relative_error(two, one) < 1e-5
            if not threshold:
                assert relative_error(two, evaluate_graph(network(), frame)) < 1e-5
        counts = [[layer.density for layer in stream.account.layers] for stream in streams]
        np.testing.assert_allclose(counts[1], counts[0], rtol=1e-2, atol=1e-4)
        for stream in streams:
            stream.close()


@pytest.mark.parametrize("cpu", ["native", "x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize("products", ["float32", "bfloat16", "int16"])
def test_bands_in_other_formats(cpu: str, products: str) -> None:
    made = ResidualModel(network(), replace(PIXELS, products=products), threads(2, cpu))
    stream = Stream(made, 0.0, StreamOptions(cut=None))
    for frame in frames_of(np.random.default_rng(2), 3, SHAPE):
        assert relative_error(stream.frame(frame), made.dense(frame)) < {"float32": 1e-5}.get(products, 5e-3)


@pytest.mark.parametrize(
    "options",
    [replace(PIXELS, block=3), replace(PIXELS, block="row"), replace(PIXELS, granularity="element")],
)
def test_blocks_lie_across_bands(options: ResidualOptions) -> None:
    frames = frames_of(np.random.default_rng(3), 3, SHAPE)
    states = []
    for count in (1, 2):
        _, state = model(count, options).first(frames[0])
        for frame in frames[1:]:
            *_, state = model(count, options).step(frame, model(count, options).plan.thresholds(0.1), state)
        states.append(state)
    for one, two in zip(*states, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-5)


def test_bytes_in_bands_give_the_same_bits() -> None:
    frames = frames_of(np.random.default_rng(4), 4, SHAPE)
    whole = quantised(network(), 8, frames[:2], options={"threads": 1}, integers=True)
    made = ResidualModel(whole, PIXELS, threads(2))
    assert made.following is not None and max(made.following.programs.bands.values()) == 8
    stream = Stream(made, 0.0, StreamOptions(cut=None))
    for frame in frames:
        np.testing.assert_array_equal(stream.frame(frame), made.dense(frame))


def test_times_of_steps_leave_results_as_they_are() -> None:
    plain, timed = (Stream(model(2), 0.05, StreamOptions(cut=None)) for _ in range(2))
    seconds: dict[str, float] = {}
    for frame in frames_of(np.random.default_rng(5), 4, SHAPE):
        np.testing.assert_array_equal(timed.frame(frame, seconds), plain.frame(frame))
    assert {*model(2).plan.skipping} < {*seconds} and min(seconds.values()) >= 0
