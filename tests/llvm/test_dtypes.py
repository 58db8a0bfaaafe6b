"""Every dtype through matrix products, elementwise stages, reductions and casts, against numpy and the interpreter."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from searchlab.backend import compile
from searchlab.defaults import default_schedule
from searchlab.errors import BuildError
from searchlab.ir import (
    Builder,
    Expr,
    Program,
    cast,
    const,
    interpret,
    largest,
    maximum,
    minimum,
    select,
    smallest,
    total,
)
from searchlab.ir.bfloat16 import rounded
from searchlab.schedule import Schedule
from searchlab.targets import detect
from searchlab.workloads import parse

TARGET = detect(threads=1)
DTYPES = ["float32", "float64", "float16", *(f"{s}int{n}" for s in ("", "u") for n in (8, 16, 32, 64))]
SHAPE = (5, 19)


def random(dtype: str, seed: int = 0, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    """The whole range of an integer dtype; floats around zero in steps so wide that no sum or product is rounded."""
    rng = np.random.default_rng(seed)
    if dtype.startswith("float"):
        return (rng.integers(-32, 32, shape) / 8).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


def pointwise(dtypes: list[str], body: Callable[..., Expr]) -> Program:
    b = Builder("pointwise")
    inputs = [b.input(f"X{n}", SHAPE, d) for n, d in enumerate(dtypes)]
    return b.program(b.compute("Y", SHAPE, lambda i, j: body(*(x[i, j] for x in inputs))))


def vectorized(program: Program) -> Program:
    s = Schedule(program)
    for block in program.blocks:
        s.vectorize(s.loops(block)[-1])
    return s.program


def run(program: Program, *arrays: np.ndarray) -> np.ndarray:
    """What the kernel computes, the same as plain loops and with vectors."""
    plain: np.ndarray = compile(program, TARGET)(*arrays)
    wide = compile(vectorized(program), TARGET)(*arrays)
    np.testing.assert_allclose(wide, plain, rtol=1e-6 if plain.dtype == np.float32 else 1e-14, atol=1e-6)
    return plain


# --- matrix products --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint8", "int32"])
@pytest.mark.parametrize("shape", ["m=7,n=37,k=19", "m=1,n=16,k=64", "m=12,n=5,k=1"])
def test_matmul(dtype: str, shape: str) -> None:
    w = parse(f"matmul:{shape},dtype={dtype}")
    inputs = w.inputs(seed=1)
    assert w.program.buffers["C"].dtype == (dtype if dtype.startswith("float") else "int32")
    assert w.check(run(w.program, *inputs.values()), inputs) is None
    assert w.check(compile(default_schedule(w.program, TARGET), TARGET)(*inputs.values()), inputs) is None


@pytest.mark.parametrize(("a", "b"), [("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")])
def test_matmul_of_bytes_is_exact_at_the_ends_of_their_ranges(a: str, b: str) -> None:
    builder = Builder("bytes")
    A, B = builder.input("A", (3, 40), a), builder.input("B", (40, 33), b)
    r = builder.axis("k", 40)
    program = builder.program(
        builder.compute("C", (3, 33), lambda i, j: total(cast(A[i, r], "int32") * cast(B[r, j], "int32"), r))
    )
    for x, y in (
        (np.iinfo(a).min, np.iinfo(b).min),
        (np.iinfo(a).max, np.iinfo(b).min),
        (np.iinfo(a).max, np.iinfo(b).max),
    ):
        u, v = np.full((3, 40), x, a), np.full((40, 33), y, b)
        np.testing.assert_array_equal(run(program, u, v), u.astype(np.int32) @ v.astype(np.int32))
    u, v = random(a, 1, (3, 40)), random(b, 2, (40, 33))
    np.testing.assert_array_equal(run(program, u, v), u.astype(np.int32) @ v.astype(np.int32))


# --- elementwise ------------------------------------------------------------------------------------------------------

BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (lambda x, y: x + y, np.add),
    "sub": (lambda x, y: x - y, np.subtract),
    "mul": (lambda x, y: x * y, np.multiply),
    "max": (maximum, np.maximum),
    "min": (minimum, np.minimum),
    "smaller": (lambda x, y: select(x < y, x, y), np.minimum),
    "equal": (
        lambda x, y: select(x.equals(y), x, const(0, x.dtype)),
        lambda x, y: np.where(x == y, x, x.dtype.type(0)),
    ),
    "at least": (lambda x, y: select(x >= y, x - y, y), lambda x, y: np.where(x >= y, x - y, y)),
}


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("dtype", DTYPES)
def test_elementwise_wraps_and_compares_like_numpy(op: str, dtype: str) -> None:
    expr, array = BINARY[op]
    x, y = random(dtype, 1), random(dtype, 2)
    y[:, ::3] = x[:, ::3]
    got = run(pointwise([dtype, dtype], expr), x, y)
    assert got.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(got, array(x, y))


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants_take_the_dtype(dtype: str) -> None:
    x = random(dtype, 3)
    np.testing.assert_array_equal(
        run(pointwise([dtype], lambda x: x * 3 + 1), x), x * x.dtype.type(3) + x.dtype.type(1)
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_division_of_floats(dtype: str) -> None:
    x, y = random(dtype, 1), random(dtype, 2) + np.dtype(dtype).type(10)
    np.testing.assert_allclose(run(pointwise([dtype, dtype], lambda x, y: x / y), x, y), x / y, rtol=1e-6)


# --- reductions -------------------------------------------------------------------------------------------------------

REDUCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sum": (total, np.sum),
    "max": (largest, np.max),
    "min": (smallest, np.min),
}


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1])
def test_reductions(op: str, dtype: str, axis: int) -> None:
    reduce, array = REDUCTIONS[op]
    b = Builder("reduction")
    X = b.input("X", SHAPE, dtype)
    r = b.axis("r", SHAPE[axis])
    program = b.program(b.compute("Y", (SHAPE[1 - axis],), lambda i: reduce(X[i, r] if axis == 1 else X[r, i], r)))
    x = random(dtype, 4)
    expected = x.sum(axis, dtype=dtype) if op == "sum" else array(x, axis=axis)
    np.testing.assert_array_equal(run(program, x), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["max", "min"])
def test_extremes_of_values_at_the_end_of_the_range(dtype: str, op: str) -> None:
    reduce, array = REDUCTIONS[op]
    b = Builder("reduction")
    X = b.input("X", SHAPE, dtype)
    r = b.axis("r", SHAPE[1])
    program = b.program(b.compute("Y", (SHAPE[0],), lambda i: reduce(X[i, r], r)))
    limits = np.finfo(dtype) if dtype.startswith("float") else np.iinfo(dtype)
    for value in (limits.min, limits.max):
        x = np.full(SHAPE, value, dtype)
        np.testing.assert_array_equal(run(program, x), array(x, axis=1))


# --- casts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", DTYPES)
@pytest.mark.parametrize("source", DTYPES)
def test_casts(source: str, target: str) -> None:
    x = random(source, 5)
    if source.startswith("float"):  # what does not fit is undefined, and negative numbers do not fit uint8
        x = np.abs(x) if target.startswith("uint") else x
        x *= 9
    got = run(pointwise([source], lambda x: cast(x, target)), x)
    assert got.dtype == np.dtype(target)
    np.testing.assert_array_equal(got, rounded(x, target))


@pytest.mark.parametrize("dtype", DTYPES)
def test_truth_is_stored_read_and_converted(dtype: str) -> None:
    b = Builder("truth")
    x, mask = b.input("X", SHAPE, dtype), b.input("M", SHAPE, "bool")
    nonzero = b.compute("N", SHAPE, lambda i, j: cast(x[i, j], "bool"))
    both = b.compute("B", SHAPE, lambda i, j: nonzero[i, j] & mask[i, j])
    program = b.program(nonzero, both, b.compute("Y", SHAPE, lambda i, j: cast(both[i, j], dtype) + x[i, j]))
    given, masked = random(dtype, 9), np.random.default_rng(1).integers(0, 2, SHAPE).astype(bool)
    given[:, ::4] = 0
    expected = interpret(program, {"X": given, "M": masked})
    assert expected["N"].tolist() == (given != 0).tolist()
    for p in (program, vectorized(program)):
        for got, name in zip(compile(p, TARGET)(given, masked), program.outputs, strict=True):
            assert got.dtype == expected[name].dtype
            np.testing.assert_array_equal(got, expected[name])


def test_any_and_all_are_extremes_of_truth() -> None:
    b = Builder("any_and_all")
    x, k = b.input("X", SHAPE, "bool"), b.axis("k", SHAPE[1])
    some = b.compute("S", (SHAPE[0],), lambda i: largest(x[i, k], k))
    program = b.program(some, b.compute("A", (SHAPE[0],), lambda i: smallest(x[i, k], k)))
    given = np.random.default_rng(3).integers(0, 2, SHAPE).astype(bool)
    given[0], given[1] = True, False
    for p in (program, vectorized(program)):
        found = compile(p, TARGET)(given)
        assert (found[0] == given.any(1)).all() and (found[1] == given.all(1)).all()


def test_arithmetic_of_truth_is_refused() -> None:
    with pytest.raises(BuildError, match="add of bool values is not supported; cast to another dtype first"):
        compile(pointwise(["bool", "bool"], lambda x, y: x + y), TARGET)


@pytest.mark.parametrize("target", DTYPES)
def test_indices_become_values(target: str) -> None:
    b = Builder("indices")
    X = b.input("X", SHAPE, target)
    program = b.program(b.compute("Y", SHAPE, lambda i, j: X[i, j] + cast(i * 2 - j, target)))
    x = random(target, 6)
    i, j = np.indices(SHAPE)
    np.testing.assert_array_equal(run(program, x), x + (i * 2 - j).astype(target))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_interpreter_agrees(dtype: str) -> None:
    def body(x: Expr, y: Expr) -> Expr:
        wide = cast(x, "int64") if not dtype.startswith("float") else cast(x, "float64")
        return cast(wide * 3 - cast(y, wide.dtype), dtype) + select(x < y, x, maximum(y, 1))

    program = pointwise([dtype, dtype], body)
    x, y = random(dtype, 7), random(dtype, 8)
    np.testing.assert_array_equal(run(program, x, y), interpret(program, {"X0": x, "X1": y})["Y"])


def test_a_mixed_chain_of_dtypes() -> None:
    """Quantised values scaled to floats, shifted, clipped and written back as bytes."""
    b = Builder("requantize")
    X, scale = b.input("X", SHAPE, "int32"), b.input("scale", (SHAPE[1],), "float32")
    F = b.compute("F", SHAPE, lambda i, j: cast(X[i, j], "float32") * scale[j] + 0.5)
    Q = b.compute("Q", SHAPE, lambda i, j: cast(minimum(maximum(F[i, j], -128.0), 127.0), "int8"))
    program = b.program(Q)
    x = np.random.default_rng(0).integers(-(10**6), 10**6, SHAPE, dtype=np.int32)
    s = np.full(SHAPE[1], 2.0**-12, np.float32)
    expected = np.clip(x.astype(np.float32) * s + np.float32(0.5), -128, 127).astype(np.int8)
    np.testing.assert_array_equal(run(program, x, s), expected)
    assert np.array_equal(compile(default_schedule(program, TARGET), TARGET)(x, s), expected)
