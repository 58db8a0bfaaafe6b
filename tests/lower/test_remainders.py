"""Tails of run-time sizes: the last tile is kept in registers, whatever its rows, also below fused parallel loops."""

from __future__ import annotations

import numpy as np
import pytest
from checked_run import run_checked

from searchlab.backend import compile
from searchlab.ir import Builder, index, size, total
from searchlab.ir.expr import ZERO, Var, compare, maximum
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.program import Program
from searchlab.ir.stmt import Loop, Seq
from searchlab.lower.passes import Lowered, lower
from searchlab.lower.remainders import remainder
from searchlab.schedule import Schedule
from searchlab.targets import parse as target
from searchlab.workloads import workload

N = size("n")
ANY = workload("matmul", m="?", n=32, k=5)
MACHINE = target("x86-64-v3:threads=2")


def tiled(rows: int, fused: bool) -> Program:
    s = Schedule(ANY.program)
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, [None, rows], tail=True)
    j0, j1 = s.split(j, [None, 16])
    s.reorder(i0, j0, k, i1, j1)
    s.unroll(i1)
    s.vectorize(j1)
    s.parallel(s.fuse(i0, j0) if fused else i0)
    return s.program


def lowered(rows: int, fused: bool) -> Lowered:
    return lower(tiled(rows, fused), MACHINE)


@pytest.mark.parametrize("fused", [False, True])
def test_every_number_of_rows_has_a_register_tile(fused: bool) -> None:
    text = str(lowered(4, fused))
    assert text.count("in register") == 4 and "C.r0: float32[4, 16]" in text
    assert [f"+ {n}:" in text for n in (1, 2, 3, 4)] == [True, True, True, False]
    assert "if i_1" not in text


@pytest.mark.parametrize("rows", [2, 3, 5])
@pytest.mark.parametrize("fused", [False, True])
def test_right_for_every_remainder(rows: int, fused: bool) -> None:
    program, kernel = tiled(rows, fused), compile(tiled(rows, fused), MACHINE)
    code = lowered(rows, fused)
    for m in range(1, 2 * rows + 2):
        inputs = ANY.inputs(m=m)
        assert ANY.check(kernel(*inputs.values()), inputs) is None
        assert ANY.check(run_checked(code, program, inputs, {"m": m}), inputs) is None


def test_large_tiles_are_not_told_apart() -> None:
    assert str(lowered(17, False)).count("in register") == 1


def test_remainders() -> None:
    m, i, r = size("m"), Var("i"), Var("r")
    loop = Loop(r, index(6), Seq(()), LoopKind.UNROLLED)
    found = remainder(i * 6 + r < m, [loop])
    assert found is not None and (found.size, found.base, found.tile) == (m, i * 6, 6)
    others = [i * 6 + Var("other") < m, Var("j") * 16 + r < m]  # another stage on these rows, and another axis
    inside = [loop, Loop(Var("other"), index(6), Seq(()))]
    wanted = {c: compare("lt", ZERO, 2 - row) for c, row in ((i * 6 + r < m, r), (others[0], Var("other")))}
    assert found.where(2, [i * 6 + r < m, *others], inside) == wanted
    assert remainder(i * 6 + r < m, [Loop(r, index(6), Seq(()))]) is None  # serial: it ends where the size does
    assert remainder(i * 6 + r < m * 2, [loop]) is None
    assert remainder(i * 6 < m, [loop]) is None
    assert remainder(i * 6 + r < 20, [loop]) is None


def two_stages() -> Program:
    """A product and what follows it, both for the rows of one tile, and a sum over as many terms as there are rows."""
    b = Builder("two_stages")
    X, W = b.input("X", (N, N)), b.input("W", (N, 16))
    k = b.axis("k", N)
    C = b.compute("C", (N, 16), lambda i, j: total(X[i, k] * W[k, j], k))
    s = Schedule(b.program(b.compute("Y", (N, 16), lambda i, j: maximum(C[i, j], 0.0) * 2.0)))
    rows, row = s.split("Y_i", [None, 4], tail=True)
    s.reorder(rows, row, "Y_j")
    s.compute_at("C", rows)
    i, j, terms = s.loops("C")[-3:]
    s.reorder(terms, i, j)
    for loops in ((i, j), (row, "Y_j")):
        s.unroll(loops[0])
        s.vectorize(loops[1])
    return s.program


def test_equal_conditions_of_several_stages_are_cut_together() -> None:
    """Sizes that other loops run to are not replaced: only whether a row is left is."""
    machine = target("x86-64-v3")
    code = lower(two_stages(), machine)
    text = str(code)
    assert text.count("in register") == 4 and text.count(" in n:") == 4
    assert [text.count(f"+ {rows}:") for rows in (1, 2, 3, 4)] == [1, 1, 1, 0]
    kernel = compile(two_stages(), machine)
    for n in range(1, 10):
        rng = np.random.default_rng(n)
        x, w = rng.random((n, n), dtype=np.float32) - 0.5, rng.random((n, 16), dtype=np.float32) - 0.5
        wanted = np.maximum(x @ w, 0) * 2
        found = run_checked(code, two_stages(), {"X": x, "W": w}, {"n": n})["Y"]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(kernel(x, w), wanted, rtol=1e-4, atol=1e-6)


def test_bounds_that_are_the_same_are_said_once() -> None:
    assert "min(" not in str(lower(two_stages(), target("x86-64-v3")))
