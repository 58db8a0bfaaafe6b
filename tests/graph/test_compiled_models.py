"""Compiled models compute what the interpreter does, at every size."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import RandomGraph, random_arrays

from searchlab.errors import GraphError
from searchlab.graph import GraphBuilder, GraphModule, compile, evaluate_graph, split_by_size, tensor
from searchlab.ir import size

n, m = size("n"), size("m")


def close(got: object, want: object, tolerance: float = 1e-4) -> None:
    got, want = (x if isinstance(x, tuple) else (x,) for x in (got, want))
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def classifier() -> GraphModule:
    rng = np.random.default_rng(0)
    b = GraphBuilder("main", ranges={n: (1, 64)})
    x = b.input("x", (n, 24))
    w1 = b.constant("w1", rng.uniform(-1, 1, (16, 24)).astype("float32"))
    w2 = b.constant("w2", rng.uniform(-1, 1, (10, 16)).astype("float32"))
    h = b.relu(b.linear(x, w1, b.constant("b1", np.ones(16, "float32"))))
    return b.build(b.softmax(b.linear(h, w2) * 0.1))


def test_a_classifier_at_several_sizes() -> None:
    module = classifier()
    model = compile(module)
    for count in (1, 3, 64):
        x = np.random.default_rng(count).uniform(-1, 1, (count, 24)).astype("float32")
        close(model(x), evaluate_graph(module, x))


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (np.ones((65, 24), "float32"), "main: x: n = 65 is out of its range, 1 <= n <= 64"),
        (np.ones((0, 24), "float32"), "main: x: n = 0 is out of its range, 1 <= n <= 64"),
        (np.ones((3, 23), "float32"), "main: x: extent 1 is 23, expected 24"),
        (np.ones((3, 24)), "main: x holds float64, expected float32"),
        (np.ones(24, "float32"), "main: x has 1 axes, expected 2"),
        (np.ones((3, 24), "complex64"), "main: x: an array of complex64, expected float32[n, 24]"),
        ("x", "main: x: expected float32[n, 24] as an array of numpy or torch, or with __dlpack__; got str"),
    ],
)
def test_wrong_arguments(x: object, text: str) -> None:
    model = compile(classifier())
    with pytest.raises(GraphError) as e:
        model(x)
    assert str(e.value) == text
    with pytest.raises(GraphError, match=r"main takes \(x\), got 2 values"):
        model(x, x)


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_random_graphs(data: st.DataObject) -> None:
    symbolic = data.draw(st.booleans())
    draw = RandomGraph(lambda low, high: data.draw(st.integers(low, high)), symbolic)
    module = draw.module(data.draw(st.integers(1, 4)))
    model = compile(module)
    for sizes in ({"n": 3, "m": 4}, {"n": 1, "m": 2}, {"n": 8, "m": 5}) if symbolic else ({},):
        arrays = random_arrays(module, 0, **sizes)
        close(model["main"].observed(*arrays, poison=True).result, evaluate_graph(module, *arrays))


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(-3, 2),
    st.sampled_from(["int64", "int32"]),
    st.sampled_from(["float32", "float64", "int8"]),
    st.data(),
)
@settings(max_examples=30)
def test_lookups(shape: list[int], axis: int, integers: str, dtype: str, data: st.DataObject) -> None:
    axis = axis % len(shape) - (len(shape) if axis < 0 else 0)
    b = GraphBuilder("main", ranges={n: (1, 8)})
    module = b.build(b.take(b.input("x", shape, dtype), b.input("at", (2, n), integers), axis=axis))
    model, extent = compile(module), shape[axis]
    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    count = data.draw(st.integers(1, 3))
    at = np.array(data.draw(st.lists(st.integers(-extent, extent - 1), min_size=2 * count, max_size=2 * count)))
    at = at.astype(integers).reshape(2, count)
    assert np.array_equal(model(x, at), np.take(x, at, axis))
    at[1, -1] = data.draw(st.sampled_from([extent, -extent - 1, 1000]))
    with pytest.raises(GraphError, match=rf"index = {at[1, -1]} is out of its range, -{extent} <= index < {extent}$"):
        model(x, at)


def test_a_lookup_whose_result_is_stated_wrongly() -> None:
    b = GraphBuilder("main")
    x, at = b.input("x", (4, 3)), b.input("at", (2,), "int64")
    model = compile(b.build(b.call_library("take", x, at, out=tensor((1, 3)))))
    with pytest.raises(GraphError, match="bytes of the result is 12, expected 24"):
        model(np.ones((4, 3), "float32"), np.array([0, 1]))


def test_a_lookup_that_casts_is_left_to_numpy() -> None:
    b = GraphBuilder("main")
    x, at = b.input("x", (4, 3)), b.input("at", (2,), "int64")
    model = compile(b.build(b.call_library("take", x, at, out=tensor((2, 3), "float64"))))
    given = np.arange(12, dtype="float32").reshape(4, 3)
    with pytest.raises(GraphError, match="take"):  # by numpy, which refuses the cast
        model(given, np.array([0, 1]))


def test_a_branch_between_halves() -> None:
    """Each half has its own memory; what they return is used after the branch as well."""
    module = split_by_size(classifier(), n, 16)
    b = GraphBuilder("outer", module=module, ranges={n: (1, 64)})
    x = b.input("x", (n, 24))
    module = b.build(b.relu(b.call("main", x)) + 1.0, b.call("main", x))
    model = compile(module)
    for count in (1, 15, 16, 64):
        x = np.random.default_rng(count).uniform(-1, 1, (count, 24)).astype("float32")
        close(model["outer"].observed(x, poison=True).result, evaluate_graph(module, x, function="outer"))
    assert [c.callee for c in model.profile(x).calls].count("softmax") == 1  # equal calls are shared
