"""Chains of pointwise functions, and reductions along one axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from searchlab.dtype import FLOATS
from searchlab.errors import WorkloadError
from searchlab.ir.compute import Builder, Reduction, Tensor, largest, smallest, total
from searchlab.ir.expr import Expr, Var
from searchlab.workloads.building_blocks import named, require, wide
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
        value = b.compute("Y" if number == len(chain) else f"T{number}", (rows, cols), _step(op, value, other))

    def reference(X: Array, *others: Array) -> Array:
        rest = list(others)
        for op in chain:
            X = BINARY[op].array(X, rest.pop(0)) if op in BINARY else UNARY[op].array(X)
        return X

    return Definition(b.program(value), reference)


def _step(op: str, x: Tensor, other: Tensor | None) -> Callable[[Var, Var], Expr]:
    if other is None:
        return lambda i, j: UNARY[op].expr(x[i, j])
    return lambda i, j: BINARY[op].expr(x[i, j], other[i, j])


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
        return combine(wide(value) if op == "sum" else value, r)

    Y = b.compute("S" if op == "mean" else "Y", kept, named(names, body))
    if op == "mean":
        S = Y
        Y = b.compute("Y", kept, named(names, lambda *at: S[at] / float(extents[place])))
    return Definition(b.program(Y), lambda X: array(X, axis=place).reshape(kept))


def _shape(text: str, axis: int) -> tuple[tuple[int, ...], int]:
    try:
        extents = tuple(int(e) for e in text.split("x"))
    except ValueError:
        raise WorkloadError(f"shape = '{text}' is not of the form 64x128x32") from None
    require(min(extents) >= 1, f"shape = {text}: extents are at least 1")
    require(-len(extents) <= axis < len(extents), f"axis = {axis} is outside the {len(extents)} axes of shape = {text}")
    return extents, axis % len(extents)
