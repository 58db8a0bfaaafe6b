"""Loop fusion: neighbours become one loop exactly if every iteration keeps to a part of its own."""

import numpy as np
import pytest
from checked_run import run_checked
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.defaults import default_schedule
from searchlab.ir import Builder, call, interpret, total
from searchlab.ir.expr import maximum, minimum
from searchlab.ir.program import Program
from searchlab.ir.stmt import Loop, Seq
from searchlab.lower.flatten import flatten
from searchlab.lower.fusion import fuse_loops
from searchlab.lower.passes import lower
from searchlab.schedule import Schedule
from searchlab.targets import parse
from searchlab.workloads import parse as parse_workload

TARGETS = [parse("x86-64-v3"), parse("x86-64-v4")]


def chain(length: int, shift: int) -> Program:
    """E[j] from X; S, the sum of E read `shift` elements further; Y from both."""
    b = Builder("chain")
    X = b.input("X", (length,))
    r = b.axis("r", length)
    E = b.compute("E", (length,), lambda j: X[j] * 2.0)
    S = b.compute("S", (1,), lambda i: total(E[maximum(0, minimum(length - 1, r + shift))], r))
    Y = b.compute("Y", (length,), lambda j: E[j] + S[0])
    return b.program(Y)


def loops_of(program: Program) -> list[str]:
    """The outermost loops after fusion."""
    body = fuse_loops(flatten(program))
    return [s.name for s in (body.body if isinstance(body, Seq) else (body,)) if isinstance(s, Loop)]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 24), st.integers(-3, 3), st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_the_result_is_the_same(length, shift, first, second, lanes):
    plain = chain(length, shift)
    s = Schedule(plain)
    _, inner = s.split("j", [None, first], tail=True)
    _, along = s.split("r", [None, second], tail=True)
    if lanes:
        s.vectorize(inner)
        s.vectorize(along)
    inputs = {"X": np.random.default_rng(length).integers(-9, 10, length).astype("float32")}
    expected = interpret(plain, inputs)["Y"]
    assert np.array_equal(run_checked(lower(s.program, TARGETS[0]), s.program, inputs)["Y"], expected)


@pytest.mark.parametrize(("shift", "fused"), [(0, True), (1, False), (-1, False)])
def test_elements_of_other_iterations_keep_loops_apart(shift, fused):
    b = Builder("shifted")
    X = b.input("X", (10,))
    A = b.compute("A", (10,), lambda i: X[i] * 2.0)
    Y = b.compute("Y", (10,), lambda j: A[maximum(0, minimum(9, j + shift))] if shift else A[j])
    assert len(loops_of(b.program(Y))) == (1 if fused else 2)


@pytest.mark.parametrize(("sizes", "fused"), [((4, 4), True), ((4, 2), False), ((3, 3), True)])
def test_blocks_of_the_same_size_are_fused(sizes, fused):
    b = Builder("blocks")
    X = b.input("X", (12,))
    A = b.compute("A", (12,), lambda i: X[i] * 2.0)
    Y = b.compute("Y", (12,), lambda j: A[j] + 1.0)
    s = Schedule(b.program(Y))
    for lp, size in zip("ij", sizes, strict=True):
        s.split(lp, [None, size])
    assert len(loops_of(s.program)) == (1 if fused else 2)


def test_a_result_of_all_iterations_is_awaited():
    b = Builder("whole")
    X = b.input("X", (8,))
    r = b.axis("r", 8)
    S = b.compute("S", (1,), lambda i: total(X[r], r))
    Y = b.compute("Y", (8,), lambda j: X[j] + S[0])
    assert len(loops_of(b.program(Y))) == 2


def test_loops_that_share_nothing_stay_as_they_are():
    b = Builder("apart")
    X = b.input("X", (8,))
    A = b.compute("A", (8,), lambda i: X[i] * 2.0)
    B = b.compute("B", (8,), lambda j: call("exp", X[j]))
    assert len(loops_of(b.program(A, B))) == 2


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("cols", [4096, 1000])
def test_softmax_sums_exponentials_up_as_it_computes_them(target, cols):
    w = parse_workload(f"softmax:rows=8,cols={cols}")
    text = str(lower(default_schedule(w.program, target), target))
    exponentials = text[text.index("exp(") : text.index("/ S")]
    assert exponentials.split("for ")[1].startswith("S_") and "for E_j_0" in text
    assert text.count("for E_j_0") == 1 and "for S_r_0" not in text and "for S_r2_0" not in text
