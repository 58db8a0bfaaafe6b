"""example, a workload for searchlab: a computation to optimise."""

from __future__ import annotations

from searchlab.ir import Builder, total
from searchlab.workloads import Definition, operator


@operator
def example(n: int = 64, k: int = 32, dtype: str = "float32") -> Definition:
    """C = A A^T + bias, row by row."""
    # Arguments are the parameters of the workload; their defaults should be small.
    b = Builder("example")
    A = b.input("A", (n, k), dtype)
    bias = b.input("bias", (n,), dtype)
    r = b.axis("r", k)  # the summation axis
    G = b.compute("G", (n, n), lambda i, j: total(A[i, r] * A[j, r], r))
    C = b.compute("C", (n, n), lambda i, j: G[i, j] + bias[j])
    # The reference takes the inputs in order, in double precision; weights are inputs that stay the same between calls.
    return Definition(b.program(C), reference=lambda A, bias: A @ A.T + bias, weights=("bias",))
