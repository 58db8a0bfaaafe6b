"""Pointwise operators of one operand: activations, functions of real numbers, conversions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from searchlab.dtype import BOOL, DTYPES, FLOATS
from searchlab.graph.annotations import TensorType
from searchlab.graph.operator import Array, graph_operator
from searchlab.graph.ops.operand_rules import need
from searchlab.graph.ops.pointwise_op import NUMBERS, PointwiseOp
from searchlab.graph.ops.trigonometry import cosine, sine
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.expr import FALSE, TRUE, Expr, call, cast, maximum, minimum, select
from searchlab.workloads.pointwise import UNARY, Pointwise


@dataclass(frozen=True)
class UnaryOp(PointwiseOp):
    """A function without attributes, in two forms."""

    form: ClassVar[Pointwise]

    def deduce(self, facts: SizeFacts, x: TensorType) -> TensorType:
        """The shape of the operand."""
        return super().deduce(facts, x)

    def expr(self, *values: Expr) -> Expr:
        """The function on expressions."""
        return self.form.expr(*values)

    def reference(self, *args: Array) -> Array:
        """The function on arrays."""
        return self.form.array(*args)


def _called(function: str, array: object) -> Pointwise:
    return Pointwise(lambda x: call(function, x), array)  # type: ignore[arg-type]


def _erf(x: Array) -> Array:
    from scipy.special import erf  # imported here since scipy takes long to import

    found: Array = erf(x)
    return found


def _make(name: str, form: Pointwise, accepts: tuple[str, ...]) -> None:
    made = type(
        f"{name.title().replace('_', '')}Op", (UnaryOp,), {"form": form, "accepts": accepts, "__module__": __name__}
    )
    graph_operator(name)(made)


_TABLE: dict[tuple[str, ...], dict[str, Pointwise]] = {
    FLOATS: {
        "tanh": UNARY["tanh"],
        "sigmoid": UNARY["sigmoid"],
        "exp": UNARY["exp"],
        "silu": Pointwise(lambda x: x * call("sigmoid", x), lambda x: x / (1 + np.exp(-x))),
        "log": _called("log", np.log),
        "sqrt": _called("sqrt", np.sqrt),
        "rsqrt": _called("rsqrt", lambda x: 1 / np.sqrt(x)),
        "erf": _called("erf", _erf),
        "floor": _called("floor", np.floor),
        "round": _called("round", np.round),
        "abs": UNARY["abs"],
        "cos": Pointwise(cosine, np.cos),
        "sin": Pointwise(sine, np.sin),
    },
    NUMBERS: {"relu": UNARY["relu"], "neg": UNARY["neg"], "square": UNARY["square"]},
    (BOOL,): {"logical_not": Pointwise(lambda x: select(x, FALSE, TRUE), np.logical_not)},
}
for _accepts, _forms in _TABLE.items():
    for _name, _form in _forms.items():
        _make(_name, _form, _accepts)


@graph_operator("gelu")
@dataclass(frozen=True)
class GeluOp(UnaryOp):
    """x times the normal distribution's share below x; `approximate` is 'none', or 'tanh' for a formula with tanh."""

    form: ClassVar[Pointwise] = UNARY["gelu"]
    approximate: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        need(self.approximate in ("none", "tanh"), f"gelu: approximate = {self.approximate!r} is neither none nor tanh")

    def expr(self, *values: Expr) -> Expr:
        """The function on expressions."""
        (x,) = values
        if self.approximate == "none":
            return super().expr(x)
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (call("tanh", inner) + 1.0)

    def reference(self, *args: Array) -> Array:
        """The function on arrays."""
        (x,) = args
        if self.approximate == "none":
            return super().reference(x)
        found: Array = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return found


@graph_operator("clamp")
@dataclass(frozen=True)
class ClampOp(PointwiseOp):
    """The nearest number between `low` and `high`, either of which may be left out."""

    accepts: ClassVar[tuple[str, ...]] = NUMBERS
    low: float | None = None
    high: float | None = None

    def deduce(self, facts: SizeFacts, x: TensorType) -> TensorType:
        """The shape of the operand."""
        return super().deduce(facts, x)

    def expr(self, *values: Expr) -> Expr:
        """The function on expressions."""
        (x,) = values
        x = x if self.low is None else maximum(x, self.low)
        return x if self.high is None else minimum(x, self.high)

    def reference(self, *args: Array) -> Array:
        """The function on arrays."""
        found: Array = np.clip(args[0], self.low, self.high) if (self.low, self.high) != (None, None) else args[0]
        return found


@graph_operator("pow")
@dataclass(frozen=True)
class PowOp(PointwiseOp):
    """A power with a constant exponent: a whole number up to 8, a half of one, or any other for positive operands."""

    exponent: float

    def deduce(self, facts: SizeFacts, x: TensorType) -> TensorType:
        """The shape of the operand."""
        return super().deduce(facts, x)

    def expr(self, *values: Expr) -> Expr:
        """The function on expressions: products and roots where they are exact, else by logarithms."""
        (x,) = values
        size, negative = abs(self.exponent), self.exponent < 0
        if size == 0:
            return x * 0.0 + 1.0
        if size * 2 != int(size * 2) or size > 8:
            return call("exp", call("log", x) * self.exponent)
        whole = _power(x, int(size))
        if size == int(size):
            assert whole is not None
            return 1.0 / whole if negative else whole
        root = call("rsqrt" if negative else "sqrt", x)
        return root if whole is None else root / whole if negative else root * whole

    def reference(self, *args: Array) -> Array:
        """The function on arrays."""
        found: Array = np.power(args[0], self.exponent)
        return found


def _power(x: Expr, exponent: int) -> Expr | None:
    """A product of as few factors as squares allow; None for the empty product."""
    if exponent == 0:
        return None
    half = _power(x, exponent // 2)
    square = None if half is None else half * half
    return square if exponent % 2 == 0 else x if square is None else square * x


@graph_operator("cast")
@dataclass(frozen=True)
class CastOp(PointwiseOp):
    """The operand converted to a dtype."""

    accepts: ClassVar[tuple[str, ...]] = tuple(DTYPES)
    dtype: str

    def result_dtype(self, *operands: TensorType) -> str:
        """The dtype asked for."""
        need(self.dtype in DTYPES, f"unknown dtype '{self.dtype}'; known: {', '.join(DTYPES)}")
        return self.dtype

    def deduce(self, facts: SizeFacts, x: TensorType) -> TensorType:
        """The shape of the operand."""
        return super().deduce(facts, x)

    def expr(self, *values: Expr) -> Expr:
        """The function on expressions; the truth of a number is whether it is other than 0."""
        (x,) = values
        if self.dtype == BOOL and x.dtype != BOOL:
            return select(x.equals(0), FALSE, TRUE)
        return cast(x, self.dtype)

    def reference(self, *args: Array) -> Array:
        """The function on arrays; floats become integers towards zero."""
        (x,) = args
        if self.dtype == BOOL:
            return np.not_equal(x, 0)
        return np.trunc(x) if self.dtype not in FLOATS and x.dtype.kind == "f" else x
