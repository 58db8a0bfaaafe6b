"""Pointwise operators: one function of the elements of broadcast operands, on expressions and on arrays."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from searchlab.dtype import BOOL, DTYPES, FLOATS
from searchlab.graph.annotations import TensorType
from searchlab.graph.calls import Scalar
from searchlab.graph.operator import GraphOperator
from searchlab.graph.ops.operand_rules import (
    broadcast,
    broadcast_indices,
    computed,
    dtype_of,
    input_names,
    loop_names,
    need,
    rounded,
    shape_of,
)
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.compute import Builder, Tensor
from searchlab.ir.expr import Expr, Var, cast, const
from searchlab.ir.program import Program
from searchlab.workloads.building_blocks import named

NUMBERS = tuple(d for d in DTYPES if d != BOOL)


@dataclass(frozen=True)
class PointwiseOp(GraphOperator):
    """Base of pointwise operators; `accepts` lists the dtypes of operands."""

    takes_numbers: ClassVar[bool] = True
    accepts: ClassVar[tuple[str, ...]] = FLOATS

    @abstractmethod
    def expr(self, *values: Expr) -> Expr:
        """The function on expressions."""

    def result_dtype(self, *operands: TensorType) -> str:
        """The dtype of the result; refuses operands of other dtypes than those accepted."""
        dtype = dtype_of(*operands)
        need(dtype in self.accepts, f"operands of {dtype}; it takes {', '.join(self.accepts)}")
        return dtype

    def deduce(self, facts: SizeFacts, *args: Any) -> TensorType:
        """The broadcast shape."""
        return TensorType(broadcast(facts, [shape_of(x) for x in args]), self.result_dtype(*args))

    def coarse(self, *args: TensorType) -> TensorType:
        """The rank, and the dtype if it is known."""
        ranks = [x.rank for x in args]
        dtype = self.result_dtype(*args) if all(x.dtype is not None for x in args) else None
        return TensorType(dtype=dtype, rank=None if None in ranks else max(r for r in ranks if r is not None))

    def program(self, facts: SizeFacts, *args: TensorType | Scalar) -> Program:
        """One stage; scalars are constants of it."""
        tensors = [x for x in args if isinstance(x, TensorType)]
        annotations = [x if isinstance(x, TensorType) else x.annotation for x in args]
        out = broadcast(facts, [shape_of(x) for x in annotations])
        dtype = self.result_dtype(*annotations)
        b = Builder(self.name)
        names = input_names(len(tensors))
        inputs = [b.input(next(names), shape_of(x), str(x.dtype)) if isinstance(x, TensorType) else x for x in args]

        def body(*at: Var) -> Expr:
            return rounded(self.expr(*(computed(element(x, out, at)) for x in inputs)), dtype)

        return b.program(b.compute("Y", out, named(loop_names(len(out)), body)))


def element(x: Tensor | Scalar, out: tuple[Expr, ...], at: tuple[Var, ...]) -> Expr:
    """The element of an operand that the element `at` of the result is computed from."""
    if isinstance(x, Tensor):
        return x[broadcast_indices(x.shape, out, at)]
    return cast(x.value, x.dtype) if isinstance(x.value, Expr) else const(x.value, x.dtype)
