"""Layers of ATen: products, convolutions, pooling, normalisation, softmax, attention, embedding."""

from __future__ import annotations

from searchlab.graph.building import GraphValue
from searchlab.graph.torch_import.conversion import Step, converts

# --- products ---------------------------------------------------------------------------------------------------------


@converts("aten.linear.default")
def linear(step: Step, x: GraphValue, weight: GraphValue, bias: GraphValue | None = None) -> GraphValue:
    """A fully connected layer."""
    return step.b.linear(x, weight, *_given(bias))


@converts("aten.mm.default", "aten.bmm.default")
def mm(step: Step, x: GraphValue, y: GraphValue) -> GraphValue:
    """A product of matrices, or of batches of them."""
    return step.b.matmul(x, y)


@converts("aten.matmul.default")
def matmul(step: Step, x: GraphValue, y: GraphValue) -> GraphValue:
    """A product with broadcast batches; a vector is a row on the left and a column on the right."""
    left = step.b.unsqueeze(x, axes=(0,)) if len(x.shape) == 1 else x
    right = step.b.unsqueeze(y, axes=(1,)) if len(y.shape) == 1 else y
    made = step.b.matmul(left, right)
    gone = [-2] * (left is not x) + [-1] * (right is not y)
    return step.b.squeeze(made, axes=gone) if gone else made


@converts("aten.addmm.default", "aten.baddbmm.default")
def addmm(step: Step, c: GraphValue, x: GraphValue, y: GraphValue, beta: float = 1, alpha: float = 1) -> GraphValue:
    """beta * c + alpha * (x @ y)."""
    if beta == alpha == 1 and len(x.shape) == 2 and len(c.shape) == 1:
        return step.b.dense(x, y, c)
    product = step.b.matmul(x, y)
    return (c if beta == 1 else c * beta) + (product if alpha == 1 else product * alpha)


def _given(*values: GraphValue | None) -> list[GraphValue]:
    return [value for value in values if value is not None]
