"""Masked attention as one workload: seven stages, whose positions and tiles give hundreds of structures."""

from __future__ import annotations

import numpy as np

from searchlab.ir.compute import Builder, largest, total
from searchlab.ir.expr import call, select
from searchlab.workloads import Definition, operator
from searchlab.workloads.definition import Array

_MASKED = -1e9


@operator
def masked_attention(heads: int = 8, seq: int = 128, dim: int = 64) -> Definition:
    """softmax(Q K^T / sqrt(dim)) V per head with a causal mask."""
    b = Builder("masked_attention")
    Q, K, V = (b.input(name, (heads, seq, dim), "float32") for name in "QKV")
    d, r, t, u = b.axis("d", dim), b.axis("r", seq), b.axis("t", seq), b.axis("u", seq)
    scale = dim**-0.5
    S = b.compute("S", (heads, seq, seq), lambda h, i, j: total(Q[h, i, d] * K[h, j, d], d))
    C = b.compute("C", (heads, seq, seq), lambda h, i, j: select(j <= i, S[h, i, j] * scale, _MASKED))
    M = b.compute("M", (heads, seq), lambda h, i: largest(C[h, i, r], r))
    E = b.compute("E", (heads, seq, seq), lambda h, i, j: call("exp", C[h, i, j] - M[h, i]))
    D = b.compute("D", (heads, seq), lambda h, i: total(E[h, i, t], t))
    P = b.compute("P", (heads, seq, seq), lambda h, i, j: E[h, i, j] / D[h, i])
    O = b.compute("O", (heads, seq, dim), lambda h, i, c: total(P[h, i, u] * V[h, u, c], u))

    def reference(Q: Array, K: Array, V: Array) -> Array:
        scores = np.where(np.tri(seq, dtype=bool), Q @ K.transpose(0, 2, 1) * scale, np.float32(_MASKED))
        e = np.exp(scores - scores.max(axis=-1, keepdims=True))
        y: Array = e / e.sum(axis=-1, keepdims=True) @ V
        return y

    return Definition(b.program(O), reference)
