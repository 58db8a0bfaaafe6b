"""The table of converters: which function writes the calls for which ATen operators.

    @converts("aten.silu.default")
    def silu(step, x):
        return step.b.silu(step.cast(x))

Arguments are those of the operator, with tensors as values of the builder, sizes as index expressions and dtypes as
their names. A converter returns a value, or a tuple of values where the operator has several results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from searchlab.dtype import FLOATS
from searchlab.errors import GraphError
from searchlab.graph.annotations import Shape
from searchlab.graph.building import GraphBuilder, GraphValue
from searchlab.graph.calls import Scalar
from searchlab.ir.expr import Expr

Tensors = GraphValue | tuple[GraphValue | None, ...]
Converter = Callable[..., Tensors]
C = TypeVar("C", bound=Converter)

CONVERTERS: dict[str, Converter] = {}


def converts(*overloads: str) -> Callable[[C], C]:
    """Registers a converter for operators of torch, named as `aten.add.Tensor` is."""

    def register(function: C) -> C:
        for overload in overloads:
            known = CONVERTERS.get(overload)
            if known is not None and known.__module__ != function.__module__:
                raise GraphError(f"{overload} of {function.__module__} is already converted by {known.__module__}")
            CONVERTERS[overload] = function
        return function

    return register


@dataclass(frozen=True)
class AtenStep:
    """One operator that is being converted: the builder, and the shapes and dtypes of torch's results."""

    b: GraphBuilder
    overload: str
    shapes: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    common: str | None  # the dtype that torch brings the operands to before it computes

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        return self.shapes[0]

    @property
    def dtype(self) -> str:
        """The dtype of the result."""
        return self.dtypes[0]

    def cast(self, x: GraphValue, dtype: str | None = None) -> GraphValue:
        """A tensor in a dtype, by default that of the result."""
        dtype = dtype or self.dtype
        return x if x.dtype == dtype else self.b.cast(x, dtype=dtype)

    def operand(self, x: Any, dtype: str | None = None) -> GraphValue | Scalar:
        """A tensor or a number in a dtype, by default that of the result."""
        if isinstance(x, GraphValue):
            return self.cast(x, dtype)
        dtype = dtype or self.dtype
        return Scalar(float(x) if dtype in FLOATS and not isinstance(x, Expr) else x, dtype)


def need(condition: bool, message: str) -> None:
    """Refuses an operator with arguments that are not covered."""
    if not condition:
        raise GraphError(message)
