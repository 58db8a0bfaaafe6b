"""Matrix products: matmul, batch_matmul, dense, transpose_batch_matmul."""

from __future__ import annotations

from typing import Literal

import numpy as np

from searchlab.ir.compute import Builder, total
from searchlab.workloads.building_blocks import Epilogue, sum_stage, weight_type, wide
from searchlab.workloads.catalogue import operator
from searchlab.workloads.definition import Definition
from searchlab.workloads.parameters import Extent, Float, Number


@operator
def matmul(m: Extent = 512, n: Extent = 512, k: Extent = 512, dtype: Number = "float32") -> Definition:
    """C = A B; integers are added up as int32, and uint8 multiplies int8; float16 and bfloat16 as float32."""
    b = Builder("matmul")
    A, B = b.input("A", (m, k), dtype), b.input("B", (k, n), weight_type(dtype))
    r = b.axis("k", k)
    C = sum_stage(b, "C", (m, n), lambda i, j: total(wide(A[i, r]) * wide(B[r, j]), r), dtype)
    return Definition(b.program(C), lambda A, B: A @ B, weights=("B",))


@operator
def batch_matmul(
    batch: Extent = 16, m: Extent = 128, n: Extent = 128, k: Extent = 64, dtype: Number = "float32"
) -> Definition:
    """C[b] = A[b] B[b]; both operands are data, none is a weight."""
    b = Builder("batch_matmul")
    A, B = b.input("A", (batch, m, k), dtype), b.input("B", (batch, k, n), weight_type(dtype))
    r = b.axis("k", k)
    C = sum_stage(b, "C", (batch, m, n), lambda b, i, j: total(wide(A[b, i, r]) * wide(B[b, r, j]), r), dtype)
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
    epilogue = Epilogue.of(",".join(["bias"] * bias + [activation] * (activation != "none")), dtype)
    b = Builder("dense")
    X, W = b.input("X", (m, k), dtype), b.input("W", (k, n), weight_type(dtype))
    r = b.axis("k", k)
    C = b.compute(epilogue.stage, (m, n), lambda i, j: total(wide(X[i, r]) * wide(W[r, j]), r))
    Y = epilogue.apply(b, C, ("i", "j"))
    return Definition(b.program(Y), lambda X, W, *rest: epilogue.array(X @ W, *rest), ("W", *epilogue.weights))


@operator
def transpose_batch_matmul(
    batch: Extent = 1, seq: Extent = 128, heads: Extent = 12, dim: Extent = 64, dtype: Float = "float32"
) -> Definition:
    """C = Q K^T per head, the scores of attention; both operands are stored (batch, seq, heads, dim)."""
    b = Builder("transpose_batch_matmul")
    Q, K = (b.input(name, (batch, seq, heads, dim), dtype) for name in "QK")
    r = b.axis("k", dim)
    C = sum_stage(
        b,
        "C",
        (batch, heads, seq, seq),
        lambda b, h, i, j: total(wide(Q[b, i, h, r]) * wide(K[b, j, h, r]), r),
        dtype,
    )
    return Definition(b.program(C), lambda Q, K: Q.transpose(0, 2, 1, 3) @ np.transpose(K, (0, 2, 3, 1)))
