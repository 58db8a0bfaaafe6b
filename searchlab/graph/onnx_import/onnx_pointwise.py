"""Pointwise operators of ONNX: functions, arithmetic, comparisons, logic, conversions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from searchlab.dtype import FLOATS
from searchlab.graph.building import GraphValue
from searchlab.graph.calls import Scalar
from searchlab.graph.onnx_import.onnx_conversion import NodeConverter, OnnxStep, from_node, need
from searchlab.graph.onnx_import.onnx_known import KnownTensor, OnnxValue
from searchlab.graph.onnx_import.onnx_model import dtype_of_type

_UNARY = {
    "Cos": "cos", "Erf": "erf", "Exp": "exp", "Floor": "floor", "Log": "log", "Neg": "neg", "Not": "logical_not",
    "Relu": "relu", "Round": "round", "Sigmoid": "sigmoid", "Sin": "sin", "Sqrt": "sqrt", "Tanh": "tanh",
}  # fmt: skip
_BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "And": "logical_and", "Or": "logical_or", "Xor": "logical_xor",
    "Equal": "eq", "Less": "lt", "LessOrEqual": "le", "Greater": "gt", "GreaterOrEqual": "ge",
}  # fmt: skip
_VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add"}
Operand = GraphValue | Scalar


def _operands(step: OnnxStep, *given: OnnxValue) -> list[Operand]:
    """Operands that are broadcast: known numbers as such, but at least one as a tensor."""
    rank = _rank(step, given)
    made = [step.operand(x, rank) for x in given]
    if not any(isinstance(x, GraphValue) for x in made):
        made[0] = step.tensor(given[0])
    return made


def _rank(step: OnnxStep, given: Sequence[OnnxValue]) -> int:
    """The largest rank of tensors: numbers of a larger one would add axes, so they become tensors as well."""
    ranks = [len(step.shape(x)) for x in given if not (isinstance(x, KnownTensor) and x.array.size == 1)]
    return max(ranks, default=0)


def _unary(name: str) -> NodeConverter:
    return lambda step, x: step.b.op(name, step.tensor(x))


def _binary(name: str) -> NodeConverter:
    return lambda step, x, y: step.b.op(name, *_operands(step, x, y))


def _variadic(name: str) -> NodeConverter:
    def convert(step: OnnxStep, *given: OnnxValue) -> GraphValue:
        if len(given) == 1:
            return step.tensor(given[0])
        found: GraphValue = reduce(lambda x, y: step.b.op(name, x, y), _operands(step, *given))  # type: ignore[assignment]
        return found

    return convert


for _onnx, _own in _UNARY.items():
    from_node(_onnx)(_unary(_own))
for _onnx, _own in _BINARY.items():
    from_node(_onnx)(_binary(_own))
for _onnx, _own in _VARIADIC.items():
    from_node(_onnx)(_variadic(_own))


@from_node("Mean")
def mean(step: OnnxStep, *given: OnnxValue) -> GraphValue:
    """The mean of several tensors."""
    total = _variadic("add")(step, *given)
    assert isinstance(total, GraphValue)
    return total * (1 / len(given))


@from_node("Div")
def div(step: OnnxStep, x: OnnxValue, y: OnnxValue) -> GraphValue:
    """Quotients of floats."""
    made = _operands(step, x, y)
    need(made[0].dtype in FLOATS, f"quotients of {made[0].dtype}; floats are covered")
    return step.b.op("div", *made)


@from_node("Abs")
def absolute(step: OnnxStep, x: OnnxValue) -> GraphValue:
    """x without its sign."""
    tensor = step.tensor(x)
    return step.b.abs(tensor) if tensor.dtype in FLOATS else step.b.maximum(tensor, step.b.neg(tensor))


@from_node("Ceil")
def ceil(step: OnnxStep, x: OnnxValue) -> GraphValue:
    """The next whole number above."""
    return step.b.neg(step.b.floor(step.b.neg(step.tensor(x))))


@from_node("Reciprocal")
def reciprocal(step: OnnxStep, x: OnnxValue) -> GraphValue:
    """1 / x."""
    return 1.0 / step.tensor(x)


@from_node("Pow")
def power(step: OnnxStep, x: OnnxValue, y: OnnxValue) -> GraphValue:
    """A constant power."""
    exponent = step.number(y, "the exponent")
    tensor = step.tensor(x)
    return step.b.square(tensor) if exponent == 2 else step.b.pow(tensor, exponent=exponent)


@from_node("Clip")
def clip(
    step: OnnxStep,
    x: OnnxValue,
    low: OnnxValue | None = None,
    high: OnnxValue | None = None,
    *,
    min: float | None = None,
    max: float | None = None,
) -> GraphValue:
    """x between two numbers, either of which may be missing."""
    least = min if low is None else step.number(low, "the lower bound")
    most = max if high is None else step.number(high, "the upper bound")
    tensor = step.tensor(x)
    return tensor if least is None and most is None else step.b.clamp(tensor, low=least, high=most)


@from_node("Gelu")
def gelu(step: OnnxStep, x: OnnxValue, *, approximate: str = "none") -> GraphValue:
    """GELU, exactly or by its formula with tanh."""
    return step.b.gelu(step.tensor(x), approximate=approximate)


@from_node("Swish")
def swish(step: OnnxStep, x: OnnxValue, *, alpha: float = 1.0) -> GraphValue:
    """x * sigmoid(alpha * x)."""
    tensor = step.tensor(x)
    return step.b.silu(tensor) if alpha == 1 else tensor * step.b.sigmoid(tensor * alpha)


@from_node("Softplus")
def softplus(step: OnnxStep, x: OnnxValue) -> GraphValue:
    """log(1 + exp(x)), without an overflow."""
    tensor = step.tensor(x)
    return step.b.relu(tensor) + step.b.log(step.b.exp(step.b.neg(step.b.abs(tensor))) + 1.0)


@from_node("LeakyRelu")
def leaky_relu(step: OnnxStep, x: OnnxValue, *, alpha: float = 0.01) -> GraphValue:
    """x where it is positive, else a fraction of it."""
    tensor = step.tensor(x)
    return step.b.where(step.b.gt(tensor, 0.0), tensor, tensor * alpha)


@from_node("PRelu")
def prelu(step: OnnxStep, x: OnnxValue, slope: OnnxValue) -> GraphValue:
    """The same with a fraction that is a tensor."""
    tensor = step.tensor(x)
    return step.b.where(step.b.gt(tensor, 0.0), tensor, tensor * step.operand(slope, len(tensor.shape)))


@from_node("Elu")
def elu(step: OnnxStep, x: OnnxValue, *, alpha: float = 1.0) -> GraphValue:
    """x where it is positive, else what approaches -alpha."""
    tensor = step.tensor(x)
    return step.b.where(step.b.gt(tensor, 0.0), tensor, (step.b.exp(tensor) - 1.0) * alpha)


@from_node("HardSigmoid")
def hard_sigmoid(step: OnnxStep, x: OnnxValue, *, alpha: float = 0.2, beta: float = 0.5) -> GraphValue:
    """A line between 0 and 1."""
    return step.b.clamp(step.tensor(x) * alpha + beta, low=0.0, high=1.0)


@from_node("HardSwish")
def hard_swish(step: OnnxStep, x: OnnxValue) -> GraphValue:
    """x times such a line."""
    tensor = step.tensor(x)
    return tensor * step.b.clamp(tensor * (1 / 6) + 0.5, low=0.0, high=1.0)


@from_node("Where")
def where(step: OnnxStep, condition: OnnxValue, x: OnnxValue, y: OnnxValue) -> GraphValue:
    """x where the condition holds, else y."""
    rank = _rank(step, (condition, x, y))
    return step.b.op("where", step.tensor(condition), *(step.operand(v, rank) for v in (x, y)))


# --- conversions, and what changes nothing ----------------------------------------------------------------------------


@from_node("Cast")
def cast(step: OnnxStep, x: OnnxValue, *, to: int, saturate: int = 1, round_mode: str = "up") -> GraphValue:
    """Another dtype; the attributes beside it concern floats of 8 bits."""
    return _converted(step, step.tensor(x), dtype_of_type(to, "the result"))


@from_node("CastLike")
def cast_like(step: OnnxStep, x: OnnxValue, like: OnnxValue, **_: Any) -> GraphValue:
    """The dtype of another tensor."""
    return _converted(step, step.tensor(x), like.dtype)


def _converted(step: OnnxStep, tensor: GraphValue, dtype: str) -> GraphValue:
    return tensor if tensor.dtype == dtype else step.b.cast(tensor, dtype=dtype)


@from_node("Identity")
def identity(step: OnnxStep, x: OnnxValue) -> OnnxValue:
    """The operand."""
    return x


@from_node("Dropout")
def dropout(
    step: OnnxStep,
    x: OnnxValue,
    ratio: OnnxValue | None = None,
    training: OnnxValue | None = None,
    **_: Any,
) -> OnnxValue:
    """Nothing, since models are imported as they are used for inference."""
    trains = training is not None and not (isinstance(training, KnownTensor) and not training.array.any())
    need(not trains, "dropout while training is not covered")
    return x
