"""Chains of pointwise functions, and reductions along one axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from searchlab.dtype import FLOATS
from searchlab.errors import WorkloadError
from searchlab.ir.compute import Builder, Reduction, Tensor, largest, smallest, total
from searchlab.ir.expr import Expr, Var
from searchlab.workloads.building_blocks import fitted, named, require, sum_stage, wide
from searchlab.workloads.catalogue import operator
from searchlab.workloads.definition import Array, Definition
from searchlab.workloads.parameters import Extent, Float, Number
from searchlab.workloads.pointwise import BINARY, UNARY, steps


@operator
def elementwise(
    rows: Extent = 1024, cols: Extent = 1024, ops: str = "add,relu", dtype: Float = "float32"
) -> Definition:
    """A chain of pointwise functions, one stage each; every two-operand one (add, mul, ...) brings an input."""
    chain = steps(ops, (*UNARY, *BINARY))
    require(bool(chain), "ops names no function")
    b = Builder("elementwise")
    value = b.input("X", (rows, cols), dtype)
    for number, op in enumerate(chain, 1):
        other = b.input(f"A{number}", (rows, cols), dtype) if op in BINARY else None
        last = number == len(chain)
        body = _step(op, value, other, dtype if last else "float32")
        value = b.compute("Y" if last else f"T{number}", (rows, cols), body)

    def reference(X: Array, *others: Array) -> Array:
        rest = list(others)
        for op in chain:
            X = BINARY[op].array(X, rest.pop(0)) if op in BINARY else UNARY[op].array(X)
        return X

    return Definition(b.program(value), reference)


def _step(op: str, x: Tensor, other: Tensor | None, dtype: str) -> Callable[[Var, Var], Expr]:
    """One function of the chain, whose result is stored as `dtype` if that is a float of 16 bits."""
    if other is None:
        return lambda i, j: fitted(UNARY[op].expr(wide(x[i, j])), dtype)
    return lambda i, j: fitted(BINARY[op].expr(wide(x[i, j]), wide(other[i, j])), dtype)


_REDUCTIONS: dict[str, tuple[Callable[..., Reduction], Callable[..., Array]]] = {
    "sum": (total, np.sum),
    "mean": (total, np.mean),
    "max": (largest, np.max),
    "min": (smallest, np.min),
}


@operator
def reduce(
    shape: str = "64x128x32",
    axis: int = -1,
    op: Literal["sum", "max", "min", "mean"] = "sum",
    dtype: Number = "float32",
) -> Definition:
    """A reduction along one axis of an array of any rank (a vector is reduced to one element)."""
    extents, place = _shape(shape, axis)
    require(op != "mean" or dtype in FLOATS, f"op = mean needs a floating-point dtype, not {dtype}")
    combine, array = _REDUCTIONS[op]
    b = Builder("reduce")
    X = b.input("X", extents, dtype)
    r = b.axis("r", extents[place])
    kept = [e for a, e in enumerate(extents) if a != place] or [1]
    names = [f"i{a}" for a in range(len(kept))]

    def body(*indices: Var) -> Reduction:
        at: list[Expr] = list(indices[: len(extents) - 1])
        at.insert(place, r)
        value = X[tuple(at)]
        return combine(wide(value) if op in ("sum", "mean") else value, r)

    if op == "mean":
        S = b.compute("S", kept, named(names, body))
        Y = b.compute("Y", kept, named(names, lambda *at: fitted(S[at] / float(extents[place]), dtype)))
    else:
        Y = sum_stage(b, "Y", kept, named(names, body), dtype if op == "sum" else "float32")
    return Definition(b.program(Y), lambda X: array(X, axis=place).reshape(kept))


def _shape(text: str, axis: int) -> tuple[tuple[int, ...], int]:
    try:
        extents = tuple(int(e) for e in text.split("x"))
    except ValueError:
        raise WorkloadError(f"shape = '{text}' is not of the form 64x128x32") from None
    require(min(extents) >= 1, f"shape = {text}: extents are at least 1")
    require(-len(extents) <= axis < len(extents), f"axis = {axis} is outside the {len(extents)} axes of shape = {text}")
    return extents, axis % len(extents)
