"""Operators that read and write at indices: take (embeddings), updates of slices and of single places.

Indices that come from a tensor must be checked, and a tensor program cannot fail, so these are library functions;
`take` is one that the machine of compiled models has itself.  An update of a slice, as of a cache of keys at a
position, has its place as an attribute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from searchlab.graph.annotations import TensorType
from searchlab.graph.library import library
from searchlab.graph.operator import Array, Dim, GraphOperator, graph_operator
from searchlab.graph.ops.operand_rules import axis_of, dtype_of, loop_names, need, rank_of, same, shape_of, within
from searchlab.graph.ops.shape_ops import number_of
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.compute import Builder
from searchlab.ir.expr import Const, Expr, Var, all_of, select
from searchlab.ir.program import Program
from searchlab.workloads.building_blocks import named

INDICES = ("int64", "int32")


def _check_indices(indices: TensorType) -> None:
    need(indices.dtype in INDICES, f"indices of {indices.dtype}; it takes {' or '.join(INDICES)}")


@graph_operator("take")
@dataclass(frozen=True)
class TakeOp(GraphOperator):
    """Elements of x along an axis at indices, whose axes replace it; with axis 0 a table of embeddings is looked up."""

    library: ClassVar[str | None] = "take"
    axis: int = 0

    def deduce(self, facts: SizeFacts, x: TensorType, indices: TensorType) -> TensorType:
        """The shape of the indices in place of the axis."""
        _check_indices(indices)
        shape = shape_of(x)
        axis = axis_of(self.axis, len(shape))
        return TensorType((*shape[:axis], *shape_of(indices), *shape[axis + 1 :]), dtype_of(x))

    def coarse(self, *args: TensorType) -> TensorType:
        """The rank, if both are known."""
        x, indices = args
        known = x.rank is not None and indices.rank is not None
        return TensorType(dtype=x.dtype, rank=x.rank + indices.rank - 1 if known else None)  # type: ignore[operator]

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        x, indices = args
        found: Array = np.take(x, indices, axis=self.axis)
        return found


@library("take")
def take(x: Array, indices: Array, out: Array, axis: int = 0) -> None:
    """Elements along an axis at indices."""
    np.take(x, indices, axis=axis, out=out)


@graph_operator("index_put")
@dataclass(frozen=True)
class IndexPutOp(GraphOperator):
    """x with other values at indices along an axis; the result is new, x stays as it is."""

    library: ClassVar[str | None] = "index_put"
    axis: int = 0

    def deduce(self, facts: SizeFacts, x: TensorType, indices: TensorType, values: TensorType) -> TensorType:
        """The shape of x; values have an entry per index along the axis."""
        _check_indices(indices)
        rank_of(indices, 1)
        shape, given = shape_of(x), shape_of(values)
        axis = axis_of(self.axis, len(shape))
        need(len(given) == len(shape), f"values {values} for a tensor {x}; they need the same rank")
        for a, (e, f) in enumerate(zip(shape, given, strict=True)):
            same(facts, shape_of(indices)[0] if a == axis else e, f, f"axis {a} of the values")
        return TensorType(shape, dtype_of(x, values))

    def coarse(self, *args: TensorType) -> TensorType:
        """The rank and dtype of x."""
        return TensorType(dtype=args[0].dtype, rank=args[0].rank)

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        out = np.empty_like(args[0])
        index_put(*args, out, axis=self.axis)
        return out


@library("index_put")
def index_put(x: Array, indices: Array, values: Array, out: Array, axis: int = 0) -> None:
    """x with other values at indices along an axis."""
    out[...] = x
    np.moveaxis(out, axis, 0)[indices] = np.moveaxis(values, axis, 0)


@graph_operator("update_slice")
@dataclass(frozen=True)
class UpdateSliceOp(GraphOperator):
    """x with other values from `start` on along an axis: how a cache of fixed length takes new entries."""

    axis: int
    start: Dim = Const(0)

    def deduce(self, facts: SizeFacts, x: TensorType, values: TensorType) -> TensorType:
        """The shape of x; values may be shorter along the axis, and must end within it."""
        shape, given = shape_of(x), shape_of(values)
        axis = axis_of(self.axis, len(shape))
        need(len(given) == len(shape), f"values {values} for a tensor {x}; they need the same rank")
        for a, (e, f) in enumerate(zip(shape, given, strict=True)):
            if a != axis:
                same(facts, e, f, f"axis {a} of the values")
        end = self.start + given[axis]
        within(facts, self.start, end, shape[axis], f"values from {self.start} to {end} of axis {axis}")
        return TensorType(shape, dtype_of(x, values))

    def coarse(self, *args: TensorType) -> TensorType:
        """The rank and dtype of x."""
        return TensorType(dtype=args[0].dtype, rank=args[0].rank)

    def program(self, facts: SizeFacts, x: TensorType, values: TensorType) -> Program:
        """One stage that chooses between both by the index."""
        b = Builder(self.name)
        shape, dtype = shape_of(x), dtype_of(x)
        X, V = b.input("X", shape, dtype), b.input("V", shape_of(values), dtype)
        axis = axis_of(self.axis, len(shape))

        def body(*at: Var) -> Expr:
            place = at[axis] - self.start
            inside = all_of((place >= 0, place < V.shape[axis]))
            return select(inside, V[(*at[:axis], place, *at[axis + 1 :])], X[at])

        return b.program(b.compute("Y", shape, named(loop_names(len(shape)), body)))

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        x, values = args
        found, start = np.array(x), number_of(self.start)
        axis = axis_of(self.axis, x.ndim)
        found[(*[slice(None)] * axis, slice(start, start + values.shape[axis]))] = values
        return found
