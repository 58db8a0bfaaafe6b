"""The table of element types, and programs of every type in the interpreter."""

import numpy as np
import pytest

from searchlab.dtype import BFLOAT16, DTYPES, FLOATS
from searchlab.ir import Builder, Program, call, from_json, interpret, largest, select, smallest, to_json, total
from searchlab.ir.bfloat16 import from_bits, rounded, to_bits
from searchlab.llvm.module import generate
from searchlab.lower.passes import lower
from searchlab.targets import parse


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=lambda d: d.name)
def test_sizes_and_limits_are_those_of_numpy(dtype) -> None:
    assert np.dtype(dtype.storage).itemsize == dtype.bytes
    if dtype.sort in ("int", "uint"):
        known = np.iinfo(dtype.storage)
        assert dtype.limits == (known.min, known.max)


def test_bfloat16_rounds_to_nearest_even() -> None:
    for bits, expected in ((0x3F808000, 0x3F80), (0x3F818000, 0x3F82), (0x3F808001, 0x3F81), (0x7F7FFFFF, 0x7F80)):
        assert to_bits(np.array(bits, np.uint32).view(np.float32)) == expected
    every = np.arange(1 << 16, dtype=np.uint16)
    numbers = ~np.isnan(from_bits(every))
    assert (to_bits(from_bits(every))[numbers] == every[numbers]).all()
    assert np.isnan(from_bits(to_bits([np.nan, -np.nan]))).all()
    assert (from_bits(to_bits([np.inf, -np.inf])) == [np.inf, -np.inf]).all()


def scaled(dtype: str) -> Program:
    b = Builder("scaled")
    x, y = b.input("X", (4, 5), dtype), b.input("Y", (4, 5), dtype)
    k = b.axis("k", 5)
    z = b.compute("Z", (4,), lambda i: total(x[i, k] * y[i, k], k))
    return b.program(b.compute("R", (4,), lambda i: z[i] * 2 + call("sqrt", call("abs", z[i]))))


@pytest.mark.parametrize("dtype", FLOATS)
def test_small_floats_are_interpreted(dtype: str) -> None:
    program = scaled(dtype)
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-3, 4, (4, 5)) for _ in range(2))
    z = (x * y).sum(1)
    store = to_bits if dtype == BFLOAT16 else lambda a: a.astype(dtype)
    (found,) = interpret(program, {"X": store(x), "Y": store(y)}).values()
    assert found.dtype == DTYPES[dtype].storage
    values = from_bits(found) if dtype == BFLOAT16 else found
    np.testing.assert_allclose(values, z * 2 + np.sqrt(np.abs(z)), rtol=2**-7)
    assert (values == rounded(values, dtype)).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("machine", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "neoverse-n1"])
def test_programs_of_every_type_are_declared_and_generated(dtype: str, machine: str) -> None:
    b = Builder("copy")
    x = b.input("X", (3, 4), dtype)
    program = b.program(b.compute("Y", (3, 4), lambda i, j: x[i, j]))
    assert f"X: {dtype}[3, 4]" in str(program)
    assert from_json(to_json(program)) == program
    target = parse(machine)
    assert "store" in generate(lower(program, target), target).ir


def test_masks_are_conditions() -> None:
    b = Builder("masked")
    x, mask = b.input("X", (6,)), b.input("M", (6,), "bool")
    big = b.compute("B", (6,), lambda i: x[i] > 2)
    program = b.program(b.compute("Y", (6,), lambda i: select(mask[i] & big[i], x[i], 0)), big)
    values, given = np.arange(6, dtype=np.float32), np.array([1, 0, 1, 0, 1, 1], bool)
    found = interpret(program, {"X": values, "M": given})
    assert found["B"].dtype == bool and found["B"].tolist() == [False] * 3 + [True] * 3
    assert found["Y"].tolist() == [0, 0, 0, 0, 4, 5]


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bool"])
def test_extremes_begin_with_the_limits(dtype: str) -> None:
    b = Builder("extremes")
    x = b.input("X", (3, 4), dtype)
    k = b.axis("k", 4)
    high = b.compute("H", (3,), lambda i: largest(x[i, k], k))
    program = b.program(high, b.compute("L", (3,), lambda i: smallest(x[i, k], k)))
    values = np.random.default_rng(1).integers(0, 100, (3, 4))
    found = interpret(program, {"X": to_bits(values) if dtype == BFLOAT16 else values.astype(dtype)})
    read = from_bits if dtype == BFLOAT16 else np.asarray
    assert (read(found["H"]) == values.max(1)).all() and (read(found["L"]) == values.min(1)).all()
