"""Activations of a few bits: whole steps, changes that are exactly zero, and more of these the fewer bits there are."""

from __future__ import annotations

import numpy as np
import pytest
from stream_network import make

from searchlab.errors import GraphError
from searchlab.graph import evaluate_graph
from searchlab.video import ClipOptions, ResidualModel, Stream, StreamOptions, made_clip, relative_error
from searchlab.video.quantised import Steps, quantised, rounded_weights

ONE = {"threads": 1}


def frames(count: int = 6) -> np.ndarray:
    return made_clip(ClipOptions(count, 24, 24, noise=0.005), np.random.default_rng(3))


def density(bits: int) -> float:
    clip = frames()
    module = quantised(make(), bits, clip[:2, None], 1 if bits == 1 else None, ONE)
    stream = Stream(ResidualModel(module, options=ONE), 0.0, StreamOptions(cut=None))
    found = []
    for frame in clip:
        output = stream.frame(frame)
        assert relative_error(output, evaluate_graph(module, frame[None])) < 1e-4
        assert stream.account is not None
        found.append(stream.account.density)
    return float(np.mean(found[1:]))


def test_fewer_bits_leave_fewer_changes() -> None:
    found = [density(bits) for bits in (8, 4, 1)]
    assert found[0] > found[1] > found[2] > 0 and found[2] < 0.25 * found[0]


def test_many_bits_are_nearly_the_network() -> None:
    clip = frames(2)
    module = quantised(make(), 10, clip[:, None], options=ONE)
    assert relative_error(evaluate_graph(module, clip[:1]), evaluate_graph(make(), clip[:1])) < 0.01


def test_steps() -> None:
    assert Steps.of(np.array([0.0, 5.1]), 8) == Steps(pytest.approx(0.02), 0, 255)
    assert Steps.of(np.array([-1.27, 0.3]), 8) == Steps(pytest.approx(0.01), -127, 127)
    assert Steps.of(np.array([-3.0, 1.0]), 1) == Steps(2.0, -1, 1)
    assert Steps.of(np.array([0.0, 1.0, 2.0]), 1) == Steps(2.0, 0, 1)


@pytest.mark.parametrize("bits", [1, 2, 5])
def test_weights_of_each_output_have_few_values(bits: int) -> None:
    weight = np.random.default_rng(0).normal(0, 1, (3, 40)).astype("float32")
    made = rounded_weights(weight, bits)
    assert all(len(np.unique(row)) <= max(2, 2**bits - 1) for row in made)
    if bits > 1:  # every weight is within half a step
        step = np.abs(weight).max(axis=1, keepdims=True) / (2 ** (bits - 1) - 1)
        assert np.all(np.abs(made - weight) <= step / 2 * 1.0001)
    assert np.allclose(rounded_weights(weight.T, bits, 1), made.T)


def test_bad_bits_are_refused() -> None:
    with pytest.raises(GraphError, match="bits = 0; 1 to 12"):
        quantised(make(), 0, frames(1)[:, None])
    with pytest.raises(GraphError, match="there are none"):
        quantised(make(), 4, [])
