"""Normalisations: softmax, layer_norm, l2_norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from searchlab.dtype import DTYPES
from searchlab.ir.compute import Builder, Tensor, largest, total
from searchlab.ir.expr import Expr, Var, call, cast, index
from searchlab.workloads.building_blocks import fitted, named, wide
from searchlab.workloads.catalogue import operator
from searchlab.workloads.definition import Array, Definition
from searchlab.workloads.parameters import Extent, Float
from searchlab.workloads.pointwise import BINARY


@operator
def softmax(rows: Extent = 256, cols: Extent = 256, dtype: Float = "float32") -> Definition:
    """exp(x) divided by its sum over each row, the row's maximum taken off first."""
    b = Builder("softmax")
    Y = softmax_stages(b, b.input("X", (rows, cols), dtype), ("i", "j"), 1, dtype)

    def reference(X: Array) -> Array:
        e = np.exp(X - X.max(axis=1, keepdims=True))
        y: Array = e / e.sum(axis=1, keepdims=True)
        return y

    return Definition(b.program(Y), reference)


def softmax_stages(b: Builder, X: Tensor, names: Sequence[str], axis: int, dtype: str) -> Tensor:
    """Stages M, E, S and Y, the softmax of a tensor of any rank along an axis; `names` are those of the loops."""
    r = b.axis("r", X.shape[axis])

    def lead(at: Sequence[Any]) -> tuple[Any, ...]:
        return (*at[:axis], *at[axis + 1 :])

    def along(at: tuple[Var, ...]) -> tuple[Var, ...]:
        return (*at[:axis], r, *at[axis:])

    rows, extents = lead(names), lead(X.shape)
    M = b.compute("M", extents, named(rows, lambda *at: largest(wide(X[along(at)]), r)))
    E = b.compute("E", X.shape, named(names, lambda *at: call("exp", wide(X[at]) - M[lead(at)])))
    S = b.compute("S", extents, named(rows, lambda *at: total(E[along(at)], r)))
    return b.compute("Y", X.shape, named(names, lambda *at: fitted(E[at] / S[lead(at)], dtype)))


@operator
def layer_norm(rows: Extent = 128, cols: Extent = 768, eps: float = 1e-5, dtype: Float = "float32") -> Definition:
    """Rows shifted to mean 0 and scaled to variance 1, then gamma and beta; the variance is taken around the mean."""
    b = Builder("layer_norm")
    X = b.input("X", (rows, cols), dtype)
    gamma, beta = b.input("gamma", (cols,), dtype), b.input("beta", (cols,), dtype)
    Y = layer_norm_stages(b, X, ("i", "j"), 1, (gamma, beta), eps, dtype)

    def reference(X: Array, gamma: Array, beta: Array) -> Array:
        mean, variance = X.mean(axis=1, keepdims=True), X.var(axis=1, keepdims=True)
        y: Array = (X - mean) / np.sqrt(variance + eps) * gamma + beta
        return y

    return Definition(b.program(Y), reference, weights=("gamma", "beta"))


def layer_norm_stages(
    b: Builder, X: Tensor, names: Sequence[str], lead: int, affine: tuple[Tensor, ...], eps: float, dtype: str
) -> Tensor:
    """Stages S, M, V, D and Y, the normalisation over all axes after the first `lead`; `affine` is gamma and beta.

    Either both are given, or gamma alone, or none; `names` are those of the loops.
    """
    inner = X.shape[lead:]
    axes = [b.axis("r" if len(inner) == 1 else f"r{n}", e) for n, e in enumerate(inner)]
    count = cast(math.prod(inner, start=index(1)), DTYPES[dtype].arithmetic)
    rows, extents = names[:lead], X.shape[:lead]

    def deviation(at: tuple[Var, ...]) -> Expr:
        return wide(X[(*at, *axes)]) - M[at]

    S = b.compute("S", extents, named(rows, lambda *at: total(wide(X[(*at, *axes)]), *axes)))
    M = b.compute("M", extents, named(rows, lambda *at: S[at] / count))
    V = b.compute("V", extents, named(rows, lambda *at: total(deviation(at) * deviation(at), *axes)))
    D = b.compute("D", extents, named(rows, lambda *at: call("rsqrt", V[at] / count + eps)))

    def scaled(*at: Var) -> Expr:
        value = (wide(X[at]) - M[at[:lead]]) * D[at[:lead]]
        for weight, step in zip(affine, ("mul", "add"), strict=False):
            value = BINARY[step].expr(value, wide(weight[at[lead:]]))
        return fitted(value, dtype)

    return b.compute("Y", X.shape, named(names, scaled))


@operator
def l2_norm(batch: Extent = 1, rows: Extent = 256, cols: Extent = 256, dtype: Float = "float32") -> Definition:
    """The square root of the sum of squares of each matrix: all of its parallelism is in the reduction."""
    b = Builder("l2_norm")
    X = b.input("X", (batch, rows, cols), dtype)
    i, j = b.axis("i", rows), b.axis("j", cols)
    S = b.compute("S", (batch,), lambda b: total(wide(X[b, i, j]) * wide(X[b, i, j]), i, j))
    Y = b.compute("Y", (batch,), lambda b: fitted(call("sqrt", S[b]), dtype))
    return Definition(b.program(Y), lambda X: np.sqrt(np.square(X).sum(axis=(1, 2))))
