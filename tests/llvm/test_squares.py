"""Columns of squares: the shuffles that make them, and transposed copies in compiled code."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.backend import compile
from searchlab.ir import Builder
from searchlab.llvm.jit import assembly
from searchlab.llvm.module import generate
from searchlab.llvm.squares import column
from searchlab.lower.passes import lower
from searchlab.schedule import Schedule
from searchlab.targets import detect, parse

SHUFFLE = re.compile(r"shufflevector <\d+ x i32> (\S+), <\d+ x i32> (\S+), <\d+ x i32> <(.*)>")


@pytest.mark.parametrize("size", [4, 8, 16])
def test_shuffles_transpose_a_square(size: int) -> None:
    square = np.arange(size * size).reshape(size, size)
    values = {f"%r{n}": square[n] for n in range(size)}
    made: dict[str, str] = {}

    def let(instruction: str) -> str:
        if instruction not in made:
            found = SHUFFLE.match(instruction)
            assert found is not None
            picks = [int(p.split()[1]) for p in found[3].split(", ")]
            made[instruction] = f"%s{len(made)}"
            values[made[instruction]] = np.concatenate([values[found[1]], values[found[2]]])[picks]
        return made[instruction]

    for n in range(size):
        np.testing.assert_array_equal(values[column(lambda r: f"%r{r}", n, size, "i32", let)], square[:, n])
    assert len(made) == size * int(np.log2(size))


def transposed(rows: int, columns: int, dtype: str, lanes: int, unrolled: int) -> Schedule:
    b = Builder("transposed")
    X = b.input("X", (rows, columns), dtype)
    s = Schedule(b.program(b.compute("Y", (columns, rows), lambda j, i: X[i, j])))
    j, i = s.loops("Y")
    j0, j1 = s.split(j, [None, unrolled], tail=True)
    i0, i1 = s.split(i, [None, lanes], tail=True)
    s.reorder(j0, i0, j1, i1)
    s.unroll(j1)
    s.vectorize(i1)
    return s


@settings(max_examples=20)
@given(st.integers(1, 40), st.integers(1, 5), st.sampled_from(["float32", "int32", "int8", "float64"]), st.data())
def test_transposed_copies(rows: int, panels: int, dtype: str, data: st.DataObject) -> None:
    columns = panels * data.draw(st.sampled_from([3, 4, 8, 16]))
    lanes, unrolled = data.draw(st.sampled_from([4, 8, 16, 32])), data.draw(st.sampled_from([1, 4, 7, 16]))
    x = np.random.default_rng(rows).integers(-100, 100, (rows, columns)).astype(dtype)
    kernel = compile(transposed(rows, columns, dtype, lanes, unrolled).program, detect(threads=1))
    np.testing.assert_array_equal(kernel(x), x.T)


def test_rows_are_loaded_whole() -> None:
    target = parse("x86-64-v3")
    text = assembly(generate(lower(transposed(64, 64, "float32", 8, 8).program, target), target).ir, target)
    assert "vinsertps" not in text and "vunpcklps" in text
