"""Fusion after scheduling: what joins an anchor gives the same results, what must not is refused."""

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

import searchlab as sl
from searchlab.errors import SpaceError
from searchlab.ir import Program
from searchlab.ir.compute import Builder, Tensor, total
from searchlab.ir.expr import Expr, all_of, maximum, select
from searchlab.ir.interpret import interpret
from searchlab.schedule import Schedule
from spaces.task_mapping.fusion import fuse_epilogue, fuse_prologue

M, N, K = 6, 10, 7


def anchored(after: Callable[[Builder, Tensor], Tensor], before: bool = False) -> Program:
    """A scheduled product with its sums in an array of its own, then `after`; with `before`, a producer of A."""
    b = Builder("test")
    A, B, bias = b.input("A", (M, K)), b.input("B", (K, N)), b.input("bias", (N,))
    P = b.compute("P", (M, K), lambda i, k: maximum(A[i, k], 0) * 2.0) if before else A
    r = b.axis("r", K)
    C = b.compute("C", (M, N), lambda i, j: total(P[i, r] * B[r, j], r))
    assert bias.name == "bias"
    program = b.program(after(b, C))
    s = Schedule(program)
    out = s.cache_write("C")
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, [None, 4], tail=True)
    j0, j1 = s.split(j, [None, 8], tail=True)
    s.reorder(i0, j0, k, i1, j1)
    s.unroll(i1)
    s.vectorize(j1)
    s.reverse_compute_at(out, j0)
    return s.program


def bias_relu(b: Builder, c: Tensor) -> Tensor:
    bias = b.input("bias2", (N,))
    return b.compute("Y", (M, N), lambda i, j: maximum(c[i, j] + bias[j], 0))


def same(before: Program, after: Program) -> None:
    rng = np.random.default_rng(0)
    inputs = {
        n: rng.standard_normal([int(e.value) for e in before.buffers[n].shape]).astype("float32")  # type: ignore[attr-defined]
        for n in before.inputs
    }
    want = interpret(before, inputs)
    got = sl.compile(after, sl.detect())(*inputs.values())
    np.testing.assert_allclose(got, next(iter(want.values())), rtol=1e-5)
    np.testing.assert_allclose(next(iter(interpret(after, inputs).values())), got, rtol=1e-5)


EPILOGUES: dict[str, Callable[[Builder, Tensor], Tensor]] = {
    "elementwise": bias_relu,
    "transpose": lambda b, c: b.compute("Y", (N, M), lambda i, j: c[j, i] + 1.0),
    "flatten": lambda b, c: b.compute("Y", (M * N,), lambda x: c[x // N, x % N] * 2.0),
    "split": lambda b, c: b.compute("Y", (M, 2, N // 2), lambda i, a, x: c[i, a * (N // 2) + x] * 2.0),
    "reshape and transpose": lambda b, c: b.compute("Y", (N // 2, 2, M), lambda x, a, i: c[i, a * (N // 2) + x]),
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogue(name: str) -> None:
    before = anchored(EPILOGUES[name])
    after = fuse_epilogue(before, "Y")
    assert "Y" not in after.blocks and "C" not in after.buffers
    same(before, after)


def fuse_around(program: Program, anchor: str) -> Program:
    """All epilogues of an anchor that can be fused, one after the other, then its prologues."""
    for fuse in (fuse_epilogue, fuse_prologue):
        names = [n for n in program.blocks if n != anchor]
        for name in names if fuse is fuse_epilogue else reversed(names):
            with suppress(SpaceError):
                program = fuse(program, name)
    return program


def test_epilogues_compose() -> None:
    def chain(b: Builder, c: Tensor) -> Tensor:
        flat = b.compute("F", (M * N,), lambda x: c[x // N, x % N] + 1.0)
        return b.compute("Y", (N * M,), lambda x: maximum(flat[x], 0))

    before = anchored(chain)
    after = fuse_epilogue(fuse_epilogue(before, "F"), "Y")
    assert list(after.blocks) == ["C", "C_store"]
    same(before, after)
    assert fuse_around(before, "C").hash == after.hash


def test_prologue() -> None:
    before = anchored(bias_relu, before=True)
    after = fuse_prologue(before, "P")
    assert "P" not in after.blocks
    same(before, after)
    around = fuse_around(before, "C")
    assert list(around.blocks) == ["C", "C_store"]
    same(before, around)


def test_padding_as_prologue() -> None:
    w = sl.workload("conv2d", ci=3, co=4, h=5, w=7, k=3, padding=1)
    fused = fuse_prologue(w.program, "P")
    assert list(fused.blocks) == ["Y"]
    inputs = w.inputs(seed=0)
    assert w.check(sl.compile(fused, sl.detect())(*inputs.values()), inputs) is None


def test_bn_relu_as_epilogue_of_a_scheduled_convolution() -> None:
    w = sl.workload("conv2d_bn_relu", ci=3, co=4, h=5, w=7, k=3, padding=1)
    s = Schedule(w.program)
    s.cache_write("C")
    fused = fuse_around(s.program, "C")
    assert list(fused.blocks) == ["C", "C_store"]
    inputs = w.inputs(seed=0)
    assert w.check(sl.compile(fused, sl.detect())(*inputs.values()), inputs) is None


def padded(b: Builder, c: Tensor) -> Tensor:
    def body(i: Expr, j: Expr) -> Expr:
        return select(all_of([i >= 1, i < M + 1]), c[i - 1, j], 0)

    return b.compute("Y", (M + 2, N), lambda i, j: body(i, j))


def two_readers(b: Builder, c: Tensor) -> Tensor:
    d = b.compute("D", (M, N), lambda i, j: c[i, j] + 1.0)
    return b.compute("Y", (M, N), lambda i, j: c[i, j] * d[i, j])


def row_sums(b: Builder, c: Tensor) -> Tensor:
    r = b.axis("q", N)
    return b.compute("Y", (M,), lambda i: total(c[i, r], r))


REFUSED: dict[str, tuple[Callable[[Builder, Tensor], Tensor], str]] = {
    "broadcast": (lambda b, c: b.compute("Y", (M, N, 3), lambda i, j, x: c[i, j] * 2.0), "not invertible"),
    "modulo": (lambda b, c: b.compute("Y", (M, 2 * N), lambda i, x: c[i, x % N]), "exactly once"),
    "pad": (padded, "exactly once"),
    "slice": (lambda b, c: b.compute("Y", (M, N - 2), lambda i, j: c[i, j]), "exactly once"),
    "steps": (lambda b, c: b.compute("Y", (M, N // 2), lambda i, j: c[i, j * 2]), "exactly once"),
    "twice": (lambda b, c: b.compute("Y", (M, N), lambda i, j: c[i, j] * c[i, j]), "2 times; accepted: once"),
    "two places": (lambda b, c: b.compute("Y", (M, N), lambda i, j: c[i, j] + c[i, 0]), "2 times; accepted: once"),
    "two readers": (two_readers, "several readers"),
    "reduction": (row_sums, "reduces"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_epilogues(name: str) -> None:
    after, message = REFUSED[name]
    before = anchored(after)
    with pytest.raises(SpaceError, match=message):
        fuse_epilogue(before, "D" if "D" in before.blocks else "Y")
    same(before, fuse_around(before, "C"))


def test_sums_are_not_final_when_stored() -> None:
    w = sl.workload("dense", m=4, n=5, k=6, activation="relu")
    with pytest.raises(SpaceError, match="not final when stored"):
        fuse_epilogue(w.program, "Y")


def test_refused_prologues() -> None:
    b = Builder("shared")
    X = b.input("X", (M, N))
    P = b.compute("P", (M, N), lambda i, j: X[i, j] + 1.0)
    D = b.compute("D", (M, N), lambda i, j: P[i, j] * 2.0)
    shared = b.program(b.compute("Y", (M, N), lambda i, j: P[i, j] * D[i, j]))
    with pytest.raises(SpaceError, match="2 readers; accepted: one"):
        fuse_prologue(shared, "P")
    program = anchored(two_readers)
    with pytest.raises(SpaceError, match="reduces"):
        fuse_prologue(program, "C")
    with pytest.raises(SpaceError, match="0 readers"):
        fuse_prologue(program, "Y")
    with pytest.raises(SpaceError, match="no stage 'Z'"):
        fuse_epilogue(program, "Z")
