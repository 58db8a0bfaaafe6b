"""Streams of networks of bytes: sums of differences are exact, and outputs those of the whole network, bit by bit."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_videos import RandomNetwork, added, convolution, normalised, pooled
from stream_network import frames_of, two_branches

from searchlab.errors import GraphError
from searchlab.graph import evaluate_graph
from searchlab.ir.interpret import interpret
from searchlab.targets import Target, parse
from searchlab.video import ResidualModel, ResidualOptions, Stream, StreamOptions, product_formats, relative_error
from searchlab.video.change_programs import packed_weight, pairs_program, surplus_of, tile_pairs
from searchlab.video.product_formats import BYTES, FLOATS, STEPPED, WORDS, ProductFormat
from searchlab.video.quantised import quantised

SKIP = ResidualOptions(kernel="skip", granularity="pixel")
NEVER = StreamOptions(cut=None)
CPUS = ["native", "x86-64-v3", "x86-64-v2"]
EVERYWHERE = replace(BYTES, families=("avx2_u8s8",))  # bytes by instructions that all machines of tests have


def target_of(cpu: str) -> Target:
    return parse(cpu).with_threads(1)


def streaming(module, target: Target, options: ResidualOptions = SKIP) -> ResidualModel:
    model = ResidualModel(module, options, target)
    assert model.following is not None
    return model


@cache
def branches(options: ResidualOptions, cpu: str) -> ResidualModel:
    rng = np.random.default_rng(2)
    module = quantised(two_branches(), 8, frames_of(rng, 3, (1, 3, 12, 12)), options={"threads": 1}, integers=True)
    return streaming(module, target_of(cpu), options)


def busy_frames(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    """Frames of which some pixels change by more than a byte holds."""
    found = frames_of(rng, count, (1, 3, 12, 12))
    for number in range(1, count):
        found[number] = np.where(rng.random((1, 1, 12, 12)) < 0.1, rng.integers(0, 2, (1, 3, 1, 1)), found[number])
    return [f.astype(np.float32) for f in found]


@pytest.mark.parametrize(("cpu", "granularity"), [*((cpu, "pixel") for cpu in CPUS), ("native", "element")])
def test_outputs_are_those_of_the_whole_network(cpu: str, granularity: str) -> None:
    model = branches(replace(SKIP, granularity=granularity), cpu)
    stream = Stream(model, 0.0, NEVER)
    for frame in busy_frames(np.random.default_rng(0), 8):
        np.testing.assert_array_equal(stream.frame(frame), model.dense(frame))
        _, state = model.first(frame)
        for found, wanted in zip(stream.state, state, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_what_does_not_fit_a_byte_is_passed_on_in_two_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_formats, "BYTES", EVERYWHERE)
    frames = busy_frames(np.random.default_rng(1), 6)
    module = quantised(two_branches(), 8, frames, options={"threads": 1}, integers=True)
    model = streaming(module, target_of("x86-64-v3"))
    assert EVERYWHERE in model.following.programs.formats.values()
    stream, twice = Stream(model, 0.0, NEVER), 0
    for frame in frames:
        np.testing.assert_array_equal(stream.frame(frame), model.dense(frame))
        twice += int(stream.state.following.memory.groups[1].sum())
    assert twice > 0


@pytest.mark.parametrize("cpu", CPUS[:2])
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_random_networks(cpu: str, data: st.DataObject) -> None:
    check_random(cpu, data)


@pytest.mark.slow
@pytest.mark.parametrize("cpu", CPUS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_many_random_networks(cpu: str, data: st.DataObject) -> None:
    check_random(cpu, data)


def check_random(cpu: str, data: st.DataObject) -> None:
    """A stream gives the bits of a random network, and drops what is within a threshold."""
    network = RandomNetwork(lambda low, high: data.draw(st.integers(low, high)))
    network.values = [convolution(network, network.values[0])]  # sums of floats, as those of a frame, have an order
    module = network.module(data.draw(st.integers(0, 3)), [convolution, normalised, pooled, added])
    frames = frames_of(np.random.default_rng(data.draw(st.integers(0, 99))), 4, (1, 3, 8, 8))
    bits = data.draw(st.sampled_from([1, 2, 8]))
    whole = quantised(module, bits, frames[:2], bits, options={"threads": 1}, integers=True)
    assert bits < 8 or relative_error(evaluate_graph(whole, frames[0]), evaluate_graph(module, frames[0])) < 0.1
    model = streaming(whole, target_of(cpu))
    stream = Stream(model, 0.0, NEVER)
    for frame in frames:
        np.testing.assert_array_equal(stream.frame(frame), model.dense(frame))
    again = Stream(model, 3.0, StreamOptions(cut=None, compare=True))
    for frame in frames:
        again.frame(frame)
    assert again.account is not None and (bits < 8 or again.account.errors["output"] < 1.0)


def test_thresholds_are_steps_and_the_graph_says_the_same() -> None:
    """What is within a threshold stays unseen; the residual graph computes layers of what was seen."""
    model = branches(SKIP, "x86-64-v3")
    whole = ResidualModel(quantised_branches(), ResidualOptions(granularity="pixel"), options={"threads": 1})
    thresholds = model.plan.thresholds({name: 2.0 for name in model.plan.maps})
    frames = frames_of(np.random.default_rng(4), 5, (1, 3, 12, 12))
    _, state = model.first(frames[0])
    _, other = whole.first(frames[0])
    dropped = False
    for frame in frames[1:]:
        output, counts, state = model.step(frame, thresholds, state)
        wanted, numbers, other = whole.step(frame, thresholds, other)
        np.testing.assert_array_equal(output, wanted)
        for a, b in zip(state, other, strict=True):
            np.testing.assert_array_equal(a, b)
        for a, b, point in zip(counts, numbers, model.plan.points, strict=False):
            if point.name in model.plan.maps:
                np.testing.assert_array_equal(a, b)
        dropped |= not np.array_equal(output, model.dense(frame))
    assert dropped


def quantised_branches():
    frames = frames_of(np.random.default_rng(2), 3, (1, 3, 12, 12))
    return quantised(two_branches(), 8, frames, options={"threads": 1}, integers=True)


def test_a_stream_of_bytes_is_resumed(tmp_path: Path) -> None:
    model = branches(SKIP, "native")
    frames = busy_frames(np.random.default_rng(3), 6)
    stream = Stream(model, 1.0, NEVER)
    for frame in frames[:4]:
        stream.frame(frame)
    stream.save(tmp_path / "stream.npz")
    resumed = Stream.resumed(model, tmp_path / "stream.npz", NEVER)
    for frame in frames[4:]:
        np.testing.assert_array_equal(resumed.frame(frame), stream.frame(frame))


@pytest.mark.parametrize("form", [BYTES, EVERYWHERE, WORDS])
def test_programs_of_bytes_are_those_of_numpy(form: ProductFormat) -> None:
    target = target_of("x86-64-v3")
    rng = np.random.default_rng(0)
    inputs, outputs, taps, pixels = 6, 8, 3, 9
    program, group = pairs_program(inputs, outputs, target, form), tile_pairs(outputs, target)
    weight = rng.integers(-127, 128, (outputs, inputs, taps)).astype(np.int8)
    most = 128 if form.lift else 255
    change = rng.integers(-most, most, (pixels + 1, form.room(inputs)))
    source = rng.integers(0, pixels, (4, group)).astype(np.int32)
    place = np.array([rng.permutation(pixels)[:group] for _ in range(4)], np.int32)
    tap, before = np.array([0, 2, 1, 0], np.int32), rng.integers(-1000, 1000, (pixels + 1, outputs)).astype(np.int32)
    wanted = before.astype(np.int64)
    for g in range(3):
        wanted[place[g]] += change[source[g], :inputs] @ weight[:, :, tap[g]].T.astype(np.int64)
    given = {"number": np.array([3], np.int32), "source": source, "place": place, "tap": tap}
    given |= {"change": (change + form.lift).astype(form.change), "weight": packed_weight(weight, target, form)}
    given |= {"surplus": surplus_of(weight, form)} if form.lift else {}
    sizes = {"rows": pixels + 1, "places": pixels + 1, "groups": 4, "taps": taps}
    found = interpret(program, {**given, "sums": before.copy()}, sizes)
    np.testing.assert_array_equal(found["sums"], wanted)


def test_formats_suit_the_machine() -> None:
    options = {"channels": 8, "by_channel": False, "widths": [16], "products": "float32"}
    plain = product_formats.product_format("uint8", **options, target=parse("x86-64-v3"))
    assert plain == WORDS and WORDS.dot(16, parse("x86-64-v3")) == ("avx2_s16s16_8x2", 8)
    v4 = parse("x86-64-v4")
    vnni = replace(v4, features=v4.features + ",+avx512vnni")
    assert product_formats.product_format("int8", **options, target=vnni) == BYTES
    assert BYTES.dot(16, vnni) == ("vnni_u8s8_16x4", 16) and BYTES.dot(24, vnni) == ("vnni_u8s8_8x4", 8)
    assert product_formats.product_format("int8", **{**options, "by_channel": True}, target=vnni) == WORDS
    floats = {**options, "products": "int16"}
    assert product_formats.product_format("float32", **floats, target=vnni) == STEPPED
    assert product_formats.product_format("float32", **{**floats, "channels": 3}, target=vnni) == FLOATS


def test_networks_of_bytes_take_one_rule_and_eight_bits() -> None:
    with pytest.raises(GraphError, match="bits = 9; 1 to 8 is accepted"):
        quantised(two_branches(), 9, [np.zeros((1, 3, 12, 12), np.float32)], integers=True)
    with pytest.raises(GraphError, match="no linear layer"):
        ResidualModel(quantised_branches(), ResidualOptions("previous"))
