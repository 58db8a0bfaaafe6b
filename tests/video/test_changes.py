"""Layers on changes compute what layers on whole maps compute, where something changed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from searchlab.video.changes import conv2d_changes, linear_changes, reached, weight_columns
from searchlab.workloads import references


@given(st.data())
def test_convolutions(data: st.DataObject) -> None:
    draw = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    rng = np.random.default_rng(draw(0, 99))
    kernel, stride, dilation = ((draw(1, 3), draw(1, 3)) for _ in range(3))
    padding, groups, images = (draw(0, 2), draw(0, 2)), draw(1, 2), draw(1, 2)
    inner, outputs = draw(1, 3), groups * draw(1, 3)
    change = rng.standard_normal((images, inner * groups, draw(7, 10), draw(7, 10))).astype("float32")
    change *= rng.random((images, 1, *change.shape[2:])) < data.draw(st.sampled_from([0, 0.05, 0.5, 1]))
    weight = rng.standard_normal((outputs, inner, *kernel)).astype("float32")
    wanted = references.convolution(change.astype("float64"), weight, stride, padding, dilation, groups)
    before = rng.standard_normal(wanted.shape).astype("float32")
    after, computed = np.full_like(before, np.nan), np.zeros(1, "float32")
    active = change.any(axis=1, keepdims=True)
    limit = data.draw(st.sampled_from([0, 0.5, 1]))
    columns = weight_columns(weight, groups)
    conv2d_changes(
        np.ascontiguousarray(change.transpose(0, 2, 3, 1)), active, before, columns, after, computed,
        kernel=kernel, stride=stride, padding=padding, dilation=dilation, groups=groups, limit=limit,
    )  # fmt: skip
    assert np.allclose(after, before + wanted, atol=1e-4)
    needed = np.any(wanted != 0, axis=1).sum()
    assert needed <= computed[0] <= images * wanted.shape[2] * wanted.shape[3]
    if not change.any():
        assert computed[0] == 0


def test_what_is_reached() -> None:
    active = np.zeros((5, 6), bool)
    active[2, 2] = True
    assert np.argwhere(reached(active, (3, 1), (1, 1), (1, 1))).tolist() == [[0, 2], [1, 2], [2, 2]]
    assert np.argwhere(reached(active, (1, 2), (2, 2), (1, 1))).tolist() == [[1, 1]]
    assert np.argwhere(reached(active, (1, 3), (1, 1), (1, 2))).tolist() == [[2, 0]]


@given(st.integers(0, 99), st.sampled_from([0, 0.3, 1]))
def test_fully_connected_layers(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    change = (rng.standard_normal((2, 3, 8)) * (rng.random(8) < share)).astype("float32")
    weight, before = (rng.standard_normal(shape).astype("float32") for shape in ((8, 5), (2, 3, 5)))
    after, computed = np.full_like(before, np.nan), np.zeros(1, "float32")
    linear_changes(change, before, weight, after, computed)
    assert np.allclose(after, before + change @ weight, atol=1e-5)
    assert computed[0] == np.count_nonzero(change.any(axis=(0, 1)))
