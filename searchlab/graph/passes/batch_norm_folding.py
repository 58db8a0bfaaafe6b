"""Batch normalisation with fixed statistics is a scale and a shift per channel, which weights before it can take.

    batch_norm(conv2d(x, w), gamma, beta, mean, variance)   =>   conv2d(x, w * scale, shift)
    batch_norm(x, gamma, beta, mean, variance)              =>   x * scale + shift

Here scale = gamma / sqrt(variance + eps) and shift = beta - mean * scale, in double precision and rounded once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.graph.annotations import TensorType
from searchlab.graph.calls import GraphCall, OperatorCall
from searchlab.graph.deduction import scope_of
from searchlab.graph.functions import Binding, GraphFunction, GraphModule
from searchlab.graph.operator import operator_named
from searchlab.graph.passes.cleaning import remove_dead
from searchlab.graph.passes.constant_folding import NewConstants

_FLOATS = ("float32", "float64")  # weights of 16 bits would be rounded a second time
_CHANNELS = {"conv2d": 0, "conv_transpose2d": 1, "linear": 0, "dense": 1}  # the axis of the weights' output channels
_ROWS = ("linear", "dense")  # their channels are the last axis, which is the second one of matrices only


def fold_batch_norms(module: GraphModule) -> GraphModule:
    """The module with batch norms of constant weights folded, and without what nothing uses then."""
    constants = NewConstants(module)
    for function in module:
        module = module.with_function(_Folded(module, function, constants).function())
        module = replace(module, constants=dict(constants.held))
    return remove_dead(module)


@dataclass(frozen=True)
class _Scaling:
    """A scale and a shift per channel, in double precision."""

    scale: npt.NDArray[np.float64]
    shift: npt.NDArray[np.float64]


class _Folded:
    """The bindings of a function with batch norms folded."""

    def __init__(self, module: GraphModule, function: GraphFunction, constants: NewConstants) -> None:
        self.module, self.before, self.constants = module, function, constants

    def function(self) -> GraphFunction:
        bindings = [new for b in self.before.bindings for new in self._folded(b)]
        if tuple(bindings) == self.before.bindings:
            return self.before
        module = replace(self.module, constants=self.constants.held)
        scope = scope_of(module, self.before)
        return replace(self.before, bindings=tuple(scope.bind(b.name, b.call) for b in bindings))

    def _folded(self, b: Binding) -> Iterator[Binding]:
        call, kind = b.call, b.annotation
        scaling = self._scaling(call) if isinstance(kind, TensorType) and kind.dtype in _FLOATS else None
        if scaling is None or not isinstance(call, OperatorCall) or not isinstance(kind, TensorType):
            yield b
            return
        inner = self.before.calls.get(str(call.args[0]))
        if self._takes(str(call.args[0]), inner, kind):
            assert isinstance(inner, OperatorCall)
            yield replace(b, call=self._scaled(inner, scaling))
        else:
            yield from self._alone(b, call, kind, scaling)

    def _scaling(self, call: GraphCall) -> _Scaling | None:
        """What a batch norm with constant weights does; None for all other calls."""
        if not isinstance(call, OperatorCall) or call.operator.name != "batch_norm":
            return None
        given = [self._array(name) for name in call.args[1:]]
        if any(a is None for a in given):
            return None
        gamma, beta, mean, variance = (np.asarray(a, np.float64) for a in given)
        scale = gamma / np.sqrt(variance + dict(call.operator.attributes())["eps"])
        return _Scaling(scale, beta - mean * scale)

    def _array(self, operand: Any) -> npt.NDArray[Any] | None:
        held = self.constants.held.get(operand) if isinstance(operand, str) else None
        return None if held is None else held.array

    def _takes(self, name: str, inner: GraphCall | None, kind: TensorType) -> bool:
        """Whether a call before has constant weights that can be scaled, and nothing else uses its result."""
        if not isinstance(inner, OperatorCall) or inner.operator.name not in _CHANNELS or self.before.uses[name] != 1:
            return False
        if inner.operator.name in _ROWS and kind.rank != 2:
            return False
        return all(self._array(weight) is not None for weight in inner.args[1:])

    def _scaled(self, call: OperatorCall, scaling: _Scaling) -> OperatorCall:
        """A product whose weights and bias include a scaling."""
        x, weight, *bias = call.args
        array = self._array(weight)
        assert array is not None
        column = [1] * array.ndim
        column[_CHANNELS[call.operator.name]] = -1
        shift = scaling.shift
        for name in bias:
            shift = shift + np.asarray(self._array(name), np.float64) * scaling.scale
        new = self._add(f"{weight}_scaled", array * scaling.scale.reshape(column), array.dtype)
        return replace(call, args=(x, new, self._add(f"{weight}_shift", shift, array.dtype)))

    def _alone(self, b: Binding, call: OperatorCall, kind: TensorType, scaling: _Scaling) -> Iterator[Binding]:
        """A product with the scales and a sum with the shifts."""
        column = (-1, *[1] * ((kind.rank or 2) - 2))
        name = f"{b.name}_scaled"
        while name in self.before.annotations or name in self.constants.held:
            name += "_"
        scale = self._add(f"{b.name}_scale", scaling.scale.reshape(column), kind.dtype)
        shift = self._add(f"{b.name}_shift", scaling.shift.reshape(column), kind.dtype)
        yield Binding(name, OperatorCall((call.args[0], scale), operator_named("mul")), kind)
        yield replace(b, call=OperatorCall((name, shift), operator_named("add")))

    def _add(self, name: str, array: npt.NDArray[np.float64], dtype: Any) -> str:
        return self.constants.add(name, array.astype(dtype), str(np.dtype(dtype)))
