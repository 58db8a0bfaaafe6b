"""Pointwise operators of ATen, with torch's promotion of dtypes: functions, arithmetic, comparisons, conversions."""

from __future__ import annotations

from typing import Any

from searchlab.dtype import BOOL, FLOATS
from searchlab.graph.building import GraphValue
from searchlab.graph.torch_import.conversion import AtenStep, Converter, converts, need

_UNARY = (
    "cos", "erf", "exp", "floor", "log", "neg", "relu", "round", "rsqrt", "sigmoid", "silu", "sin", "sqrt",
    "square", "tanh",
)  # fmt: skip
_ARITHMETIC = ("mul", "div", "maximum", "minimum")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_SAME = (
    "aten.alias.default", "aten.clone.default", "aten.contiguous.default", "aten.detach.default",
    "aten.detach_.default", "aten.lift_fresh_copy.default", "aten.positive.default",
)  # fmt: skip


def _unary(name: str) -> Converter:
    return lambda step, x: step.b.op(name, step.cast(x))


def _arithmetic(name: str) -> Converter:
    return lambda step, x, y: step.b.op(name, step.operand(x), step.operand(y))


def _comparison(name: str) -> Converter:
    return lambda step, x, y: step.b.op(name, step.operand(x, step.common), step.operand(y, step.common))


def _logic(name: str) -> Converter:
    return lambda step, x, y: step.b.op(name, step.cast(x, BOOL), step.cast(y, BOOL))


def _bits(name: str) -> Converter:
    def convert(step: AtenStep, x: GraphValue, y: GraphValue) -> GraphValue:
        need(step.dtype == BOOL, f"bits of {step.dtype}; it is covered for bool")
        return step.b.op(name, x, y)

    return convert


for _name in _UNARY:
    converts(f"aten.{_name}.default")(_unary(_name))
for _name in _ARITHMETIC:
    converts(f"aten.{_name}.Tensor" if len(_name) == 3 else f"aten.{_name}.default")(_arithmetic(_name))
for _name in ("mul", "div"):
    converts(f"aten.{_name}.Scalar")(_arithmetic(_name))
for _name in _COMPARISONS:
    converts(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar")(_comparison(_name))
for _name in ("and", "or", "xor"):
    converts(f"aten.logical_{_name}.default")(_logic(f"logical_{_name}"))
    converts(f"aten.bitwise_{_name}.Tensor", f"aten.__{_name}__.Tensor")(_bits(f"logical_{_name}"))


@converts("aten.add.Tensor", "aten.add.Scalar")
def add(step: AtenStep, x: Any, y: Any, alpha: float = 1) -> GraphValue:
    """x + alpha * y."""
    return step.b.op("add", step.operand(x), _scaled(step, y, alpha))


@converts("aten.sub.Tensor", "aten.sub.Scalar")
def sub(step: AtenStep, x: Any, y: Any, alpha: float = 1) -> GraphValue:
    """x - alpha * y."""
    return step.b.op("sub", step.operand(x), _scaled(step, y, alpha))


@converts("aten.rsub.Scalar", "aten.rsub.Tensor")
def rsub(step: AtenStep, x: Any, y: Any, alpha: float = 1) -> GraphValue:
    """y - alpha * x."""
    return step.b.op("sub", step.operand(y), _scaled(step, x, alpha))


def _scaled(step: AtenStep, y: Any, alpha: float) -> Any:
    if alpha == 1 or not isinstance(y, GraphValue):
        return step.operand(y if alpha == 1 else y * alpha)
    return step.cast(y) * alpha


@converts("aten.abs.default")
def absolute(step: AtenStep, x: GraphValue) -> GraphValue:
    """x without its sign."""
    return step.b.abs(x) if x.dtype in FLOATS else step.b.maximum(x, step.b.neg(x))


@converts("aten.reciprocal.default")
def reciprocal(step: AtenStep, x: GraphValue) -> GraphValue:
    """1 / x."""
    return step.b.op("div", 1.0, step.cast(x))


@converts("aten.logical_not.default")
def logical_not(step: AtenStep, x: GraphValue) -> GraphValue:
    """Whether x is false, or 0."""
    return step.b.logical_not(step.cast(x, BOOL))


@converts("aten.bitwise_not.default")
def bitwise_not(step: AtenStep, x: GraphValue) -> GraphValue:
    """Not x, for truth values."""
    need(step.dtype == BOOL, f"bits of {step.dtype}; it is covered for bool")
    return step.b.logical_not(x)


@converts("aten.pow.Tensor_Scalar")
def power(step: AtenStep, x: GraphValue, exponent: float) -> GraphValue:
    """A constant power."""
    x = step.cast(x)
    return step.b.square(x) if exponent == 2 else step.b.pow(x, exponent=exponent)


@converts("aten.gelu.default")
def gelu(step: AtenStep, x: GraphValue, approximate: str = "none") -> GraphValue:
    """GELU, exactly or by its formula with tanh."""
    return step.b.gelu(x, approximate=approximate)


@converts("aten.hardtanh.default")
def hardtanh(step: AtenStep, x: GraphValue, low: float = -1.0, high: float = 1.0) -> GraphValue:
    """x between two numbers."""
    return step.b.clamp(x, low=low, high=high)


@converts("aten.relu6.default")
def relu6(step: AtenStep, x: GraphValue) -> GraphValue:
    """x between 0 and 6."""
    return step.b.clamp(x, low=0.0, high=6.0)


@converts("aten.clamp.default")
def clamp(step: AtenStep, x: GraphValue, low: float | None = None, high: float | None = None) -> GraphValue:
    """x between two numbers, either of which may be missing; torch converts x to the dtype of these."""
    return step.b.clamp(step.cast(x), low=low, high=high)


@converts("aten.clamp_min.default")
def clamp_min(step: AtenStep, x: GraphValue, low: float) -> GraphValue:
    """x, but at least a number."""
    return step.b.clamp(step.cast(x), low=low)


@converts("aten.clamp_max.default")
def clamp_max(step: AtenStep, x: GraphValue, high: float) -> GraphValue:
    """x, but at most a number."""
    return step.b.clamp(step.cast(x), high=high)


@converts("aten.leaky_relu.default")
def leaky_relu(step: AtenStep, x: GraphValue, slope: float = 0.01) -> GraphValue:
    """x where it is positive, else a fraction of it."""
    return step.b.where(step.b.gt(x, 0.0), x, x * slope)


@converts("aten.elu.default")
def elu(step: AtenStep, x: GraphValue, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> GraphValue:
    """x where it is positive, else what approaches -alpha; SELU and CELU have scales."""
    below = (step.b.exp(x * input_scale) - 1.0) * (alpha * scale)
    return step.b.where(step.b.gt(x, 0.0), x * scale, below)


@converts("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf")
def where(step: AtenStep, condition: GraphValue, x: Any, y: Any) -> GraphValue:
    """x where the condition holds, else y."""
    return step.b.op("where", condition, *(step.operand(v) for v in (x, y)))


@converts("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(step: AtenStep, x: GraphValue, mask: GraphValue, value: Any) -> GraphValue:
    """A value where the mask holds, else x."""
    return step.b.op("where", mask, step.operand(value), x)


# --- conversions, and what changes nothing ----------------------------------------------------------------------------


@converts("aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout", "aten.to.device", "aten.type_as.default")
def to(step: AtenStep, x: GraphValue, *_: Any, **__: Any) -> GraphValue:
    """The dtype of the result; memory formats and devices do not concern graphs."""
    return step.cast(x)


@converts(*_SAME)
def same(step: AtenStep, x: GraphValue, *_: Any, **__: Any) -> GraphValue:
    """The operand: values of a graph do not change, so copies are not needed."""
    return x


@converts("aten.dropout.default")
def dropout(step: AtenStep, x: GraphValue, p: float, train: bool) -> GraphValue:
    """Nothing, since modules are imported as they are used for inference."""
    need(not train, "dropout while training is not covered; call module.eval() first")
    return x
