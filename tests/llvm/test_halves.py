"""float16 and bfloat16 in generated code: every value, every way of rounding, the same bits as the interpreter."""

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.backend import compile
from searchlab.dtype import HALVES
from searchlab.errors import KernelError
from searchlab.ir import Builder, Expr, Program, call, cast, const, interpret, maximum, minimum, select, total
from searchlab.ir.bfloat16 import numbers, stored
from searchlab.llvm import jit
from searchlab.llvm.module import generate
from searchlab.lower.passes import lower
from searchlab.schedule import Schedule
from searchlab.targets import CpuTarget, cpu_of, detect, offered, parse

EVERY = np.arange(1 << 16, dtype=np.uint16)
CPUS = ("native", *(name for name in ("x86-64-v2", "x86-64-v3") if name in offered()))


def target_of(name: str) -> CpuTarget:
    return detect(threads=1) if name == "native" else cpu_of(parse(name))


def every(dtype: str) -> np.ndarray:
    """All values of a type, in the form in which arrays hold them."""
    return EVERY.view("float16") if dtype == "float16" else EVERY


def pointwise(count: int, dtypes: list[str], body: Callable[..., Expr]) -> Program:
    b = Builder("pointwise")
    inputs = [b.input(f"X{n}", (count,), d) for n, d in enumerate(dtypes)]
    return b.program(b.compute("Y", (count,), lambda i: body(*(x[i] for x in inputs))))


def forms(program: Program) -> tuple[Program, Program]:
    """A program as it is, and with vectors; an odd number of elements leaves every length of vector."""
    s = Schedule(program)
    s.vectorize(s.loops("Y")[-1])
    return program, s.program


def assert_same(got: np.ndarray, want: np.ndarray, dtype: str) -> None:
    """The same bits, but for NaN, of which there are many."""
    assert got.dtype == want.dtype
    a, b = numbers(got, dtype), numbers(want, dtype)
    size = f"uint{8 * got.itemsize}"
    differs = (got.view(size) != want.view(size)) & ~(np.isnan(a) & np.isnan(b))
    assert not differs.any(), f"{a[differs][:5]} instead of {b[differs][:5]}"


def ties(dtype: str) -> np.ndarray:
    """float32 numbers at, just beside and halfway between all neighbouring values of a type, and random ones."""
    with np.errstate(invalid="ignore"):
        bits = numbers(every(dtype), dtype).astype(np.float32).view(np.uint32)
    low = 1 << (13 if dtype == "float16" else 16)
    near = np.concatenate([bits + np.uint32(d) for d in (0, 1, low // 2 - 1, low // 2, low // 2 + 1, low - 1)])
    rng = np.random.default_rng(0)
    some = rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint32)
    small = rng.integers(0, 1 << 24, 1 << 12, dtype=np.uint32) + np.uint32(100 << 23)  # subnormal in float16
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.99, 65520, 3.4e38, 2**-24, 2**-25], np.float32)
    return np.concatenate([near, some, small, special.view(np.uint32)]).view(np.float32)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", HALVES)
def test_conversions_of_every_value_and_of_every_tie(dtype: str, cpu: str) -> None:
    machine, values = target_of(cpu), ties(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        want = stored(values, dtype)
        wide = numbers(every(dtype), dtype).astype(np.float32)
    for program in forms(pointwise(len(values), ["float32"], lambda x: cast(x, dtype))):
        assert_same(compile(program, machine)(values), want, dtype)
    for program in forms(pointwise(1 << 16, [dtype], lambda x: cast(x, "float32"))):
        assert_same(compile(program, machine)(every(dtype)), wide, "float32")
    for program in forms(pointwise(1 << 16, [dtype], lambda x: cast(cast(x, "float32"), dtype))):
        assert_same(compile(program, machine)(every(dtype)), every(dtype), dtype)
    for program in forms(pointwise(1 << 16, [dtype], lambda x: x)):
        got = compile(program, machine)(every(dtype))
        assert (got.view(np.uint16) == EVERY).all(), "a copy changes no bit, not even of a NaN"


OPERATIONS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "max": maximum,
    "min": minimum,
    "sqrt": lambda x, y: call("sqrt", x),
    "abs": lambda x, y: call("abs", x),
    "floor": lambda x, y: call("floor", x),
    "round": lambda x, y: call("round", x),
    "fused": lambda x, y: x * y + y,
    "constant": lambda x, y: x * 0.1 + 3.0,
    "one divisor": lambda x, y: x / const(3.0, x.dtype),
    "select": lambda x, y: select(x < y, x, y * 2.0),
}


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("dtype", HALVES)
def test_operations_are_rounded_one_by_one(op: str, dtype: str) -> None:
    """All values of a type with random partners: correctly rounded, scalar, in vectors and in the interpreter."""
    x, y = every(dtype), np.random.default_rng(1).permutation(EVERY).view(every(dtype).dtype)
    known = np.isfinite(numbers(x, dtype)) & np.isfinite(numbers(y, dtype))
    x, y = x[known], y[known]
    program = pointwise(len(x), [dtype, dtype], OPERATIONS[op])
    with np.errstate(all="ignore"):
        want = interpret(program, {"X0": x, "X1": y})["Y"]
    if dtype == "float16" and op in ("add", "sub", "mul", "div", "sqrt"):
        function = getattr(np, {"sub": "subtract", "mul": "multiply", "div": "divide"}.get(op, op))
        with np.errstate(all="ignore"):
            assert_same(want, function(x) if op == "sqrt" else function(x, y), dtype)
    for cpu in CPUS:
        for form in forms(program):
            assert_same(compile(form, target_of(cpu))(x, y), want, dtype)


def expressions(dtype: str) -> st.SearchStrategy[Callable[[Expr, Expr], Expr]]:
    leaves = st.sampled_from([lambda x, y: x, lambda x, y: y, lambda x, y: const(0.3, dtype)])

    def grown(inner: st.SearchStrategy[Callable[[Expr, Expr], Expr]]) -> st.SearchStrategy[Callable[..., Expr]]:
        def joined(op: str, a: Callable[..., Expr], b: Callable[..., Expr]) -> Callable[..., Expr]:
            return lambda x, y: OPERATIONS[op](a(x, y), b(x, y))

        def through(other: str, a: Callable[..., Expr]) -> Callable[..., Expr]:
            return lambda x, y: cast(cast(a(x, y), other), dtype)

        plain = ("add", "sub", "mul", "max", "min", "abs", "fused", "select")
        others = ("float32", "float64", "bfloat16", "float16")
        return st.builds(joined, st.sampled_from(plain), inner, inner) | st.builds(
            through, st.sampled_from(others), inner
        )

    return st.recursive(leaves, grown, max_leaves=6)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_expressions_have_the_bits_of_the_interpreter(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(HALVES))
    program = pointwise(37, [dtype, dtype], data.draw(expressions(dtype)))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x, y = (stored(rng.normal(0, 3, 37), dtype) for _ in range(2))
    if program.inputs:
        want = interpret(program, {"X0": x, "X1": y})["Y"]
        for form in forms(program):
            assert_same(compile(form, target_of(CPUS[-1]))(x, y), want, dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", ["rows", "tile", "strided", "lanes"])
def test_sums_in_a_type_of_16_bits_are_rounded_at_every_step(dtype: str, kind: str) -> None:
    b = Builder("sums")
    A, B = b.input("A", (12, 16), dtype), b.input("B", (16, 34), dtype)
    k = b.axis("k", 16)
    program = b.program(b.compute("C", (12, 34), lambda i, j: total(A[i, k] * B[k, j], k)))
    s = Schedule(program)
    i, j, r = s.loops("C")
    if kind == "tile":
        i0, i1 = s.split(i, [None, 4])
        s.reorder(i0, r, i1, j)
        s.unroll(i1)
        s.vectorize(j)
        s.parallel(i0)
    elif kind == "strided":
        s.reorder(j, r, i)
        s.vectorize(i)
    elif kind == "lanes":
        s.vectorize(r)
    rng = np.random.default_rng(0)
    # sums over lanes are in another order: numbers whose sums are exact
    values = (lambda shape: rng.integers(-3, 4, shape)) if kind == "lanes" else (lambda shape: rng.normal(0, 1, shape))
    a, c = stored(values((12, 16)), dtype), stored(values((16, 34)), dtype)
    want = interpret(program, {"A": a, "B": c})["C"]
    for cpu in CPUS:
        assert_same(compile(s.program, target_of(cpu))(a, c), want, dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_no_library_is_called(dtype: str, cpu: str) -> None:
    machine = cpu_of(parse(cpu))
    for other in ("float32", "float64", "int32", "int64", "uint16"):
        body = lambda x, y, other=other: cast(x * y + call("sqrt", x), other)  # noqa: E731
        back = lambda x, other=other: cast(x, dtype)  # noqa: E731
        for program in (*forms(pointwise(39, [dtype, dtype], body)), *forms(pointwise(39, [other], back))):
            text = jit.assembly(generate(lower(program, machine), machine).ir, machine)
            assert {x for x in re.findall(r"\b(?:call|jmp)\w*\s+(\S+)", text) if not x.startswith(".")} <= {"main"}
            converts = "vcvtph2ps" in text or "vcvtps2ph" in text
            assert converts == (dtype == "float16" and cpu != "x86-64-v2")


def test_kernels_take_the_bits_of_bfloat16() -> None:
    kernel = compile(pointwise(3, ["bfloat16"], lambda x: x + x), target_of("native"))
    got = kernel(stored([1.5, -2.0, 3.0], "bfloat16"))
    assert got.dtype == np.uint16 and numbers(got, "bfloat16").tolist() == [3.0, -4.0, 6.0]
    with pytest.raises(KernelError, match=r"has dtype float32, expected uint16 \(the bits of bfloat16\)"):
        kernel(np.zeros(3, np.float32))
