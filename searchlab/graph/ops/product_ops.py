"""Matrix products: matmul with broadcast batches, linear and dense layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from searchlab.graph.annotations import Shape, TensorType
from searchlab.graph.operator import Array, GraphOperator, graph_operator
from searchlab.graph.ops.operand_rules import (
    broadcast,
    broadcast_indices,
    float_of,
    layer_types,
    loop_names,
    need,
    rank_of,
    same,
    shape_of,
    sum_type,
)
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.compute import Builder, Reduction, total
from searchlab.ir.expr import Var
from searchlab.ir.program import Program
from searchlab.workloads import linear
from searchlab.workloads.building_blocks import Epilogue, named, sum_stage, weight_type, wide


def workload_program(function: Callable[..., Any], **params: Any) -> Program:
    """The program of an operator of `workloads`, whose extents may be any index expressions."""
    program: Program = function(**params).program
    return program


@graph_operator("matmul")
@dataclass(frozen=True)
class MatmulOp(GraphOperator):
    """Matrix products over the last two axes of both operands; the axes before them are broadcast."""

    def deduce(self, facts: SizeFacts, x: TensorType, y: TensorType) -> TensorType:
        """The batch, the rows of x and the columns of y."""
        a, b = shape_of(x), shape_of(y)
        need(len(a) >= 2 and len(b) >= 2, f"operands {x} and {y}; both need at least 2 axes")
        same(facts, a[-1], b[-2], "columns of the first and rows of the second operand")
        return TensorType((*broadcast(facts, [a[:-2], b[:-2]]), a[-2], b[-1]), float_of(x, y))

    def coarse(self, *args: TensorType) -> TensorType:
        """The larger rank, if both are known."""
        x, y = args
        return TensorType(dtype=x.dtype, rank=None if x.rank is None or y.rank is None else max(x.rank, y.rank))

    def program(self, facts: SizeFacts, x: TensorType, y: TensorType) -> Program:
        """The program of `workloads` for one matrix or one batch, else one with a loop per axis of the batch."""
        a, b, dtype = shape_of(x), shape_of(y), float_of(x, y)
        if len(a) == len(b) == 2:
            return workload_program(linear.matmul.function, m=a[0], n=b[1], k=a[1], dtype=dtype)
        if len(a) == len(b) == 3 and a[0] == b[0]:
            sizes = dict(batch=a[0], m=a[1], n=b[2], k=a[2])
            return workload_program(linear.batch_matmul.function, **sizes, dtype=dtype)
        return _batched(facts, a, b, dtype)

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        found: Array = np.matmul(*args)
        return found


def _batched(facts: SizeFacts, a: Shape, b: Shape, dtype: str) -> Program:
    made = Builder("matmul")
    A, B = made.input("A", a, dtype), made.input("B", b, dtype)
    batch = broadcast(facts, [a[:-2], b[:-2]])
    r = made.axis("k", a[-1])

    def body(*at: Var) -> Reduction:
        *lead, i, j = at
        left, right = broadcast_indices(a[:-2], batch, lead), broadcast_indices(b[:-2], batch, lead)
        return total(wide(A[(*left, i, r)]) * wide(B[(*right, r, j)]), r)

    names = [*(f"b{n}" for n in range(len(batch))), "i", "j"]
    return made.program(sum_stage(made, "C", (*batch, a[-2], b[-1]), named(names, body), dtype))


@dataclass(frozen=True)
class LayerOp(GraphOperator):
    """Base of fully connected layers: x times weights, and a bias if there is one.

    Bytes (uint8 or int8) are multiplied by weights of int8, and sums and bias are of int32.
    """

    inner: ClassVar[int]  # the axis of the weights that is summed over

    def deduce(self, facts: SizeFacts, x: TensorType, weight: TensorType, bias: TensorType | None = None) -> TensorType:
        """The shape of x with the number of outputs as its last extent."""
        _, dtype = layer_types(x, weight, *([] if bias is None else [bias]))
        rank_of(weight, 2)
        a, w = shape_of(x), shape_of(weight)
        need(len(a) >= 1, "its first operand has no axis")
        same(facts, a[-1], w[self.inner], "the last axis of the operand and the inputs of the weights")
        outputs = w[1 - self.inner]
        if bias is not None:
            rank_of(bias, 1)
            same(facts, outputs, shape_of(bias)[0], "outputs of the weights and the bias")
        return TensorType((*a[:-1], outputs), dtype)

    def coarse(self, *args: TensorType) -> TensorType:
        """The rank of x."""
        return TensorType(dtype=sum_type(args[0].dtype), rank=args[0].rank)

    def program(self, facts: SizeFacts, x: TensorType, weight: TensorType, bias: TensorType | None = None) -> Program:
        """A sum per output, with the bias as its epilogue."""
        a, w, (dtype, _) = shape_of(x), shape_of(weight), layer_types(x, weight)
        if self.inner == 0 and len(a) == 2:
            sizes = dict(m=a[0], n=w[1], k=a[1])
            return workload_program(linear.dense.function, **sizes, bias=bias is not None, dtype=dtype)
        epilogue = Epilogue.of("none" if bias is None else "bias", dtype)
        b = Builder(self.name)
        X, W = b.input("X", a, dtype), b.input("W", w, weight_type(dtype))
        r = b.axis("k", a[-1])
        names = [*loop_names(len(a) - 1), "n"] if len(a) < 4 else loop_names(len(a))

        def body(*at: Var) -> Reduction:
            place = (r, at[-1]) if self.inner == 0 else (at[-1], r)
            return total(wide(X[(*at[:-1], r)]) * wide(W[place]), r)

        C = b.compute(epilogue.stage, (*a[:-1], w[1 - self.inner]), named(names, body))
        return b.program(epilogue.apply(b, C, names, channel=len(a) - 1))

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        x, w, *bias = (np.asarray(a, np.float64) for a in args)  # exact for sums of bytes, too
        found: Array = np.matmul(x, w if self.inner == 0 else w.T)
        return found + bias[0] if bias else found


@graph_operator("linear")
@dataclass(frozen=True)
class LinearOp(LayerOp):
    """A fully connected layer with weights (outputs, inputs), as torch stores them."""

    inner: ClassVar[int] = 1


@graph_operator("dense")
@dataclass(frozen=True)
class DenseOp(LayerOp):
    """A fully connected layer with weights (inputs, outputs), as the workload `dense` stores them."""

    inner: ClassVar[int] = 0
