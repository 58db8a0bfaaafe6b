"""Tensors from nothing but attributes: full, arange; and triangles of matrices, from which masks are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from searchlab.dtype import BOOL, DTYPES
from searchlab.graph.annotations import Shape, TensorType, extents
from searchlab.graph.operator import Array, Dim, Dims, GraphOperator, Number, graph_operator
from searchlab.graph.ops.operand_rules import loop_names, need
from searchlab.graph.ops.shape_ops import MovementOp, number_of, numbers_of
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.algebra import ceildiv
from searchlab.ir.compute import Builder, Tensor
from searchlab.ir.expr import Const, Expr, cast, const, select
from searchlab.ir.program import Program
from searchlab.workloads.building_blocks import named


def _known_dtype(dtype: str) -> str:
    need(dtype in DTYPES, f"unknown dtype '{dtype}'; known: {', '.join(DTYPES)}")
    return dtype


@graph_operator("full")
@dataclass(frozen=True)
class FullOp(GraphOperator):
    """A tensor whose elements are all one number, which may be an index expression."""

    shape: Dims
    value: Number
    dtype: str = "float32"

    def deduce(self, facts: SizeFacts) -> TensorType:
        """The shape and dtype that are given."""
        return TensorType(extents(self.shape), _known_dtype(self.dtype))

    def program(self, facts: SizeFacts) -> Program:
        """One stage without inputs."""
        b = Builder(self.name)
        value = cast(self.value, self.dtype) if isinstance(self.value, Expr) else const(self.value, self.dtype)
        return b.program(b.compute("Y", self.shape, named(loop_names(len(self.shape)), lambda *at: value)))

    def reference(self) -> Array:
        """The same on arrays."""
        value = number_of(self.value) if isinstance(self.value, Expr) else self.value
        return np.full(numbers_of(self.shape), value)


@graph_operator("arange")
@dataclass(frozen=True)
class ArangeOp(GraphOperator):
    """Whole numbers from `start` up to, but not including, `stop`, `step` apart."""

    stop: Dim
    start: Dim = Const(0)
    step: int = 1
    dtype: str = "int64"

    def deduce(self, facts: SizeFacts) -> TensorType:
        """As many numbers as there are."""
        need(self.step >= 1, f"step = {self.step} is not positive")
        need(_known_dtype(self.dtype) != BOOL, "numbers are not of bool")
        return TensorType(extents((ceildiv(self.stop - self.start, self.step),)), self.dtype)

    def program(self, facts: SizeFacts) -> Program:
        """One stage without inputs."""
        b = Builder(self.name)
        count = ceildiv(self.stop - self.start, self.step)
        return b.program(b.compute("Y", (count,), lambda i: cast(i * self.step + self.start, self.dtype)))

    def reference(self) -> Array:
        """The same on arrays."""
        return np.arange(number_of(self.start), number_of(self.stop), self.step)


@dataclass(frozen=True)
class TriangleOp(MovementOp):
    """Base of triangles: the other elements of the last two axes are 0."""

    above: ClassVar[bool]
    diagonal: Dim = Const(0)

    def moved(self, facts: SizeFacts, shape: Shape) -> Shape:
        """The shape of the operand."""
        need(len(shape) >= 2, f"an operand of rank {len(shape)}; it needs at least 2 axes")
        return shape

    def coarse(self, *args: TensorType) -> TensorType:
        """The rank and dtype of the operand."""
        return TensorType(dtype=args[0].dtype, rank=args[0].rank)

    def source(self, X: Tensor, out: Shape, at: tuple[Expr, ...]) -> Expr:
        """The element inside the triangle, and 0 outside."""
        *_, i, j = at
        inside = i + self.diagonal <= j if self.above else j <= i + self.diagonal
        return select(inside, X[at], const(0, X.dtype))

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        return (np.triu if self.above else np.tril)(args[0], number_of(self.diagonal))


@graph_operator("triu")
@dataclass(frozen=True)
class TriuOp(TriangleOp):
    """The triangle on and above a diagonal, which is `diagonal` columns right of the main one."""

    above: ClassVar[bool] = True


@graph_operator("tril")
@dataclass(frozen=True)
class TrilOp(TriangleOp):
    """The triangle on and below a diagonal, which is `diagonal` columns right of the main one."""

    above: ClassVar[bool] = False
