"""Transposed reads are taken in squares, wherever the loops allow it and nowhere else."""

import numpy as np
import pytest
from checked_run import run_checked
from hypothesis import given, settings
from hypothesis import strategies as st

import searchlab as sl
from searchlab.ir import Builder, Program, interpret, size
from searchlab.ir.expr import Const, Expr, Load, Var, value_of
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.stmt import Buffer, Loop, Stmt, Store
from searchlab.llvm.jit import assembly
from searchlab.llvm.module import generate
from searchlab.lower.passes import lower
from searchlab.lower.transposes import read_in_squares
from searchlab.schedule import Schedule
from searchlab.search import Task, space
from searchlab.targets import parse

TARGET = parse("x86-64-v3")
EIGHT = Const(8)


def reordered(channels: int, rows: int, columns: int, width: int = 0, dtype: str = "float32") -> Program:
    """Channels that lie side by side, brought before rows and columns, in vectors of columns, with one more operand."""
    b = Builder("reordered")
    T, R = b.input("T", (rows, columns, channels), dtype), b.input("R", (channels, rows, columns), dtype)
    s = Schedule(b.program(b.compute("Y", (channels, rows, columns), lambda c, h, w: T[h, w, c] + R[c, h, w])))
    s.vectorize(s.split("w", [None, width], tail=True)[1] if width else "w")
    return s.program


def test_columns_are_taken_in_squares_and_what_is_left_of_them() -> None:
    text = str(lower(reordered(16, 3, 20), TARGET))
    assert text.splitlines()[1:] == [
        "  for c_0 in 2:",
        "    for h in 3:",
        "      for w_0 in 2:",
        "        for c in 8 unrolled:",
        "          for w in 8 vectorized:",
        "            Y[c + c_0*8, h, w + w_0*8] = T[h, w + w_0*8, c + c_0*8] + R[c + c_0*8, h, w + w_0*8]",
        "      for c in 8 unrolled:",
        "        for w in 4 vectorized:",
        "          Y[c + c_0*8, h, w + 16] = T[h, w + 16, c + c_0*8] + R[c + c_0*8, h, w + 16]",
    ]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (reordered(6, 3, 16), "rows begin at no multiple of their length"),
        (reordered(16, 3, 3), "vectors are too short"),
        (reordered(16, 3, 16, dtype="int8"), "bytes are not shuffled"),
    ],
)
def test_other_copies_stay_as_they_are(program: Program, reason: str) -> None:
    assert "_0" not in str(lower(program, TARGET)), reason


def test_rows_in_panels_are_whole_where_squares_end_with_them() -> None:
    b = Builder("panels")
    T = b.input("T", (2, 12, 8))
    s = Schedule(b.program(b.compute("Y", (16, 12), lambda c, w: T[c // 8, w, c % 8])))
    s.vectorize("w")
    assert "T[c_0, w + 8, c]" in str(lower(s.program, TARGET))


def test_a_run_time_number_of_rows_of_whole_squares() -> None:
    n = size("n")

    def transposed(width: int) -> Program:
        b = Builder("transposed")
        T = b.input("T", (n, 8, width))
        s = Schedule(b.program(b.compute("Y", (n, width, 8), lambda i, c, w: T[i, w, c])))
        s.vectorize("w")
        return s.program

    assert "T[i, w, c + c_0*8]" in str(lower(transposed(16), TARGET))
    assert "c_0" not in str(lower(transposed(10), TARGET))
    kernel = sl.compile(transposed(16), TARGET)
    for count in (1, 3):
        x = np.arange(count * 8 * 16, dtype="float32").reshape(count, 8, 16)
        np.testing.assert_array_equal(kernel(x), x.transpose(0, 2, 1))


def copy(place: Expr, source: str = "T", rows: Expr = EIGHT) -> Stmt:
    """Rows of eight, in vectors along their columns."""
    a, v = Var("a"), Var("v")
    store = Store("Y", (place,), Load(source, (v, a), "float32"))
    return Loop(a, rows, Loop(v, Const(8), store, LoopKind.VECTORIZED))


def test_an_order_that_decides_what_is_stored_stays() -> None:
    buffers = {n: Buffer(n, (Const(8), Const(8)), "float32") for n in ("T", "Y")}
    a, v = Var("a"), Var("v")
    kept = [copy(v), copy(a + v), copy(8 * a + v, "Y")]  # the last a stores, sums of a and v, and its own elements
    kept.append(copy(8 * a + v, rows=8 - Var("left")))  # so many as there are
    assert [read_in_squares(s, buffers, TARGET) for s in kept] == kept
    assert read_in_squares(copy(8 * a + v), buffers, TARGET) != copy(8 * a + v)


@settings(max_examples=25)
@given(st.integers(1, 40), st.integers(1, 3), st.integers(1, 40), st.sampled_from([0, 4, 7, 16]), st.booleans())
def test_values_are_those_of_the_interpreter(channels: int, rows: int, columns: int, width: int, whole: bool) -> None:
    program = reordered(-(-channels // 8) * 8 if whole else channels, rows, columns, width)
    rng = np.random.default_rng(channels)
    shapes = {n: [value_of(e) for e in program.buffers[n].shape] for n in program.inputs}
    inputs = {n: rng.integers(-9, 9, shape).astype("float32") for n, shape in shapes.items()}
    found = run_checked(lower(program, TARGET), program, inputs)
    np.testing.assert_array_equal(found["Y"], interpret(program, inputs)["Y"])


@pytest.mark.parametrize(
    ("name", "sketch"),
    [
        ("template", "channels"),
        ("sketch", "layout"),
        ("task-mapping", "channels"),
        ("probabilistic", "layout"),
    ],
)
def test_convolutions_of_all_spaces_restore_the_order_of_channels_by_shuffles(name: str, sketch: str) -> None:
    task = Task(sl.workload("conv2d", ci=4, co=16, h=8, w=16, k=3, padding=1), TARGET)
    found = space(name, task)
    program = next(found.program(p) for p in found.seeds if found.text(p).startswith(sketch))
    code = assembly(generate(lower(program, TARGET), TARGET).ir, TARGET)
    assert "vunpcklps" in code and "vinsertps" not in code
