"""Operators of ONNX on sizes: what models compute from shapes, on arrays of index expressions.

Numbers alone are evaluated by onnx itself; these are for values in which a size is not a number. What is not covered
here becomes a tensor, and so does all that is computed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from searchlab.graph.onnx_import.onnx_conversion import OnnxStep, need
from searchlab.graph.onnx_import.onnx_known import KnownTensor, known_sizes
from searchlab.graph.onnx_import.onnx_model import dtype_of_type
from searchlab.graph.operator import Array
from searchlab.ir.expr import Expr, compare, index, maximum, minimum

SIZE_FUNCTIONS: dict[str, Callable[..., KnownTensor]] = {}


def on_sizes(*operators: str) -> Callable[[Callable[..., KnownTensor]], Callable[..., KnownTensor]]:
    """Registers a function of known values for operators of ONNX."""

    def register(function: Callable[..., KnownTensor]) -> Callable[..., KnownTensor]:
        SIZE_FUNCTIONS.update(dict.fromkeys(operators, function))
        return function

    return register


def _each(function: Callable[..., Any], *operands: KnownTensor) -> Array:
    """A function of elements, with broadcasting."""
    made: Array = np.frompyfunc(function, len(operands), 1)(*(x.exprs for x in operands))
    return np.asarray(made, object)


def _elementwise(name: str, function: Callable[..., Expr]) -> None:
    def convert(step: OnnxStep, *operands: KnownTensor) -> KnownTensor:
        def simple(*values: Expr) -> Expr:
            return step.facts.simplify(index(reduce(function, values)))

        return known_sizes(_each(simple, *operands), operands[0].dtype)

    on_sizes(name)(convert)


_ELEMENTWISE: dict[str, Callable[[Expr, Expr], Expr]] = {
    "Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b,
    "Max": maximum, "Min": minimum, "Sum": lambda a, b: a + b,
}  # fmt: skip
for _name, _function in _ELEMENTWISE.items():
    _elementwise(_name, _function)


@on_sizes("Div")
def div(step: OnnxStep, x: KnownTensor, y: KnownTensor) -> KnownTensor:
    """Quotients, rounded down: of sizes, which are not negative; floats must be whole multiples."""

    def quotient(a: Expr, b: Expr) -> Expr:
        need(step.facts.proves(a >= 0) and step.facts.proves(b >= 1), f"{a} / {b}, whose rounding is not known")
        whole = "int" in x.dtype or step.facts.proves(compare("eq", a % b, 0))
        need(whole, f"{a} / {b}, which may be a fraction")
        return step.facts.simplify(a // b)

    return known_sizes(_each(quotient, x, y), x.dtype)


@on_sizes("Mod")
def mod(step: OnnxStep, x: KnownTensor, y: KnownTensor, *, fmod: int = 0) -> KnownTensor:
    """Remainders of sizes."""

    def remainder(a: Expr, b: Expr) -> Expr:
        need(step.facts.proves(a >= 0) and step.facts.proves(b >= 1), f"{a} % {b}, whose sign is not known")
        return step.facts.simplify(a % b)

    return known_sizes(_each(remainder, x, y), x.dtype)


@on_sizes("Neg")
def negated(step: OnnxStep, x: KnownTensor) -> KnownTensor:
    """Sizes with a minus, as slices from the end have."""
    return known_sizes(_each(lambda e: -e, x), x.dtype)


def _comparison(name: str, op: str) -> None:
    opposite = {"eq": "ne", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}[op]

    def convert(step: OnnxStep, x: KnownTensor, y: KnownTensor) -> KnownTensor:
        def decided(a: Expr, b: Expr) -> bool:
            if step.facts.proves(compare(op, a, b)):
                return True
            undecided = f"whether {a} {op} {b} holds depends on the sizes, and it is not known for all of them"
            need(step.facts.proves(compare(opposite, a, b)), undecided)
            return False

        return KnownTensor(_each(decided, x, y).astype(bool), "bool")

    on_sizes(name)(convert)


for _name, _op in {"Equal": "eq", "Less": "lt", "LessOrEqual": "le", "Greater": "gt", "GreaterOrEqual": "ge"}.items():
    _comparison(_name, _op)


@on_sizes("Where")
def where(step: OnnxStep, condition: KnownTensor, x: KnownTensor, y: KnownTensor) -> KnownTensor:
    """One of two sizes."""
    need(not condition.symbolic, "a condition that is a size")
    return known_sizes(np.where(condition.array, x.exprs, y.exprs), x.dtype)


@on_sizes("Identity")
def identity(step: OnnxStep, x: KnownTensor) -> KnownTensor:
    """The same."""
    return x


@on_sizes("Floor", "Ceil", "Round")
def rounding(step: OnnxStep, x: KnownTensor) -> KnownTensor:
    """The same: sizes are whole."""
    return x


@on_sizes("Cast")
def cast(step: OnnxStep, x: KnownTensor, *, to: int, **_: Any) -> KnownTensor:
    """The same numbers in another dtype."""
    dtype = dtype_of_type(to, "the result")
    need(dtype != "bool", "the truth of a size")
    return KnownTensor(x.array, dtype, x.name)


@on_sizes("Gather")
def gather(step: OnnxStep, x: KnownTensor, places: KnownTensor, *, axis: int = 0) -> KnownTensor:
    """Some of the sizes."""
    need(not places.symbolic, "the position of a size depends on a size")
    return known_sizes(np.take(x.exprs, places.array, axis=axis), x.dtype)


@on_sizes("Concat")
def concat(step: OnnxStep, *parts: KnownTensor, axis: int) -> KnownTensor:
    """Sizes one after the other."""
    return known_sizes(np.concatenate([x.exprs for x in parts], axis), parts[0].dtype)


@on_sizes("Squeeze", "Unsqueeze")
def squeezed(
    step: OnnxStep, x: KnownTensor, given: KnownTensor | None = None, *, axes: Sequence[int] | None = None
) -> KnownTensor:
    """The same sizes, with axes of extent 1 removed or added."""
    where = axes if given is None else step.ints(given, "the axes")
    if step.operator == "Squeeze":
        return known_sizes(np.squeeze(x.exprs, None if where is None else tuple(where)), x.dtype)
    return known_sizes(np.expand_dims(x.exprs, tuple(where or ())), x.dtype)


@on_sizes("Reshape")
def reshaped(step: OnnxStep, x: KnownTensor, shape: KnownTensor, *, allowzero: int = 0) -> KnownTensor:
    """The same sizes, arranged in another way."""
    wanted = step.ints(shape, "the shape of sizes")
    kept = [x.array.shape[axis] if n == 0 and not allowzero else n for axis, n in enumerate(wanted)]
    return known_sizes(x.exprs.reshape(kept), x.dtype)


@on_sizes("Slice")
def sliced(
    step: OnnxStep,
    x: KnownTensor,
    starts: KnownTensor,
    ends: KnownTensor,
    axes: KnownTensor | None = None,
    steps: KnownTensor | None = None,
) -> KnownTensor:
    """Some of the sizes."""
    given = [part for part in (starts, ends, axes, steps) if part is not None]
    need(not any(part.symbolic for part in given), "the position of a size depends on a size")
    need(x.array.ndim == starts.array.size == 1, "parts of sizes that have several axes")
    by = int(steps.array.item()) if steps is not None else 1
    return known_sizes(x.exprs[int(starts.array.item()) : int(ends.array.item()) : by], x.dtype)


@on_sizes("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin")
def reduced(
    step: OnnxStep, x: KnownTensor, axes: KnownTensor | None = None, *, keepdims: int = 1, **_: Any
) -> KnownTensor:
    """The product, sum or extreme of all sizes."""
    need(x.array.ndim <= 1, "sizes that have several axes")
    function = {"Prod": lambda a, b: a * b, "Sum": lambda a, b: a + b, "Max": maximum, "Min": minimum}
    made = reduce(function[step.operator.removeprefix("Reduce")], x.exprs.flat)
    return known_sizes(np.array([made] if keepdims else made, object), x.dtype)
