"""Vectors whose length is known at run time: full registers, then smaller ones, and nothing beyond the end."""

import numpy as np
import pytest

import searchlab as sl
from searchlab.backend import Kernel
from searchlab.ir import Builder, Program, call, largest, size, total
from searchlab.llvm.module import generate
from searchlab.lower.passes import lower
from searchlab.schedule import Schedule
from searchlab.targets import parse

N = size("n")
TARGET = parse("x86-64-v3")


def pointwise() -> Program:
    b = Builder("pointwise")
    X = b.input("X", (N,))
    s = Schedule(b.program(b.compute("Y", (N,), lambda i: call("exp", X[i]) + 1.0)))
    s.vectorize("i")
    return s.program


def reduced(kind: str) -> Program:
    b = Builder("reduced")
    X, k = b.input("X", (3, N)), b.axis("k", N)
    combine = {"sum": total, "max": largest}[kind]
    s = Schedule(b.program(b.compute("Y", (3,), lambda i: combine(X[i, k], k))))
    s.vectorize("k")
    return s.program


def checked(kernel: Kernel, x: np.ndarray, wanted: np.ndarray) -> None:
    """Runs on arrays inside larger ones, whose other elements must neither matter nor change."""
    whole = np.full(x.size + 64, np.nan, "float32")
    given = whole[32 : 32 + x.size].reshape(x.shape)
    given[...] = x
    around = np.full(wanted.size + 64, 7.0, "float32")
    out = around[32 : 32 + wanted.size].reshape(wanted.shape)
    kernel(given, out=out)
    np.testing.assert_allclose(out, wanted, rtol=1e-5)
    assert (around[:32] == 7).all() and (around[32 + wanted.size :] == 7).all()


@pytest.mark.parametrize("kind", ["exp", "sum", "max"])
def test_every_length(kind: str) -> None:
    kernel = sl.compile(pointwise() if kind == "exp" else reduced(kind), TARGET)
    for n in range(1, 40):
        x = np.random.default_rng(n).random(n if kind == "exp" else (3, n), dtype=np.float32)
        checked(kernel, x, np.exp(x) + 1 if kind == "exp" else getattr(x, kind)(axis=1))


@pytest.mark.parametrize(("machine", "widths"), [("x86-64-v3", (8, 4, 2)), ("x86-64-v4", (16, 8, 4, 2))])
def test_ends_take_half_registers(machine: str, widths: tuple[int, ...]) -> None:
    target = parse(machine)
    code = generate(lower(pointwise(), target), target).ir
    assert all(f"load <{w} x float>" in code for w in widths)


def test_ends_of_long_code_are_single_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("searchlab.llvm.module.MOST_IN_PIECES", 3)
    code = generate(lower(pointwise(), TARGET), TARGET).ir
    assert "load <8 x float>" in code and "load <4 x float>" not in code
    kernel = sl.compile(pointwise(), TARGET)
    for n in (1, 7, 8, 21):
        x = np.random.default_rng(n).random(n, dtype=np.float32)
        checked(kernel, x, np.exp(x) + 1)
