"""Operators that put tensors together and take them apart: concat, stack, split."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from searchlab.graph.annotations import TensorType, TupleType, extents
from searchlab.graph.operator import Array, Dims, GraphOperator, graph_operator
from searchlab.graph.ops.operand_rules import axis_of, dtype_of, input_names, loop_names, need, same, shape_of
from searchlab.graph.ops.shape_ops import numbers_of
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.compute import Builder
from searchlab.ir.expr import Expr, Var, index, select
from searchlab.ir.program import Program
from searchlab.workloads.building_blocks import named


@graph_operator("concat")
@dataclass(frozen=True)
class ConcatOp(GraphOperator):
    """Operands one after the other along an axis."""

    axis: int = 0

    def deduce(self, facts: SizeFacts, x: TensorType, *others: TensorType) -> TensorType:
        """The extents along the axis added up; all others must agree."""
        dtype, shape = dtype_of(x, *others), shape_of(x)
        axis = axis_of(self.axis, len(shape))
        total = shape[axis]
        for other in map(shape_of, others):
            need(len(other) == len(shape), f"operands of rank {len(shape)} and {len(other)}")
            total = total + other[axis]
            for a, (e, f) in enumerate(zip(shape, other, strict=True)):
                if a != axis:
                    same(facts, e, f, f"operands differ along axis {a}")
        return TensorType((*shape[:axis], total, *shape[axis + 1 :]), dtype)

    def coarse(self, *args: TensorType) -> TensorType:
        """The rank that any operand is known to have."""
        rank = next((x.rank for x in args if x.rank is not None), None)
        return TensorType(dtype=args[0].dtype, rank=rank)

    def program(self, facts: SizeFacts, *args: TensorType) -> Program:
        """One stage that chooses the operand by the index."""
        b = Builder(self.name)
        names = input_names(len(args))
        inputs = [b.input(next(names), shape_of(x), dtype_of(x)) for x in args]
        shape = shape_of(args[0])
        axis = axis_of(self.axis, len(shape))
        starts: list[Expr] = [index(0)]
        for X in inputs:
            starts.append(starts[-1] + X.shape[axis])
        out = (*shape[:axis], starts[-1], *shape[axis + 1 :])

        def body(*at: Var) -> Expr:
            def part(number: int) -> Expr:
                return inputs[number][(*at[:axis], at[axis] - starts[number], *at[axis + 1 :])]

            value = part(len(inputs) - 1)
            for number in reversed(range(len(inputs) - 1)):
                value = select(at[axis] < starts[number + 1], part(number), value)
            return value

        return b.program(b.compute("Y", out, named(loop_names(len(out)), body)))

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        return np.concatenate(args, self.axis)


@graph_operator("stack")
@dataclass(frozen=True)
class StackOp(GraphOperator):
    """Operands of one shape beside each other along a new axis."""

    axis: int = 0

    def deduce(self, facts: SizeFacts, x: TensorType, *others: TensorType) -> TensorType:
        """The shape with the number of operands put in."""
        dtype, shape = dtype_of(x, *others), shape_of(x)
        for other in map(shape_of, others):
            need(len(other) == len(shape), f"operands of rank {len(shape)} and {len(other)}")
            for a, (e, f) in enumerate(zip(shape, other, strict=True)):
                same(facts, e, f, f"operands differ along axis {a}")
        axis = axis_of(self.axis, len(shape) + 1)
        return TensorType((*shape[:axis], index(len(others) + 1), *shape[axis:]), dtype)

    def program(self, facts: SizeFacts, *args: TensorType) -> Program:
        """One stage that chooses the operand by the index."""
        b = Builder(self.name)
        names = input_names(len(args))
        inputs = [b.input(next(names), shape_of(x), dtype_of(x)) for x in args]
        shape = shape_of(args[0])
        axis = axis_of(self.axis, len(shape) + 1)
        out = (*shape[:axis], index(len(args)), *shape[axis:])

        def body(*at: Var) -> Expr:
            parts = [X[(*at[:axis], *at[axis + 1 :])] for X in inputs]
            value = parts[-1]
            for number in reversed(range(len(parts) - 1)):
                value = select(at[axis] < number + 1, parts[number], value)
            return value

        return b.program(b.compute("Y", out, named(loop_names(len(out)), body)))

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        return np.stack(args, self.axis)


@graph_operator("split")
@dataclass(frozen=True)
class SplitOp(GraphOperator):
    """Parts of the operand along an axis, of the given lengths; the result is a tuple."""

    axis: int
    lengths: Dims

    def deduce(self, facts: SizeFacts, x: TensorType) -> TupleType:
        """A tensor for each length; they must add up to the extent."""
        shape, dtype = shape_of(x), dtype_of(x)
        axis = axis_of(self.axis, len(shape))
        total: Expr = index(0)
        for length in self.lengths:
            total = total + length
        same(facts, total, shape[axis], f"the lengths do not add up to axis {axis}")
        shapes = [extents((*shape[:axis], n, *shape[axis + 1 :])) for n in self.lengths]
        return TupleType(tuple(TensorType(s, dtype) for s in shapes))

    def coarse(self, *args: TensorType) -> TupleType:
        """As many tensors of the same rank."""
        return TupleType((TensorType(dtype=args[0].dtype, rank=args[0].rank),) * len(self.lengths))

    def program(self, facts: SizeFacts, x: TensorType) -> Program:
        """One stage for each part."""
        b = Builder(self.name)
        shape = shape_of(x)
        X = b.input("X", shape, dtype_of(x))
        axis = axis_of(self.axis, len(shape))
        start: Expr = index(0)
        parts = []
        for number, length in enumerate(self.lengths):

            def body(*at: Var, start: Expr = start) -> Expr:
                return X[(*at[:axis], at[axis] + start, *at[axis + 1 :])]

            out = (*shape[:axis], length, *shape[axis + 1 :])
            parts.append(b.compute(f"Y{number}", out, named(loop_names(len(out)), body)))
            start = start + length
        return b.program(*parts)

    def reference(self, *args: Array) -> tuple[Array, ...]:
        """The same on arrays."""
        places = np.cumsum(numbers_of(self.lengths))[:-1]
        return tuple(np.split(args[0], places, self.axis))
