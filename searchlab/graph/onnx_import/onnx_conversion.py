"""The table of converters for ONNX: which function writes the calls for which operators.

    @from_node("Gelu")
    def gelu(step, x, *, approximate="none"):
        return step.b.gelu(step.tensor(x), approximate=approximate)

Operands come first, None where an optional one is left out; attributes of the node are keyword arguments, and one that
a converter does not take is refused. Operands may be known (weights, shapes), so converters say what they need: a
tensor, sizes or numbers. A converter returns a value, or a tuple of values where the operator has several results.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from searchlab.dtype import BOOL, FLOATS
from searchlab.errors import GraphError
from searchlab.graph.annotations import Shape, extents
from searchlab.graph.building import GraphBuilder, GraphValue
from searchlab.graph.calls import Scalar
from searchlab.graph.onnx_import.onnx_known import Constants, KnownTensor, OnnxValue
from searchlab.graph.operator import Array
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.expr import Expr, index, value_of

OnnxResults = OnnxValue | tuple[OnnxValue | None, ...]
NodeConverter = Callable[..., OnnxResults]
C = TypeVar("C", bound=NodeConverter)

ONNX_CONVERTERS: dict[str, NodeConverter] = {}


def from_node(*operators: str) -> Callable[[C], C]:
    """Registers a converter for operators of ONNX; those of other domains are named as `com.microsoft.Gelu` is."""

    def register(function: C) -> C:
        for operator in operators:
            known = ONNX_CONVERTERS.get(operator)
            if known is not None and known.__module__ != function.__module__:
                raise GraphError(f"{operator} of {function.__module__} is already converted by {known.__module__}")
            ONNX_CONVERTERS[operator] = function
        return function

    return register


def call_converter(
    convert: NodeConverter, step: OnnxStep, operands: Sequence[OnnxValue | None], attributes: Mapping[str, Any]
) -> OnnxResults:
    """The results of a converter; operands and attributes that it does not take are refused."""
    parameters = inspect.signature(convert).parameters.values()
    loose = {p.kind for p in parameters}
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    unknown = [name for name in attributes if name not in named]
    need(
        not unknown or inspect.Parameter.VAR_KEYWORD in loose,
        f"the attribute {', '.join(unknown)} is not covered; covered are {', '.join(named) or 'none'}",
    )
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD][1:]
    given = len(operands)
    while given and operands[given - 1] is None:
        given -= 1
    many = inspect.Parameter.VAR_POSITIONAL in loose
    need(many or given <= len(positional), f"{given} operands are not covered, only the first {len(positional)}")
    least = sum(p.default is p.empty for p in positional)
    need(given >= least, f"{given} operands; it takes at least {least}")
    return convert(step, *operands[:given], **attributes)


@dataclass(frozen=True)
class OnnxStep:
    """One node that is being converted: the builder, and what is known around it."""

    b: GraphBuilder
    operator: str
    opset: int
    outputs: int  # the number of results that the node has
    facts: SizeFacts
    constants: Constants

    def tensor(self, x: OnnxValue) -> GraphValue:
        """An operand as a tensor of the graph."""
        return self.constants.tensor(x) if isinstance(x, KnownTensor) else x

    def operand(self, x: OnnxValue, rank: int) -> GraphValue | Scalar:
        """An operand beside others of a rank, as a number if it is a known one."""
        if not isinstance(x, KnownTensor) or x.array.size != 1 or x.array.ndim > rank:
            return self.tensor(x)
        value = x.array.item()
        if isinstance(value, Expr):
            return Scalar(value, x.dtype)
        return Scalar(bool(value) if x.dtype == BOOL else float(value) if x.dtype in FLOATS else int(value), x.dtype)

    def shape(self, x: OnnxValue) -> Shape:
        """The shape of an operand."""
        return tuple(map(index, x.array.shape)) if isinstance(x, KnownTensor) else x.shape

    def sizes(self, x: OnnxValue, what: str) -> tuple[Expr, ...]:
        """The elements of an operand that says sizes or positions, which must be known."""
        need(isinstance(x, KnownTensor), f"{what} depends on data, which graphs do not support")
        assert isinstance(x, KnownTensor)
        return tuple(x.exprs.flat)

    def numbers(self, x: OnnxValue, what: str) -> Array:
        """The elements of an operand that must be numbers known beforehand."""
        need(isinstance(x, KnownTensor) and not x.symbolic, f"{what} must be numbers that the model holds")
        assert isinstance(x, KnownTensor)
        return x.array

    def ints(self, x: OnnxValue, what: str) -> tuple[int, ...]:
        """The elements of an operand that must be integers known beforehand, such as axes."""
        return tuple(int(n) for n in np.ravel(self.numbers(x, what)))

    def number(self, x: OnnxValue, what: str) -> Any:
        """The only element of an operand, which must be a number known beforehand."""
        found = self.numbers(x, what)
        need(found.size == 1, f"{what} has {found.size} elements; one is covered")
        return found.item()

    def known_extents(self, shape: Shape, what: str) -> tuple[int, ...]:
        """Extents that must be numbers."""
        found = [value_of(e) for e in shape]
        need(None not in found, f"{what} ({', '.join(map(str, shape))}) must be known")
        return tuple(n for n in found if n is not None)

    def reshaped(self, x: GraphValue, shape: Sequence[Any]) -> GraphValue:
        """A tensor with another shape; itself if it has that already."""
        wanted = extents(shape)
        return x if x.shape == wanted else self.b.reshape(x, shape=wanted)


def need(condition: bool, message: str) -> None:
    """Refuses a node that is not covered."""
    if not condition:
        raise GraphError(message)
