"""Networks with activations of a few bits: a change below one step is exactly zero, without any threshold.

Activations are whole numbers, held as float32, between which and the weights of a layer the step is folded; so all
kernels work on them, and a layer of whole weights has exact sums as long as these are below 2^24.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.errors import GraphError
from searchlab.graph import CompileOptions, GraphBuilder, GraphModule, GraphValue
from searchlab.video.residual_graph import MAIN, prepared, residual
from searchlab.video.residual_options import ResidualOptions
from searchlab.video.residual_plan import ResidualLayer
from searchlab.video.stream import ResidualModel

Array = npt.NDArray[Any]
MOST_BITS = 12


@dataclass(frozen=True)
class Steps:
    """Whole numbers from `low` to `high`, a step apart in the values that they stand for."""

    step: float
    low: int
    high: int

    @staticmethod
    def of(values: Array, bits: int) -> Steps:
        """Steps for values such as these; with one bit, below and above the mean (of magnitudes: the sign)."""
        largest = float(np.abs(values).max()) or 1.0
        if values.min() >= 0:
            high = 2**bits - 1
            return Steps(2 * float(values.mean() or largest) if bits == 1 else largest / high, 0, high)
        if bits == 1:
            return Steps(float(np.abs(values).mean()), -1, 1)
        return Steps(largest / (2 ** (bits - 1) - 1), 1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1)


def quantised(
    module: GraphModule,
    bits: int,
    frames: Sequence[Array],
    weight_bits: int | None = None,
    options: CompileOptions | dict[str, Any] | None = None,
) -> GraphModule:
    """A graph whose layers read activations of so many bits, in steps that suit the frames.

    With one bit a value is its sign, or, if it is never negative, whether it is above the mean.  `weight_bits` rounds
    the weights of each output as well; with one bit they become their signs, times the mean of their magnitudes.
    """
    for name, value in (("bits", bits), ("weight_bits", weight_bits)):
        if value is not None and not 1 <= value <= MOST_BITS:
            raise GraphError(f"{name} = {value}; 1 to {MOST_BITS} is accepted")
    if not len(frames):
        raise GraphError("steps are chosen by frames, and there are none")
    plan = residual(module, ResidualOptions())
    model = ResidualModel(plan, options=options)
    states = [model.first(np.asarray(frame, np.float32))[1] for frame in frames]
    steps = {
        point.name: Steps.of(np.concatenate([state[point.slot].reshape(-1) for state in states]), bits)
        for point in plan.points
    }
    layers = {layer.name: (layer, steps[plan.points[layer.point].name]) for layer in plan.layers}
    return _FewBits(prepared(module), layers, weight_bits).module()


class _FewBits:
    """Writes the function again; results of calls keep their names."""

    def __init__(
        self, module: GraphModule, layers: dict[str, tuple[ResidualLayer, Steps]], weight_bits: int | None
    ) -> None:
        self.main, self.layers, self.weight_bits = module[MAIN], layers, weight_bits
        self.b = GraphBuilder(MAIN, replace(module, functions={}), self.main.ranges)
        self.whole: dict[str, GraphValue] = {}  # by values: the same as whole numbers

    def module(self) -> GraphModule:
        """The module."""
        (frame,) = self.main.parameters
        self.b.input(frame.name, frame.annotation)
        for binding in self.main.bindings:
            call = binding.call
            if binding.name in self.layers:
                layer, steps = self.layers[binding.name]
                given, weight, *_ = call.names()
                new = {given: self._rounded(given, steps).name, weight: self._weights(binding.name, layer, steps).name}
                call = call.with_operands(tuple(new.get(str(o), o) for o in call.operands()))
            self.b.emit(call, binding.name)
        return self.b.build(self.b.known(self.main.result))

    def _name(self, base: str) -> str:
        while base in self.main.annotations or self.b.is_taken(base):
            base += "_"
        return base

    def _op(self, base: str, operator: str, *args: GraphValue | float, **attributes: object) -> GraphValue:
        return self.b.op(operator, *args, name=self._name(base), **attributes)

    def _rounded(self, given: str, steps: Steps) -> GraphValue:
        """A value as whole numbers, computed once for all layers that read it."""
        if given not in self.whole:
            value = self.b.known(given)
            if steps.low == -1 == -steps.high:
                above = self._op(f"{given}_above", "gt", value, 0.0)
                ones = self._op(f"{given}_ones", "cast", above, dtype="float32")
                self.whole[given] = self._op(f"{given}_sign", "sub", self._op(f"{given}_two", "mul", ones, 2.0), 1.0)
            else:
                scaled = self._op(f"{given}_scaled", "mul", value, 1.0 / steps.step)
                nearest = self._op(f"{given}_nearest", "floor", self._op(f"{given}_half", "add", scaled, 0.5))
                limits = {"low": float(steps.low), "high": float(steps.high)}
                self.whole[given] = self._op(f"{given}_whole", "clamp", nearest, **limits)
        return self.whole[given]

    def _weights(self, name: str, layer: ResidualLayer, steps: Steps) -> GraphValue:
        weight = layer.weight
        if self.weight_bits is not None:
            weight = rounded_weights(weight, self.weight_bits, 1 if layer.operator.name == "dense" else 0)
        return self.b.constant(self._name(f"{name}_steps"), (weight * np.float32(steps.step)).astype(np.float32))


def rounded_weights(weight: Array, bits: int, outputs: int = 0) -> Array:
    """Weights of so many bits, with a step for each output; `outputs` is the axis of these."""
    others = tuple(a for a in range(weight.ndim) if a != outputs)
    if bits == 1:
        scale = np.abs(weight).mean(axis=others, keepdims=True)
        return np.asarray(np.where(weight > 0, scale, -scale), np.float32)
    step = np.abs(weight).max(axis=others, keepdims=True) / (2 ** (bits - 1) - 1)
    return np.asarray(np.round(weight / np.where(step > 0, step, 1)) * step, np.float32)
