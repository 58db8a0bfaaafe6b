"""Loop invariants: costly values that a loop does not change are computed before it, and nothing else is moved."""

import numpy as np
import pytest
from checked_run import run_checked
from hypothesis import given, settings
from hypothesis import strategies as st

import searchlab as sl
from searchlab.ir import Builder, call, interpret, select, total
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import statements
from searchlab.ir.stmt import Alloc, Loop, Stmt, Store
from searchlab.ir.walk import walk
from searchlab.lower.passes import lower
from searchlab.schedule import Schedule
from searchlab.targets import parse

TARGET = parse("x86-64-v3")


def centred(rows: int, cols: int) -> Program:
    """Rows less their mean, divided by the root of their sum of squares: both inlined into what uses them."""
    b = Builder("centred")
    X = b.input("X", (rows, cols))
    r, q = b.axis("r", cols), b.axis("q", cols)
    S = b.compute("S", (rows,), lambda a: total(X[a, r], r))
    V = b.compute("V", (rows,), lambda v: total(X[v, q] * X[v, q], q))
    Y = b.compute("Y", (rows, cols), lambda i, j: (X[i, j] - S[i] / float(cols)) / call("sqrt", V[i] + 1.0))
    return b.program(Y)


def costly_inside(s: Stmt) -> list[str]:
    """The innermost loops around a division or a function of values, in lowered code."""
    found = []
    for loop in (x for x in statements(s) if isinstance(x, Loop)):
        inner = [x for x in statements(loop.body) if isinstance(x, Loop)]
        held = {id(y) for x in inner for y in statements(x)}
        for store in (x for x in statements(loop.body) if isinstance(x, Store) and id(x) not in held):
            if any(getattr(e, "op", "") == "div" or hasattr(e, "function") for e in walk(store.value)):
                found.append(loop.name)
    return found


def test_invariants_leave_the_loops_that_do_not_change_them():
    s = Schedule(centred(4, 32))
    for block in ("S", "V"):
        s.compute_at(block, "i")
    _, lanes = s.split("j", [None, 8])
    s.vectorize(lanes)
    body = lower(s.program, TARGET).body
    assert set(costly_inside(body)) == {"i"}  # the mean and the reciprocal root, once a row
    assert sum(isinstance(x, Alloc) and ".h" in x.buffer.name for x in statements(body)) == 2


def test_a_parallel_loop_keeps_its_values():
    b = Builder("scaled")
    X, D = b.input("X", (16, 16)), b.input("D", (1,))
    Y = b.compute("Y", (16, 16), lambda i, j: X[i, j] * (2.0 / D[0]))
    s = Schedule(b.program(Y))
    s.parallel("i")
    assert costly_inside(lower(s.program, TARGET).body) == ["i"]


def test_what_a_condition_guards_is_not_moved():
    b = Builder("guarded")
    X, D = b.input("X", (9,)), b.input("D", (4,))
    n = b.axis("n", 4)
    Y = b.compute("Y", (9,), lambda i: total(select(i < 4, X[i] / D[n], X[i]), n))
    body = lower(b.program(Y), TARGET).body
    assert costly_inside(body)
    assert not any(isinstance(x, Alloc) and ".h" in x.buffer.name for x in statements(body))


def test_what_the_loop_changes_is_not_moved():
    b = Builder("running")
    X = b.input("X", (12,))
    r = b.axis("r", 12)
    A = b.compute("A", (1,), lambda a: total(X[r], r))
    Y = b.compute("Y", (12,), lambda i: X[i] / A[0])
    program = b.program(Y)
    s = Schedule(program)
    s.compute_at("A", "i")  # computed again in every iteration: its quotient belongs there
    assert costly_inside(lower(s.program, TARGET).body) == ["i"]


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 9), st.booleans(), st.booleans())
def test_results_are_the_same(rows, cols, width, lanes, inside):
    plain = centred(rows, cols)
    s = Schedule(plain)
    if inside:
        s.compute_at("V", "i")
    _, inner = s.split("j", [None, width], tail=True)
    if lanes:
        s.vectorize(inner)
    inputs = {"X": np.random.default_rng(cols).normal(size=(rows, cols)).astype("float32")}
    found = run_checked(lower(s.program, TARGET), s.program, inputs)["Y"]
    np.testing.assert_allclose(found, interpret(plain, inputs)["Y"], rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("cols", [1, 16, 37])
def test_compiled_rows_are_right(cols):
    program = centred(3, cols)
    s = Schedule(program)
    _, inner = s.split("j", [None, 16], tail=True)
    s.vectorize(inner)
    inputs = {"X": np.random.default_rng(cols).normal(size=(3, cols)).astype("float32")}
    found = sl.compile(s.program, TARGET)(*inputs.values())
    np.testing.assert_allclose(found, interpret(program, inputs)["Y"], rtol=2e-6, atol=1e-6)
