"""The builder: what it writes, what it deduces on the way, and what it refuses."""

import numpy as np
import pytest

from searchlab.errors import GraphError
from searchlab.graph import (
    GraphBuilder,
    ObjectType,
    Scalar,
    ShapeType,
    TensorType,
    evaluate_graph,
    legalise,
    library,
    tensor,
    verify_graph,
)
from searchlab.ir import Builder, size

n, m = size("n"), size("m")


def mlp() -> GraphBuilder:
    b = GraphBuilder("main", ranges={n: (1, 64)})
    x = b.input("x", (n, 8))
    w = b.constant("w", np.arange(32, dtype="float32").reshape(4, 8) / 32)
    b.reshape(b.relu(b.linear(x, w)) * 2.0, shape=(-1, 2), name="pairs")
    return b


def test_annotations_are_deduced_where_calls_are_written() -> None:
    b = mlp()
    assert str(b.known("linear").annotation) == "float32[n, 4]"
    assert str(b.known("pairs").annotation) == "float32[n*2, 2]"
    module = b.build(b.known("pairs"))
    verify_graph(module)
    assert str(module["main"].returns) == "float32[n*2, 2]"


def test_text(golden) -> None:
    b = mlp()
    golden("graph/mlp.txt", str(legalise(b.build(b.known("pairs")), lambda call: call.callee != "relu")))


def test_text_of_all_kinds_of_calls(golden) -> None:
    norm = GraphBuilder("norm", ranges={n: (1, 8)})
    module = norm.build(norm.rms_norm(norm.input("x", (n, 8)), norm.constant("gamma", np.ones(8, "float32"))))
    b = GraphBuilder("main", module, ranges={n: (1, 8), m: (2, None)})
    ids = b.input("ids", (n,), "int64")
    b.input("sizes", ShapeType((m,)))
    x = b.call("norm", b.take(b.constant("table", np.ones((10, 8), "float32")), ids))
    q, k = b.reshape(x, shape=(n, 2, -1)), b.input("keys", TensorType(dtype="float32", rank=3))
    k = b.match_cast(k, (2, m, 4), name="known")
    scores = b.attention(b.permute(q, axes=(1, 0, 2)), k, k, b.lt(b.arange(stop=m), m - 1), scale=0.5)
    parts = b.split(b.permute(scores, axes=(1, 0, 2)), axis=1, lengths=(1, 1))
    module = b.build(parts[0] * 2.0, b.full(shape=(n,), value=m, dtype="int32"), parts[1])
    golden("graph/calls.txt", str(legalise(module, lambda call: call.callee in ("take", "mul", "full", "rms_norm"))))


def test_a_function_runs() -> None:
    b = mlp()
    module = b.build(b.known("pairs"))
    x = np.random.default_rng(0).random((3, 8), dtype="float32")
    wanted = np.maximum(x @ module.constants["w"].array.T, 0).reshape(-1, 2) * 2
    np.testing.assert_allclose(evaluate_graph(module, x), wanted, rtol=1e-6)
    np.testing.assert_allclose(evaluate_graph(legalise(module), x), wanted, rtol=1e-5)


def test_numbers_take_the_dtype_of_tensors() -> None:
    b = GraphBuilder()
    x = b.input("x", (n,), "int64")
    y = b.where(b.lt(x, 3), x, m * 0 + n)
    assert y.dtype == "int64"
    module = b.build(1 - y)
    np.testing.assert_array_equal(evaluate_graph(module, np.arange(5)), [1, 0, -1, -4, -4])
    np.testing.assert_array_equal(evaluate_graph(legalise(module), np.arange(5)), [1, 0, -1, -4, -4])


def test_programs_are_called_with_their_sizes() -> None:
    r, c = size("r"), size("c")
    made = Builder("add_rows")
    X, Y = made.input("X", (r, c)), made.input("Y", (r * 2, c))
    program = made.program(made.compute("Z", (r * 2, c), lambda i, j: X[i // 2, j] + Y[i, j]))
    b = GraphBuilder()
    x, y = b.input("x", (n, 3)), b.input("y", (n + n, 3))
    z = b.call_program(program, x, y)
    assert str(z.annotation) == "float32[n*2, 3]"
    module = b.build(z)
    verify_graph(module)
    x0, y0 = np.ones((2, 3), "float32"), np.ones((4, 3), "float32")
    np.testing.assert_array_equal(evaluate_graph(module, x0, y0), np.full((4, 3), 2))
    with pytest.raises(GraphError, match=r"main: add_rows: operand Y is float32\[n, 3\], expected float32\[n\*2, 3\]"):
        b.call_program("add_rows", x, x)


@library("test.unique")
def unique(x, out) -> None:
    out[: len(np.unique(x))] = np.unique(x)


def test_library_functions_write_what_they_are_given() -> None:
    b = GraphBuilder()
    x = b.input("x", (n,), "int64")
    module = b.build(b.call_library("test.unique", x, out=tensor((n,), "int64")))
    verify_graph(module)
    np.testing.assert_array_equal(evaluate_graph(module, np.array([3, 1, 3])), [1, 3, 99])
    with pytest.raises(GraphError, match="unknown library function 'test.uniqe'; did you mean 'test.unique'"):
        b.call_library("test.uniqe", x, out=tensor((n,), "int64"))


def test_match_cast_binds_symbols_and_is_checked() -> None:
    b = GraphBuilder(ranges={m: (1, 4)})
    x = b.input("x", TensorType(dtype="float32"))
    y = b.match_cast(x, (m, m * 2))
    module = b.build(y + 1.0)
    verify_graph(module)
    assert str(module["main"].returns) == "float32[?, ?]"  # m is known inside only
    assert evaluate_graph(module, np.zeros((2, 4), "float32")).shape == (2, 4)
    with pytest.raises(GraphError, match=r"match_cast.*the value is float32\[2, 3\], expected .* with m = 2"):
        evaluate_graph(module, np.zeros((2, 3), "float32"))
    with pytest.raises(GraphError, match="m = 5 is out of its range, 1 <= m <= 4"):
        evaluate_graph(module, np.zeros((5, 10), "float32"))


def test_functions_are_known_by_their_signature() -> None:
    half = GraphBuilder("half")
    x = half.input("x", (n * 2, m))
    half.input("count", ShapeType((n,)))
    module = half.build(half.slice(x, axis=0, stop=n))
    b = GraphBuilder("main", module)
    b.input("k", (m,))
    y = b.call("half", b.input("a", (m * 4, 3)), b.shape(m * 2))
    assert str(y.annotation) == "float32[m*2, 3]"  # the callee's m is 3 here
    module = b.build(y)
    verify_graph(module)
    assert evaluate_graph(module, np.zeros(2, "float32"), np.zeros((8, 3), "float32")).shape == (4, 3)
    with pytest.raises(GraphError, match="half: x has an extent 5, expected n\\*2 with n = 2"):
        b.call("half", b.input("odd", (5, 3)), b.shape(2))


def test_ranges_of_callees_are_kept() -> None:
    inner = GraphBuilder("inner", ranges={n: (1, 4)})
    module = inner.build(inner.relu(inner.input("x", (n,))))
    b = GraphBuilder("main", module, ranges={m: (5, 9)})
    with pytest.raises(GraphError, match="inner: n = m is out of its range there, 1 to 4"):
        b.call("inner", b.input("x", (m,)))
    y = b.call("inner", b.input("y", (n,)))  # this n has no bounds, so it is checked when the function runs
    module = b.build(y)
    assert evaluate_graph(module, np.zeros(5, "float32"), np.zeros(3, "float32")).shape == (3,)
    with pytest.raises(GraphError, match="inner: n = 6 is out of its range"):
        evaluate_graph(module, np.zeros(5, "float32"), np.zeros(6, "float32"))


def test_equality_may_follow_from_ranges() -> None:
    b = GraphBuilder(ranges={n: (4, 4)})
    x, y = b.input("x", (n, 3)), b.input("y", (4, 3))
    module = b.build(b.concat(x + y, b.matmul(b.permute(x), y), axis=0))
    verify_graph(module)
    given = [np.ones((4, 3), "float32")] * 2
    np.testing.assert_array_equal(evaluate_graph(module, *given), evaluate_graph(legalise(module), *given))


def test_only_the_number_one_is_broadcast() -> None:
    """A symbol that happens to be 1 is an extent like others: programs index operands by their extents as written."""
    b = GraphBuilder(ranges={n: (1, 1)})
    with pytest.raises(GraphError, match="shapes .n. and .5. do not broadcast: n and 5"):
        b.add(b.input("x", (n,)), b.input("y", (5,)))
    assert str((b.known("x") + b.input("z", (1,))).annotation) == "float32[n]"


def test_coarse_values_are_checked_when_they_are_passed() -> None:
    inner = GraphBuilder("inner")
    module = inner.build(inner.relu(inner.input("x", (n, 3))))
    b = GraphBuilder("main", module)
    y = b.call("inner", b.input("a", TensorType(dtype="float32", rank=2)))
    assert str(y.annotation) == "float32[?, ?]"
    module = b.build(y)
    assert evaluate_graph(module, np.zeros((2, 3), "float32")).shape == (2, 3)
    with pytest.raises(GraphError, match=r"inner: x: the value is float32\[2, 4\], expected float32\[n, 3\]"):
        evaluate_graph(module, np.zeros((2, 4), "float32"))


def test_tuples() -> None:
    b = GraphBuilder()
    x = b.input("x", (n, 6))
    parts = b.split(x, axis=1, lengths=(2, 4))
    module = b.build(parts[1], b.tuple(parts[0], x))
    verify_graph(module)
    first, (second, third) = evaluate_graph(module, np.arange(12, dtype="float32").reshape(2, 6))
    assert first.shape == (2, 4) and second.shape == (2, 2) and third.shape == (2, 6)
    with pytest.raises(GraphError, match="there is no item 2 in"):
        parts[2]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda b, x: b.add(x, b.input("y", (m, 4))), "add: shapes .n, 4. and .m, 4. do not broadcast: n and m; they"),
        (lambda b, x: b.matmul(x, x), "matmul: columns of the first and rows of the second operand: 4 and n"),
        (lambda b, x: b.add(x, b.input("y", (n, 4), "float64")), "operands of float32 and float64; convert one"),
        (lambda b, x: b.relu(x, x), r"relu: it takes \(x\), got 2 operands"),
        (lambda b, x: b.sofmax(x), "unknown operator 'sofmax'; did you mean"),
        (lambda b, x: b.sum(x, axis=1), "sum: unknown attribute 'axis'; did you mean 'axes'"),
        (lambda b, x: b.sum(x, axes=(2,)), "sum: axis 2 is outside the 2 axes"),
        (lambda b, x: b.sum(x, axes=(0.5,)), "sum: axes = .0.5,. is not a tuple of integers"),
        (lambda b, x: b.reshape(x, shape=(3, n)), "reshape: the number of elements changes: n\\*4 and n\\*3"),
        (lambda b, x: b.reshape(x, shape=(m, -1)), "reshape: the symbol m is not in scope"),
        (lambda b, x: b.reshape(1.0, shape=(1,)), "the number 1.0 has no dtype here"),
        (lambda b, x: b.reshape(Scalar(1.0, "float32"), shape=(1,)), "reshape: the number 1.0 is no operand"),
        (lambda b, x: b.relu(b.tuple(x)), r"relu: operand 0 is \(float32\[n, 4\]\), not a tensor"),
        (lambda b, x: b.input("x", (n,)), "two values are called 'x'"),
        (lambda b, x: b.input("x y", (n,)), "'x y' is not a name"),
        (lambda b, x: b.call("other", x), "other: the module has no function 'other'"),
        (lambda b, x: b.relu(GraphBuilder("f").input("z", (2,))), "'z' is a value of the function 'f'"),
        (lambda b, x: b.relu(np.zeros(3)), "is not an operand; arrays become constants first"),
        (
            lambda b, x: b.slice(x, axis=1, start=3, stop=6),
            "slice: elements 3 to 6 of axis 1: that is outside the extent 4",
        ),
        (lambda b, x: b.cast(x, dtype="float8"), "cast: unknown dtype 'float8'"),
        (lambda b, x: b.match_cast(x, (n, 5)), "match_cast: the value has an extent 4, expected 5"),
        (lambda b, x: b.match_cast(x, (n,)), "match_cast: the value is .* of rank 2; expected .* of rank 1"),
    ],
)
def test_bad_calls_are_refused(write, message) -> None:
    b = GraphBuilder()
    x = b.input("x", (n, 4))
    with pytest.raises(GraphError, match=message):
        write(b, x)


def test_unknown_shapes_stay_unknown() -> None:
    b = GraphBuilder()
    x, o = b.input("x", TensorType(dtype="float32", rank=2)), b.input("o", ObjectType())
    assert str((x + 1.0).annotation) == "float32[?, ?]"
    assert str(b.sum(x, axes=(0,)).annotation) == "float32[?]"
    assert str(b.relu(o).annotation) == "?[...]"
    with pytest.raises(GraphError, match="the shape of 'x' is not known"):
        x.shape  # noqa: B018
    module = b.build(x + 1.0)
    with pytest.raises(GraphError, match="so there is no program for it"):
        legalise(module)


def test_multiples_of_a_symbol_determine_it() -> None:
    inner = GraphBuilder("inner", ranges={n: (2, 9)})
    x = inner.input("x", (n * 4 + 1, m))
    module = inner.build(inner.slice(x, axis=0, stop=n))
    verify_graph(module)
    assert str(module["inner"].returns) == "float32[n, m]"
    assert evaluate_graph(module, np.zeros((13, 2), "float32"), function="inner").shape == (3, 2)
    with pytest.raises(GraphError, match=r"inner: x: the value is float32\[14, 2\], expected float32\[n\*4 \+ 1, m\]"):
        evaluate_graph(module, np.zeros((14, 2), "float32"), function="inner")
    with pytest.raises(GraphError, match="n = 1 is out of its range, 2 <= n <= 9"):
        evaluate_graph(module, np.zeros((5, 2), "float32"), function="inner")
    b = GraphBuilder("main", module)
    known = b.call("inner", b.input("a", (m * 8 + 1, 3)))
    assert str(known.annotation) == "float32[m*2, 3]"
    assert str(b.call("inner", b.input("c", (m * 2, 3))).annotation) == "float32[?, ?]"  # perhaps no such n exists
    product = GraphBuilder()
    module = product.build(product.relu(product.input("x", (n * m, 2))))
    with pytest.raises(GraphError, match="no extent of a parameter determines the symbol m"):
        verify_graph(module)
