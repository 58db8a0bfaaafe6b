"""Matrix products: matmul, batch_matmul, dense, transpose_batch_matmul."""

from __future__ import annotations

from typing import Literal

import numpy as np

from searchlab.ir.compute import Builder, total
from searchlab.ir.expr import FLOATS
from searchlab.workloads.core import Array, Definition
from searchlab.workloads.parameters import Extent, Float, Number
from searchlab.workloads.pointwise import UNARY
from searchlab.workloads.registry import operator
from searchlab.workloads.stages import require, weight_type, wide


@operator
def matmul(m: Extent = 512, n: Extent = 512, k: Extent = 512, dtype: Number = "float32") -> Definition:
    """C = A B; integers are added up as int32, and uint8 multiplies int8."""
    b = Builder("matmul")
    A, B = b.input("A", (m, k), dtype), b.input("B", (k, n), weight_type(dtype))
    r = b.axis("k", k)
    C = b.compute("C", (m, n), lambda i, j: total(wide(A[i, r]) * wide(B[r, j]), r))
    return Definition(b.program(C), lambda A, B: A @ B, weights=("B",))


@operator
def batch_matmul(
    batch: Extent = 16, m: Extent = 128, n: Extent = 128, k: Extent = 64, dtype: Number = "float32"
) -> Definition:
    """C[b] = A[b] B[b]; both operands are data, none is a weight."""
    b = Builder("batch_matmul")
    A, B = b.input("A", (batch, m, k), dtype), b.input("B", (batch, k, n), weight_type(dtype))
    r = b.axis("k", k)
    C = b.compute("C", (batch, m, n), lambda b, i, j: total(wide(A[b, i, r]) * wide(B[b, r, j]), r))
    return Definition(b.program(C), lambda A, B: A @ B)


@operator
def dense(
    m: Extent = 128,
    n: Extent = 768,
    k: Extent = 768,
    bias: bool = True,
    activation: Literal["none", "relu", "gelu", "tanh"] = "none",
    dtype: Number = "float32",
) -> Definition:
    """Y = activation(X W + bias), a fully connected layer; the weights W are stored (k, n)."""
    require(activation == "none" or dtype in FLOATS, f"activation = {activation} needs a floating-point dtype")
    b = Builder("dense")
    X, W = b.input("X", (m, k), dtype), b.input("W", (k, n), weight_type(dtype))
    r = b.axis("k", k)
    plain = not bias and activation == "none"
    Y = b.compute("Y" if plain else "C", (m, n), lambda i, j: total(wide(X[i, r]) * wide(W[r, j]), r))
    act = UNARY.get(activation)
    if not plain:
        C = Y
        B = b.input("bias", (n,), C.dtype) if bias else None
        shifted = (lambda i, j: C[i, j] + B[j]) if B is not None else (lambda i, j: C[i, j])
        Y = b.compute("Y", (m, n), lambda i, j: act.expr(shifted(i, j)) if act else shifted(i, j))

    def reference(X: Array, W: Array, bias: Array | float = 0.0) -> Array:
        y = X @ W + bias
        return act.array(y) if act else y

    return Definition(b.program(Y), reference, weights=("W", "bias") if bias else ("W",))


@operator
def transpose_batch_matmul(
    batch: Extent = 1, seq: Extent = 128, heads: Extent = 12, dim: Extent = 64, dtype: Float = "float32"
) -> Definition:
    """C = Q K^T per head, the scores of attention; both operands are stored (batch, seq, heads, dim)."""
    b = Builder("transpose_batch_matmul")
    Q, K = (b.input(name, (batch, seq, heads, dim), dtype) for name in "QK")
    r = b.axis("k", dim)
    C = b.compute("C", (batch, heads, seq, seq), lambda b, h, i, j: total(Q[b, i, h, r] * K[b, j, h, r], r))
    return Definition(b.program(C), lambda Q, K: Q.transpose(0, 2, 1, 3) @ np.transpose(K, (0, 2, 3, 1)))
