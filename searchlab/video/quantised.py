"""Networks with activations of a few bits: a change below one step is exactly zero, without any threshold.

Activations are whole numbers, held as float32, between which and the weights of a layer the step is folded; so all
kernels work on them, and a layer of whole weights has exact sums as long as these are below 2^24.  Or they are bytes,
weights are of int8, and sums of int32: then all sums are exact, and so is everything between layers (see `_Bytes`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.errors import GraphError
from searchlab.graph import CompileOptions, GraphBuilder, GraphModule, GraphValue
from searchlab.graph.calls import GraphCall
from searchlab.video.residual_graph import MAIN, prepared, residual
from searchlab.video.residual_options import ResidualOptions
from searchlab.video.residual_plan import ResidualLayer
from searchlab.video.stream import ResidualModel

Array = npt.NDArray[Any]
MOST_BITS, BYTE = 12, 8
LARGEST = 254  # of a byte: then any change is the sum of two that fit into a byte (see `following`)
_GRID = 15  # bits of the results of layers of bytes
_BIAS = 2**30  # the largest


@dataclass(frozen=True)
class Steps:
    """Whole numbers from `low` to `high`, a step apart in the values that they stand for."""

    step: float
    low: int
    high: int

    @staticmethod
    def of(values: Array, bits: int, most: int | None = None) -> Steps:
        """Steps for values such as these; with one bit, below and above the mean (of magnitudes: the sign)."""
        largest = float(np.abs(values).max()) or 1.0
        if values.min() >= 0:
            high = min(2**bits - 1, most or 2**bits)
            return Steps(2 * float(values.mean() or largest) if bits == 1 else largest / high, 0, high)
        if bits == 1:
            return Steps(float(np.abs(values).mean()), -1, 1)
        return Steps(largest / (2 ** (bits - 1) - 1), 1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1)


@dataclass(frozen=True, eq=False)
class _Layer:
    """A layer, the steps of what it reads, and the largest magnitude of what it gives."""

    layer: ResidualLayer
    steps: Steps
    largest: float

    @property
    def outputs(self) -> int:
        """The axis of its weights that outputs are along."""
        return 1 if self.layer.operator.name in ("dense", "conv_transpose2d") else 0


def quantised(
    module: GraphModule,
    bits: int,
    frames: Sequence[Array],
    weight_bits: int | None = None,
    options: CompileOptions | dict[str, Any] | None = None,
    integers: bool = False,
) -> GraphModule:
    """A graph whose layers read activations of so many bits, in steps that suit the frames.

    With one bit a value is its sign, or, if it is never negative, whether it is above the mean.  `weight_bits` rounds
    the weights of each output as well; with one bit they become their signs, times the mean of their magnitudes.  With
    `integers` activations are bytes, weights are of int8 (of 8 bits, unless fewer are asked for) and sums of int32.
    """
    most = BYTE if integers else MOST_BITS
    weight_bits = BYTE if integers and weight_bits is None else weight_bits
    for name, value in (("bits", bits), ("weight_bits", weight_bits)):
        if value is not None and not 1 <= value <= most:
            raise GraphError(f"{name} = {value}; 1 to {most} is accepted")
    if not len(frames):
        raise GraphError("steps are chosen by frames, and there are none")
    plan = residual(module, ResidualOptions(kernel="skip"))  # of which only what computes everything is compiled
    model = ResidualModel(plan, options=options)
    states = [model.first(np.asarray(frame, np.float32))[1] for frame in frames]
    limit = LARGEST if integers else None
    steps = [Steps.of(np.concatenate([s[p.slot].reshape(-1) for s in states]), bits, limit) for p in plan.points]
    layers = {
        layer.name: _Layer(layer, steps[layer.point], max(float(np.abs(s[layer.slot]).max()) for s in states))
        for layer in plan.layers
    }
    return (_Bytes if integers else _FewBits)(prepared(module), layers, weight_bits).module()


class _FewBits:
    """Writes the function again; results of calls keep their names."""

    def __init__(self, module: GraphModule, layers: dict[str, _Layer], weight_bits: int | None) -> None:
        self.main, self.layers, self.weight_bits = module[MAIN], layers, weight_bits
        self.constants = module.constants
        self.b = GraphBuilder(MAIN, replace(module, functions={}), self.main.ranges)
        self.whole: dict[str, GraphValue] = {}  # by values: the same as whole numbers

    def module(self) -> GraphModule:
        """The module."""
        (frame,) = self.main.parameters
        self.b.input(frame.name, frame.annotation)
        for binding in self.main.bindings:
            if binding.name in self.layers:
                self._layer(binding.name, binding.call, self.layers[binding.name])
            else:
                self.b.emit(binding.call, binding.name)
        return self.b.build(self.b.known(self.main.result))

    def _layer(self, name: str, call: GraphCall, found: _Layer) -> None:
        """A layer on whole numbers, whose step is part of its weights."""
        given, weight, *_ = call.names()
        array = found.layer.weight
        if self.weight_bits is not None:
            array = rounded_weights(array, self.weight_bits, found.outputs)
        folded = self._constant(f"{name}_steps", (array * np.float32(found.steps.step)).astype(np.float32))
        new = {given: self._rounded(given, found.steps).name, weight: folded.name}
        self.b.emit(call.with_operands(tuple(new.get(str(o), o) for o in call.operands())), name)

    def _name(self, base: str) -> str:
        while base in self.main.annotations or self.b.is_taken(base):
            base += "_"
        return base

    def _op(self, base: str, operator: Any, *args: GraphValue | float, **attributes: object) -> GraphValue:
        return self.b.op(operator, *args, name=self._name(base), **attributes)

    def _constant(self, base: str, array: Array) -> GraphValue:
        return self.b.constant(self._name(base), array)

    def _rounded(self, given: str, steps: Steps) -> GraphValue:
        """A value as whole numbers, computed once for all layers that read it."""
        if given not in self.whole:
            value = self.b.known(given)
            if steps.low == -1 == -steps.high:
                above = self._op(f"{given}_above", "gt", value, 0.0)
                ones = self._op(f"{given}_ones", "cast", above, dtype="float32")
                self.whole[given] = self._op(f"{given}_sign", "sub", self._op(f"{given}_two", "mul", ones, 2.0), 1.0)
            else:
                nearest = self._op(
                    f"{given}_nearest", "round", self._op(f"{given}_scaled", "mul", value, 1.0 / steps.step)
                )
                limits = {"low": float(steps.low), "high": float(steps.high)}
                self.whole[given] = self._op(f"{given}_whole", "clamp", nearest, **limits)
        return self.whole[given]


class _Bytes(_FewBits):
    """Layers of bytes: the sums of a layer are scaled, rounded to whole numbers, and scaled by a power of two.

    So every product between layers is exact or is rounded at once, and never rounded together with a sum that follows
    it: whatever instructions a compiler chooses, sums of branches, maxima and means give the same bits.
    """

    def __init__(self, module: GraphModule, layers: dict[str, _Layer], weight_bits: int | None) -> None:
        super().__init__(module, layers, weight_bits)
        self.bytes: dict[str, GraphValue] = {}

    def _layer(self, name: str, call: GraphCall, found: _Layer) -> None:
        if found.layer.operator.name == "conv_transpose2d":  # there is none of bytes
            super()._layer(name, call, found)
            return
        given, _, *bias = call.names()
        whole, scale = whole_weights(found.layer.weight, self.weight_bits or BYTE, found.outputs)
        scale = (scale.reshape(-1) * found.steps.step).astype(np.float64)
        operands = [self._byte(given, found.steps), self._constant(f"{name}_bytes", whole.astype(np.int8))]
        if bias:
            steps = np.round(self.constants[bias[0]].array.astype(np.float64) / scale)
            operands.append(self._constant(f"{name}_whole", np.clip(steps, -_BIAS, _BIAS).astype(np.int32)))
        sums = self._op(f"{name}_sums", found.layer.operator, *operands)
        grid = 2.0 ** (math.ceil(math.log2(found.largest or 1.0)) - _GRID)
        shape = (1, -1, 1, 1) if found.layer.weight.ndim == 4 else (-1,)
        scales = self._constant(f"{name}_scale", (scale / grid).astype(np.float32).reshape(shape))
        floats = self._op(f"{name}_float", "cast", sums, dtype="float32")
        nearest = self._op(f"{name}_nearest", "round", self._op(f"{name}_scaled", "mul", floats, scales))
        self.b.op("mul", nearest, grid, name=name)

    def _byte(self, given: str, steps: Steps) -> GraphValue:
        """A value as bytes, computed once for all layers that read it."""
        if given not in self.bytes:
            dtype = "int8" if steps.low < 0 else "uint8"
            self.bytes[given] = self._op(f"{given}_byte", "cast", self._rounded(given, steps), dtype=dtype)
        return self.bytes[given]


def rounded_weights(weight: Array, bits: int, outputs: int = 0) -> Array:
    """Weights of so many bits, with a step for each output; `outputs` is the axis of these."""
    whole, step = whole_weights(weight, bits, outputs)
    return np.asarray(whole * step, np.float32)


def whole_weights(weight: Array, bits: int, outputs: int = 0) -> tuple[Array, Array]:
    """Weights as whole numbers of so many bits, and the step of each output; with one bit, their signs."""
    others = tuple(a for a in range(weight.ndim) if a != outputs)
    if bits == 1:
        return np.where(weight > 0, 1, -1), np.abs(weight).mean(axis=others, keepdims=True)
    step = np.abs(weight).max(axis=others, keepdims=True) / (2 ** (bits - 1) - 1)
    step = np.where(step > 0, step, step.max() or 1)
    return np.round(weight / step), step
