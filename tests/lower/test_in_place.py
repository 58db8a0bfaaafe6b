"""Stages in place: a stage lives in the output's memory if nothing that is still needed is overwritten there."""

from dataclasses import replace

import numpy as np
import pytest
from checked_run import run_checked
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.defaults import default_schedule
from searchlab.ir import Builder, call, interpret, total
from searchlab.ir.expr import maximum
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import statements
from searchlab.ir.stmt import Alloc
from searchlab.lower.passes import lower
from searchlab.schedule import Schedule
from searchlab.targets import parse
from searchlab.workloads import parse as parse_workload

TARGET = parse("x86-64-v3")
COLUMNS = 600  # a row of them is worth it


def held(program: Program) -> set[str]:
    """The stages that have memory of their own."""
    return {s.buffer.name.split(".")[0] for s in statements(lower(program, TARGET).body) if isinstance(s, Alloc)}


def stages(rows: int = 4, columns: int = COLUMNS, *, ending: str = "scaled") -> Program:
    """E from X, its row sums S, and a result of both in one of several ways."""
    b = Builder("stages")
    X = b.input("X", (rows, columns))
    r = b.axis("r", columns)
    E = b.compute("E", (rows, columns), lambda i, j: X[i, j] * 2.0)
    S = b.compute("S", (rows,), lambda i: total(E[i, r], r))
    results = {
        "scaled": lambda i, j: E[i, j] + S[i],
        "reversed": lambda i, j: E[i, columns - 1 - j] + S[i],
        "other rows": lambda i, j: E[rows - 1 - i, j] + S[i],
        "neighbours": lambda i, j: E[i, j] + E[i, (j + 1) % columns] + S[i],
    }
    return b.program(b.compute("Y", (rows, columns), results[ending]))


def by_rows(program: Program, *, fused: bool = True) -> Schedule:
    """Every stage computed for one row of the result at a time."""
    s = Schedule(program)
    if fused:
        row = s.loops("Y")[0]
        s.compute_at("S", row)
        s.compute_at("E", row)
    return s


def right(program: Program, plain: Program) -> bool:
    shape = tuple(int(n.value) for n in plain.buffers["X"].shape)
    inputs = {"X": np.random.default_rng(0).integers(-9, 10, shape).astype("float32")}
    return np.array_equal(run_checked(lower(program, TARGET), program, inputs)["Y"], interpret(plain, inputs)["Y"])


@pytest.mark.parametrize("fused", [True, False])
def test_a_stage_that_becomes_the_output_has_no_memory(fused):
    s = by_rows(stages(), fused=fused)
    assert "E" not in held(s.program) and right(s.program, stages())


@pytest.mark.parametrize("ending", ["reversed", "other rows", "neighbours"])
def test_other_elements_are_still_needed(ending):
    s = by_rows(stages(ending=ending), fused=False)
    assert "E" in held(s.program) and right(s.program, stages(ending=ending))


def test_a_few_vectors_stay_close_to_the_registers():
    s = by_rows(stages(columns=24))
    assert "E" in held(s.program) and right(s.program, stages(columns=24))


def test_rows_that_are_computed_again_would_overwrite_results():
    b = Builder("overlap")
    X, k = b.input("X", (8, COLUMNS)), b.axis("k", 2)
    E = b.compute("E", (8, COLUMNS), lambda i, j: X[i, j] * 2.0)
    S = b.compute("S", (8, COLUMNS), lambda i, j: total(E[maximum(0, i - k), j], k))
    plain = b.program(b.compute("Y", (8, COLUMNS), lambda i, j: E[i, j] + S[i, j]))
    s = by_rows(plain)  # each row computes that before it once more
    assert "E" in held(s.program) and right(s.program, plain)


def test_what_is_read_after_the_output_was_written_is_kept():
    b = Builder("two")
    X = b.input("X", (4, COLUMNS))
    E = b.compute("E", (4, COLUMNS), lambda i, j: X[i, j] * 2.0)
    Y = b.compute("Y", (4, COLUMNS), lambda i, j: E[i, j] + 1.0)
    r = b.axis("r", COLUMNS)
    Z = b.compute("Z", (4,), lambda i: total(E[i, r], r))
    plain = b.program(Y, Z)
    assert "E" in held(plain) and right(plain, plain)


def test_an_output_that_is_updated_is_left_alone():
    assert "E" in held(replace(stages(), updates=("Y",)))


def test_sums_are_not_made_in_the_output():
    b = Builder("product")
    X, W, k = b.input("X", (4, 16)), b.input("W", (16, COLUMNS)), b.axis("k", 16)
    C = b.compute("C", (4, COLUMNS), lambda i, j: total(X[i, k] * W[k, j], k))
    assert "C" in held(b.program(b.compute("Y", (4, COLUMNS), lambda i, j: call("exp", C[i, j]))))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(1, 40), st.integers(1, 3), st.integers(1, 70), st.booleans())
def test_the_result_is_the_same(rows, groups, tile, lanes, vectors):
    plain = stages(rows, 16 * groups + 512)
    s = Schedule(plain)
    outer = s.split(s.loops("Y")[0], [None, tile], tail=True)[0]
    s.compute_at("S", outer)
    s.compute_at("E", outer)
    for stage in ("E", "Y"):
        inner = s.split(s.loops(stage)[-1], [None, lanes], tail=True)[-1]
        if vectors:
            s.vectorize(inner)
    assert right(s.program, plain)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_softmax_keeps_its_exponentials_in_the_output(target):
    w = parse_workload("softmax:rows=8,cols=1024")
    lowered = lower(default_schedule(w.program, parse(target)), parse(target))
    assert not any(isinstance(s, Alloc) and s.buffer.name == "E" for s in statements(lowered.body))
