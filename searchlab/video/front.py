"""The front of a network: what is computed pixel by pixel of maps, from the frame on, so that changes can be followed.

Convolutions, functions of pixels and pooling belong to it, as far as nothing else is between them and the frame; all
that follows, such as a classifier, is the tail, which is computed as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.dtype import BOOL
from searchlab.graph import (
    Binding,
    GraphBuilder,
    GraphFunction,
    GraphModule,
    GraphOperator,
    OperatorCall,
    PointwiseOp,
    Scalar,
    TensorType,
    TupleCall,
)
from searchlab.ir.expr import Expr, const, value_of
from searchlab.video.pixel_values import PixelValue
from searchlab.video.product_formats import FLOAT, SUM
from searchlab.video.residual_graph import FIRST
from searchlab.video.residual_plan import ResidualLayer, ResidualPlan
from searchlab.video.window_geometry import MapShape, WindowGeometry

Array = npt.NDArray[Any]
TAIL = "tail"
_MAX_POOL, _AVERAGE_POOL = "max_pool2d", "avg_pool2d"
_SIMPLE = ("relu", "clamp")  # what is computed as quickly as it is read, so that pools need no map of it
_TYPES = (FLOAT, SUM, "uint8", "int8", BOOL)  # of maps and values of pixels


@dataclass(frozen=True, eq=False)
class MapStep:
    """A value of pixels that several others read, and that is therefore kept in a map."""

    name: str
    value: PixelValue


@dataclass(frozen=True, eq=False)
class PoolStep:
    """Windows of a value; `mean` is what sums are divided by, 0 for the largest element."""

    name: str
    value: PixelValue
    geometry: WindowGeometry
    mean: int

    def windows(self) -> Array:
        """The pixels of the window of every place, and of none, which is the last.

        Padding is the last row of a map, which is zero, or, where only the largest element counts, any other pixel.
        """
        pixels, found = self.geometry.given.pixels, self.geometry.windows()
        if not self.mean:
            found = np.where(found < pixels, found, found.min(axis=1, keepdims=True))
        return np.concatenate([found, np.full((1, found.shape[1]), pixels, np.int32)])


@dataclass(frozen=True, eq=False)
class LayerStep:
    """A convolution of the changes of a value."""

    layer: ResidualLayer
    value: PixelValue
    geometry: WindowGeometry


Step = MapStep | PoolStep | LayerStep


@dataclass(eq=False)
class Front:
    """The steps of a front in order, the maps that others read, and what is left of the graph."""

    frame: str
    shapes: dict[str, MapShape]
    types: dict[str, str] = field(default_factory=dict)  # of maps
    steps: list[Step] = field(default_factory=list)
    vectors: dict[str, Array] = field(default_factory=dict)
    tail: GraphModule | None = None
    outputs: tuple[str, ...] = ()  # maps that the tail takes, or the one that is the output
    kept: tuple[str, ...] = ()  # values of the tail that belong to the state

    @property
    def layers(self) -> dict[str, LayerStep]:
        """Its layers by name."""
        return {s.layer.name: s for s in self.steps if isinstance(s, LayerStep)}


def front_of(plan: ResidualPlan) -> Front | None:
    """The front of a residual graph; None if no layer belongs to it."""
    kept: frozenset[str] = frozenset()
    while True:
        finder = _Finder(plan, kept)
        left = finder.left()
        if not finder.found.layers:
            return None
        missing = finder.missing(left)
        if not missing:
            return finder.front(left)
        kept |= missing


class _Finder:
    """Goes through the calls of a function in order; what it does not take is left to the tail.

    Values that the tail reads are `kept` in maps; which these are shows when all calls have been looked at.
    """

    def __init__(self, plan: ResidualPlan, kept: frozenset[str]) -> None:
        self.plan, self.kept, first = plan, kept, plan.module[FIRST]
        *self.bindings, last = first.bindings
        assert isinstance(last.call, TupleCall)
        self.output, state = last.call.names()
        self.bindings = [b for b in self.bindings if b.name != state]
        self.function: GraphFunction = first
        self.layers = {layer.name: layer for layer in plan.layers}
        frame = first.parameters[0].name
        self.found = Front(frame, {})
        self.values: dict[str, PixelValue] = {}
        self._add_map(frame, planar=True)

    def left(self) -> list[Binding]:
        """The calls of the tail."""
        return [b for b in self.bindings if not self._takes(b)]

    def missing(self, left: list[Binding]) -> frozenset[str]:
        """Values that the tail reads, and that no map holds."""
        read = {n for b in left for n in b.call.names() if n in self.values}
        return frozenset(read - self.found.shapes.keys())

    def _takes(self, b: Binding) -> bool:
        operator = b.call.operator if isinstance(b.call, OperatorCall) else None
        if operator is None or self._shape(b.name) is None:
            return False
        if b.name in self.layers:
            return self._take_layer(b, self.layers[b.name])
        if isinstance(operator, PointwiseOp):
            return self._take_pixels(b, operator)
        return operator.name in (_MAX_POOL, _AVERAGE_POOL) and self._take_pool(b, operator)

    def _shape(self, name: str) -> MapShape | None:
        """The shape of a value, if it is a map of one image."""
        found = self.function.annotations.get(name)
        if not isinstance(found, TensorType) or found.shape is None or len(found.shape) != 4:
            return None
        sizes = [value_of(e) for e in found.shape]
        if found.dtype not in _TYPES or sizes[0] != 1 or None in sizes:
            return None
        return MapShape(*(n or 0 for n in sizes[1:]))

    def _dtype(self, name: str) -> str:
        return str(getattr(self.function.annotations[name], "dtype", FLOAT))

    def _add_map(self, name: str, planar: bool = False) -> None:
        shape = self._shape(name)
        if shape is not None:
            self.found.shapes[name] = shape
            dtype = self.found.types[name] = self._dtype(name)
            self.values[name] = PixelValue(shape.channels, (name,), (dtype,), lambda x: x, planar=planar, dtype=dtype)

    def _take_layer(self, b: Binding, layer: ResidualLayer) -> bool:
        given = b.call.names()[0]
        depthwise = layer.groups == layer.weight.shape[0] and layer.weight.shape[1] == 1
        if layer.operator.name != "conv2d" or given not in self.values or not (layer.groups == 1 or depthwise):
            return False
        attributes = dict(layer.operator.attributes())
        geometry = self._geometry(given, b.name, layer.weight.shape[2:], attributes)
        self.found.steps.append(LayerStep(layer, self.values[given], geometry))
        self._add_map(b.name)
        return True

    def _geometry(self, given: str, made: str, kernel: tuple[int, ...], attributes: dict[str, Any]) -> WindowGeometry:
        before, after = self._shape(given), self._shape(made)
        assert before is not None and after is not None
        stride = attributes.get("stride") or kernel
        return WindowGeometry(before, after, kernel, stride, attributes["padding"], attributes.get("dilation", (1, 1)))

    def _take_pool(self, b: Binding, operator: GraphOperator) -> bool:
        (given,) = b.call.names()
        if given not in self.values or self.values[given].planar:
            return False
        attributes = dict(operator.attributes())
        geometry = self._geometry(given, b.name, attributes["kernel"], attributes)
        windows, outside = geometry.windows(), geometry.given.pixels
        if operator.name == _AVERAGE_POOL:
            # The last row of a map is zero, but that of sums is where what belongs nowhere is added.
            known = given in self.found.shapes and (given not in self.layers or windows.max() < outside)
        else:
            known = windows.min(axis=1).max() < outside
        if not known:
            return False
        mean = geometry.taps if operator.name == _AVERAGE_POOL else 0
        self.found.steps.append(PoolStep(b.name, self.values[given], geometry, mean))
        self._add_map(b.name)
        return True

    def _take_pixels(self, b: Binding, operator: PointwiseOp) -> bool:
        assert isinstance(b.call, OperatorCall)
        operands = [self._operand(o, b.name) for o in b.call.operands()]
        known = [v for v in operands if isinstance(v, PixelValue)]
        if len(known) < len(operands) or not any(v.maps for v in known):
            return False
        if len({v.planar for v in known if v.maps}) > 1 or len(known) != len(b.call.operands()):
            return False
        value = _joined(operator.expr, known, self._dtype(b.name))
        if not self._is_kept(b.name, value):
            self.values[b.name] = value
            return True
        if value.planar:
            return False
        self.found.steps.append(MapStep(b.name, value))
        self._add_map(b.name)
        return True

    def _operand(self, operand: object, made: str) -> PixelValue | None:
        """An operand as a value of pixels: a map of the same shape, a number, or constants of channels."""
        shape = self._shape(made)
        assert shape is not None
        if isinstance(operand, Scalar):
            if isinstance(operand.value, Expr) or operand.dtype != FLOAT:
                return None
            number = const(operand.value, FLOAT)
            return PixelValue(shape.channels, (), (), lambda: number)
        if not isinstance(operand, str):
            return None
        if operand in self.values:
            return self.values[operand] if self._shape(operand) == shape else None
        if operand not in self.plan.module.constants:
            return None
        array = self.plan.module.constants[operand].array
        if array.dtype != np.float32 or array.size not in (1, shape.channels) or array.ndim > 4:
            return None
        if array.size > 1 and (array.ndim < 3 or array.shape[-3] != shape.channels):
            return None
        self.found.vectors[operand] = np.broadcast_to(array.reshape(-1), (shape.channels,)).copy()
        return PixelValue(shape.channels, (), (), lambda x: x, (operand,))

    def _is_kept(self, name: str, value: PixelValue) -> bool:
        """Whether others than the layers of one change point, one function of pixels, or one pool read a value."""
        users = [b for b in self.bindings if name in b.call.names()]
        others = [b for b in users if b.name not in self.layers]
        called = [b.call.operator for b in others if isinstance(b.call, OperatorCall)]
        pools = self._is_simple(name) and len(value.maps) == 1
        taken = [isinstance(o, PointwiseOp) or (pools and o.name == _MAX_POOL) for o in called]
        several = len(others) + (len(others) < len(users)) > 1
        return name in self.kept or name == self.output or several or taken.count(True) < len(others)

    def _is_simple(self, name: str) -> bool:
        made = next(b.call for b in self.bindings if b.name == name)
        return isinstance(made, OperatorCall) and made.operator.name in _SIMPLE

    def front(self, left: list[Binding]) -> Front:
        """The front, with what is left of the graph as a function of maps."""
        made = {b.name for b in left}
        layers = [b.name for b in left if b.name in self.layers]
        inputs = [b.call.names()[0] for b in left if b.name in self.layers]
        self.found.kept = tuple(dict.fromkeys((*inputs, *layers)))
        taken = dict.fromkeys(n for b in left for n in b.call.names() if n in self.values and n not in made)
        if not left:
            self.found.outputs = (self.output,)
            return self.found
        self.found.outputs = tuple(taken)
        module = self.plan.module
        b = GraphBuilder(TAIL, _without_functions(module), self.function.ranges)
        for name in taken:
            b.input(name, self.function.annotations[name])
        for binding in left:
            b.emit(binding.call, binding.name)
        self.found.tail = b.build(*(b.known(n) for n in (self.output, *self.found.kept)))
        return self.found


def _without_functions(module: GraphModule) -> GraphModule:
    return replace(module, functions={})


def _joined(expr: Callable[..., Expr], operands: list[PixelValue], dtype: str) -> PixelValue:
    """A function of values, as one of the maps and vectors that they are computed from."""
    maps = {m: t for v in operands for m, t in zip(v.maps, v.types, strict=True)}
    vectors = tuple(dict.fromkeys(x for v in operands for x in v.vectors))

    def joined(*elements: Expr) -> Expr:
        known = dict(zip((*maps, *vectors), elements, strict=True))
        return expr(*(v.expr(*(known[n] for n in (*v.maps, *v.vectors))) for v in operands))

    planar = any(v.planar for v in operands)
    return PixelValue(operands[0].channels, tuple(maps), tuple(maps.values()), joined, vectors, planar, dtype)
