"""Tails of run-time sizes: the last tile is kept in registers, whatever its rows, also below fused parallel loops."""

from __future__ import annotations

import pytest
from checked_run import run_checked

from searchlab.backend import compile
from searchlab.ir import index, size
from searchlab.ir.expr import Var
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.program import Program
from searchlab.ir.stmt import Loop, Seq
from searchlab.lower.passes import Lowered, lower
from searchlab.lower.remainders import remainder
from searchlab.schedule import Schedule
from searchlab.targets import parse as target
from searchlab.workloads import workload

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
    assert found.values == tuple(i * 6 + n for n in range(1, 6))
    assert remainder(i * 6 + r < m, [Loop(r, index(6), Seq(()))]) is None  # serial: it ends where the size does
    assert remainder(i * 6 + r < m * 2, [loop]) is None
    assert remainder(i * 6 < m, [loop]) is None
    assert remainder(i * 6 + r < 20, [loop]) is None
