"""Pointwise operators of two or three operands, with broadcasting: arithmetic, comparisons, logic, choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from searchlab.dtype import BOOL, DTYPES, FLOATS
from searchlab.graph.annotations import TensorType
from searchlab.graph.operator import Array, graph_operator
from searchlab.graph.ops.operand_rules import dtype_of, need
from searchlab.graph.ops.pointwise_op import NUMBERS, PointwiseOp
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.expr import FALSE, TRUE, Expr, all_of, compare, select
from searchlab.workloads.pointwise import BINARY, Pointwise


@dataclass(frozen=True)
class BinaryOp(PointwiseOp):
    """A function of two operands of one dtype."""

    form: ClassVar[Pointwise]

    def deduce(self, facts: SizeFacts, x: TensorType, y: TensorType) -> TensorType:
        """The broadcast shape."""
        return super().deduce(facts, x, y)

    def expr(self, *values: Expr) -> Expr:
        """The function on expressions."""
        return self.form.expr(*values)

    def reference(self, *args: Array) -> Array:
        """The function on arrays."""
        return self.form.array(*args)


@dataclass(frozen=True)
class ComparisonOp(BinaryOp):
    """A comparison: the result is a truth value."""

    def result_dtype(self, *operands: TensorType) -> str:
        """Truth, whatever is compared."""
        super().result_dtype(*operands)
        return BOOL


def _compared(op: str, array: Callable[..., Any]) -> Pointwise:
    return Pointwise(lambda x, y: compare(op, x, y), array)


def _make(name: str, form: Pointwise, accepts: tuple[str, ...], base: type[BinaryOp] = BinaryOp) -> None:
    title = f"{name.title().replace('_', '')}Op"
    graph_operator(name)(type(title, (base,), {"form": form, "accepts": accepts, "__module__": __name__}))


_ARITHMETIC = {
    "add": BINARY["add"], "sub": BINARY["sub"], "mul": BINARY["mul"],
    "maximum": BINARY["max"], "minimum": BINARY["min"],
}  # fmt: skip
_COMPARISONS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_LOGIC = {
    "logical_and": Pointwise(lambda x, y: all_of((x, y)), np.logical_and),
    "logical_or": Pointwise(lambda x, y: select(x, TRUE, y), np.logical_or),
    "logical_xor": Pointwise(lambda x, y: select(x, select(y, FALSE, TRUE), y), np.logical_xor),
}
for _name, _form in _ARITHMETIC.items():
    _make(_name, _form, NUMBERS)
_make("div", Pointwise(lambda x, y: x / y, np.divide), FLOATS)
for _name, _array in _COMPARISONS.items():
    _make(_name, _compared(_name, _array), NUMBERS, ComparisonOp)
for _name, _form in _LOGIC.items():
    _make(_name, _form, (BOOL,))


@graph_operator("where")
@dataclass(frozen=True)
class WhereOp(PointwiseOp):
    """x where the condition holds, else y."""

    accepts: ClassVar[tuple[str, ...]] = tuple(DTYPES)

    def deduce(self, facts: SizeFacts, condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
        """The broadcast shape."""
        return super().deduce(facts, condition, x, y)

    def result_dtype(self, *operands: TensorType) -> str:
        """The dtype of both alternatives."""
        condition, *values = operands
        need(condition.dtype == BOOL, f"its condition is of {condition.dtype}, not bool")
        return dtype_of(*values)

    def expr(self, *values: Expr) -> Expr:
        """The function on expressions."""
        return select(*values)

    def reference(self, *args: Array) -> Array:
        """The function on arrays."""
        return np.where(*args)
