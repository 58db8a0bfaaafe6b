"""Stages computed in parts that overlap, run backwards or wrap around: right in compiled code, or refused."""

from collections.abc import Callable

import numpy as np
import pytest
from checked_run import run_checked

from searchlab.codegen.kernel import compile
from searchlab.codegen.lower import lower
from searchlab.errors import ScheduleError
from searchlab.ir import Builder, interpret, knob, total
from searchlab.ir.compute import Tensor
from searchlab.ir.expr import Expr
from searchlab.ir.program import Program
from searchlab.schedule import Schedule
from searchlab.targets import parse

TARGET = parse("x86-64-v2")


def sums(reader: Callable[[Tensor, Expr], Expr], rows: int, length: int) -> Program:
    """S[i] = the sum of a row of I; Y[j] = what the reader makes of S."""
    b = Builder("sums")
    I = b.input("I", (rows, 3))
    r = b.axis("r", 3)
    S = b.compute("S", (rows,), lambda i: total(I[i, r], r))
    Y = b.compute("Y", (length,), lambda j: reader(S, j))
    return b.program(Y)


def assert_same(plain: Program, scheduled: Program) -> None:
    """What the plain program computes, interpreted, in plain loops with all accesses checked, and compiled."""
    shapes = {n: [int(str(e)) for e in plain.buffers[n].shape] for n in plain.inputs}
    rng = np.random.default_rng(3)
    inputs = {n: rng.integers(-9, 10, shape).astype("float32") for n, shape in shapes.items()}
    expected = interpret(plain, inputs)
    (output,) = expected
    assert np.array_equal(interpret(scheduled, inputs)[output], expected[output])
    lowered = lower(scheduled, TARGET)
    assert np.array_equal(run_checked(lowered, scheduled, inputs)[output], expected[output])
    assert np.array_equal(compile(scheduled, TARGET)(*inputs.values()), expected[output])


# --- sums that begin outside loops ------------------------------------------------------------------------------------


def test_a_sum_does_not_begin_outside_loops_that_come_back_to_it():
    """S[2] is computed for Y[0] and again for Y[2]: begun once, it would be summed twice."""
    s = Schedule(sums(lambda S, j: S[j] + S[j + 2], 8, 6))
    j0, j1 = s.split("j", [None, 2])
    s.compute_at("S", j1)
    for outer in (j0, j1):
        with pytest.raises(ScheduleError, match="^decompose_reduction: loop .* may come to elements of 'S' again"):
            s.decompose_reduction("S", outer)
    s.decompose_reduction("S", "S_i")
    assert_same(sums(lambda S, j: S[j] + S[j + 2], 8, 6), s.program)


@pytest.mark.parametrize(
    ("reader", "rows", "length"),
    [
        (lambda S, j: S[2 * j] + S[2 * j + 1], 12, 6),
        (lambda S, j: S[5 - j], 6, 6),
        (lambda S, j: S[3 * j + 2], 18, 6),
    ],
)
def test_a_sum_may_begin_outside_loops_that_do_not_come_back(reader, rows, length):
    plain = sums(reader, rows, length)
    s = Schedule(plain)
    j0, j1 = s.split("j", [None, 2])
    s.compute_at("S", j1)
    s.decompose_reduction("S", j0)
    assert_same(plain, s.program)


def test_a_sum_may_begin_outside_loops_whose_tails_are_cut_off():
    """The tiles of j_0 would reach into each other, were it not for the condition on j_1."""
    plain = sums(lambda S, j: S[j], 11, 11)
    s = Schedule(plain)
    s.split("i", [None, 4], tail=True)
    s.split("i_1", [None, 3], tail=True)
    s.decompose_reduction("S", "i_0")
    assert_same(plain, s.program)


def test_a_sum_may_begin_outside_fused_loops():
    b = Builder("fused")
    I = b.input("I", (5, 6, 3))
    r = b.axis("r", 3)
    plain = b.program(b.compute("Y", (5, 6), lambda i, j: total(I[i, j, r], r)))
    s = Schedule(plain)
    s.split(s.fuse("i", "j"), [None, 4], tail=True)
    s.decompose_reduction("Y", "i_j_0")
    assert_same(plain, s.program)


def test_a_sum_may_begin_outside_loops_of_any_size():
    plain = sums(lambda S, j: S[j], 12, 12)
    s = Schedule(plain)
    s.split("i", [None, knob("a"), knob("b")])
    s.decompose_reduction("S", "i_0")
    assert_same(plain, s.program.substitute({"a": 2, "b": 3}))
