"""Normalisations: softmax, layer_norm, l2_norm."""

from __future__ import annotations

import numpy as np

from searchlab.dtype import DTYPES
from searchlab.ir.compute import Builder, largest, total
from searchlab.ir.expr import Expr, Var, call, cast
from searchlab.workloads.building_blocks import fitted, wide
from searchlab.workloads.catalogue import operator
from searchlab.workloads.definition import Array, Definition
from searchlab.workloads.parameters import Extent, Float


@operator
def softmax(rows: Extent = 256, cols: Extent = 256, dtype: Float = "float32") -> Definition:
    """exp(x) divided by its sum over each row, the row's maximum taken off first."""
    b = Builder("softmax")
    X = b.input("X", (rows, cols), dtype)
    r = b.axis("r", cols)
    M = b.compute("M", (rows,), lambda i: largest(wide(X[i, r]), r))
    E = b.compute("E", (rows, cols), lambda i, j: call("exp", wide(X[i, j]) - M[i]))
    S = b.compute("S", (rows,), lambda i: total(E[i, r], r))
    Y = b.compute("Y", (rows, cols), lambda i, j: fitted(E[i, j] / S[i], dtype))

    def reference(X: Array) -> Array:
        e = np.exp(X - X.max(axis=1, keepdims=True))
        y: Array = e / e.sum(axis=1, keepdims=True)
        return y

    return Definition(b.program(Y), reference)


@operator
def layer_norm(rows: Extent = 128, cols: Extent = 768, eps: float = 1e-5, dtype: Float = "float32") -> Definition:
    """Rows shifted to mean 0 and scaled to variance 1, then gamma and beta; the variance is taken around the mean."""
    b = Builder("layer_norm")
    X = b.input("X", (rows, cols), dtype)
    gamma, beta = b.input("gamma", (cols,), dtype), b.input("beta", (cols,), dtype)
    r, count = b.axis("r", cols), cast(cols, DTYPES[dtype].arithmetic)
    S = b.compute("S", (rows,), lambda i: total(wide(X[i, r]), r))
    M = b.compute("M", (rows,), lambda i: S[i] / count)
    V = b.compute("V", (rows,), lambda i: total((wide(X[i, r]) - M[i]) * (wide(X[i, r]) - M[i]), r))
    D = b.compute("D", (rows,), lambda i: call("rsqrt", V[i] / count + eps))

    def scaled(i: Var, j: Var) -> Expr:
        return fitted((wide(X[i, j]) - M[i]) * D[i] * wide(gamma[j]) + wide(beta[j]), dtype)

    Y = b.compute("Y", (rows, cols), scaled)

    def reference(X: Array, gamma: Array, beta: Array) -> Array:
        mean, variance = X.mean(axis=1, keepdims=True), X.var(axis=1, keepdims=True)
        y: Array = (X - mean) / np.sqrt(variance + eps) * gamma + beta
        return y

    return Definition(b.program(Y), reference, weights=("gamma", "beta"))


@operator
def l2_norm(batch: Extent = 1, rows: Extent = 256, cols: Extent = 256, dtype: Float = "float32") -> Definition:
    """The square root of the sum of squares of each matrix: all of its parallelism is in the reduction."""
    b = Builder("l2_norm")
    X = b.input("X", (batch, rows, cols), dtype)
    i, j = b.axis("i", rows), b.axis("j", cols)
    S = b.compute("S", (batch,), lambda b: total(wide(X[b, i, j]) * wide(X[b, i, j]), i, j))
    Y = b.compute("Y", (batch,), lambda b: fitted(call("sqrt", S[b]), dtype))
    return Definition(b.program(Y), lambda X: np.sqrt(np.square(X).sum(axis=(1, 2))))
