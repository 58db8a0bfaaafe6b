"""Layouts across operators: channels of images in blocks of a vector, (n, c, h, w) as (n, c / b, h, w, b).

    unpack(max_pool2d_packed(relu(add(conv2d_packed(pack(x), w'), bias'))))   for   max_pool2d(relu(conv2d(x, w, bias)))

A chain begins at a convolution and goes on through pooling, pointwise operators, means and concatenations; images are
packed where one begins and unpacked where something else reads them.  Packing is a view and a `permute`, so weights are
packed ahead by the folding of constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

from searchlab.graph.annotations import Annotation, Shape, TensorType
from searchlab.graph.calls import Operand, OperatorCall
from searchlab.graph.deduction import scope_of
from searchlab.graph.functions import Binding, GraphFunction, GraphModule
from searchlab.graph.operator import GraphOperator, Ints, operator_named
from searchlab.graph.ops.joining_ops import ConcatOp
from searchlab.graph.ops.operand_rules import axes_of, axis_of
from searchlab.graph.ops.pointwise_op import PointwiseOp
from searchlab.graph.ops.reduction_ops import ReductionOp
from searchlab.graph.ops.window_ops import AdaptiveAvgPool2dOp, AvgPool2dOp, Conv2dOp, MaxPool2dOp, PoolOp
from searchlab.graph.passes.constant_folding import fold_constants
from searchlab.ir.expr import ONE, value_of

_DTYPE = "float32"  # other types are multiplied by instructions that have layouts of their own
_PACK, _UNPACK = (0, 1, 3, 4, 2), (0, 1, 4, 2, 3)
_LEAST = 8  # channels of half a vector: shorter ones take as many instructions for less
_CHANNELS, _PIXELS, _BOTH = 32, 100, 6400  # the fewest of each, and their product, for Winograd's convolution to pay
_SPACE = (2, 3)  # the axes of rows and columns, packed or not


def propagate_layouts(
    module: GraphModule, lanes: int, where_it_pays: bool = False, winograd: bool = False
) -> GraphModule:
    """The module with chains of convolutions on channels in blocks of `lanes`; what does not divide is left alone.

    `where_it_pays` leaves functions alone in which images would be packed and unpacked as often as convolved: packing
    takes as long as a small convolution, and a schedule packs for itself what lies apart.  `winograd` computes 3x3
    convolutions of large images by Winograd's algorithm.
    """
    changed = {f.name: _Packing(module, f, lanes, winograd).function(where_it_pays) for f in module}
    if all(changed[f.name] is f for f in module):
        return module
    return fold_constants(replace(module, functions=changed))


def left_plain(module: GraphModule, function: str, lanes: int) -> dict[str, str]:
    """The convolutions of a function that stay plain, and the operators that end a chain, each with the reason."""
    packing = _Packing(module, module[function], lanes)
    packing.function()
    return packing.reasons


class _Left(Exception):
    """A call is left alone; the message says why."""


class _Packing:
    """The bindings of a function, with images packed; values keep their names where they are plain."""

    def __init__(self, module: GraphModule, function: GraphFunction, lanes: int, winograd: bool = False) -> None:
        self.module, self.before, self.lanes, self.winograd = module, function, lanes, winograd
        self.blocks = [b for b in (lanes, lanes // 2) if b == lanes or b >= _LEAST]
        self.scope = scope_of(module, function)
        self.taken = {*function.annotations, *module.constants}
        self.bindings: list[Binding] = []
        self.packed: dict[str, str] = {}  # names of packed forms
        self.pending: set[str] = set()  # values that have only been computed packed
        self.reasons: dict[str, str] = {}
        self.convolutions = self.conversions = 0

    def function(self, where_it_pays: bool = False) -> GraphFunction:
        for b in self.before.bindings:
            if not self._repacked(b):
                self._keep(b)
        self._unpack(self.before.result)
        if not self.packed or (where_it_pays and self.conversions >= self.convolutions):
            return self.before
        return replace(self.before, bindings=tuple(self.bindings))

    # --- calls --------------------------------------------------------------------------------------------------------

    def _repacked(self, b: Binding) -> bool:
        """Makes a call on packed operands in place of one; False if it stays as it is."""
        call = b.call
        if not isinstance(call, OperatorCall) or not isinstance(b.annotation, TensorType) or b.annotation.shape is None:
            return False
        rule = next((r for kind, r in _RULES.items() if isinstance(call.operator, kind)), None)
        starts = isinstance(call.operator, Conv2dOp)
        if rule is None or not (starts or any(o in self.packed for o in call.args)):
            return False
        try:
            rule(self, b.name, call, b.annotation)
        except _Left as e:
            self.reasons[b.name] = str(e)
            return False
        return True

    def _keep(self, b: Binding) -> None:
        for name in b.call.names():
            self._unpack(name)
        self.bindings.append(self.scope.bind(b.name, b.call))

    def convolution(self, name: str, call: OperatorCall, _: TensorType) -> None:
        """A convolution with constant weights, of all channels or of each alone; its bias is an addition."""
        operator, (x, weight, *bias) = call.operator, call.args
        assert isinstance(operator, Conv2dOp) and isinstance(x, str) and isinstance(weight, str)
        if weight not in self.module.constants or not all(o in self.module.constants for o in bias):
            raise _Left("its weights are no constants")
        shape, dtype = self._shape(x), self.module.constants[weight].dtype
        if dtype != _DTYPE:
            raise _Left(f"its operands are of {dtype}; {_DTYPE} is packed")
        co, inner, kh, kw = self.module.constants[weight].array.shape
        ci, b = value_of(shape[1]), self._block(co)
        if ci is None or b is None:
            raise _Left(f"{self._blocks} do not divide {co} output channels")
        steps = {"stride": operator.stride, "padding": operator.padding, "dilation": operator.dilation}
        if operator.groups == 1:
            few = ci < self.lanes and x not in self.packed  # planes that are read as they lie
            a = 1 if few else self._block(ci)
            if a is None:
                raise _Left(f"{self._blocks} do not divide {ci} input channels")
            split = self._emit("reshape", weight, shape=(co // b, b, ci // a, a, kh, kw))
            kernel = self._emit("permute", split, axes=(0, 2, 4, 5, 3, 1))
            data = self._emit("unsqueeze", x, axes=(-1,)) if few else self._pack(x)
            if self.winograd and not few and self._suits_winograd(operator, (kh, kw), (ci, co), shape):
                made = self._emit("winograd_weights_packed", kernel)
                made = self._emit("winograd_conv2d_packed", data, made, padding=operator.padding)
            else:
                made = self._emit("conv2d_packed", data, kernel, **steps)
        elif operator.groups == ci == co and inner == 1:
            split = self._emit("reshape", weight, shape=(co // b, b, kh, kw))
            kernel = self._emit("permute", split, axes=(0, 2, 3, 1))
            made = self._emit("depthwise_conv2d_packed", self._pack(x), kernel, **steps)
        else:
            raise _Left(f"it has {operator.groups} groups of {inner} channels; accepted: one group, or a channel each")
        self.convolutions += 1
        for o in bias:
            made = self._emit("add", made, self._emit("reshape", o, shape=(co // b, 1, 1, b)))
        self._made(name, made)

    def _suits_winograd(self, operator: Conv2dOp, kernel: Ints, channels: Ints, shape: Shape) -> bool:
        """Whether a convolution can be computed by Winograd's algorithm, and has enough to compute for it to pay.

        Its weights are 16 / 9 of those of the convolution: with few pixels they take longer to read than is saved.
        """
        space = [value_of(e) for e in shape[2:]]
        if kernel != (3, 3) or operator.stride != (1, 1) or operator.dilation != (1, 1) or None in space:
            return False
        places = [(e or 0) + 2 * p - 2 for e, p in zip(space, operator.padding, strict=True)]
        least, pixels = min(channels), prod(places)
        return least >= _CHANNELS and pixels >= _PIXELS and least * pixels >= _BOTH

    def pool(self, name: str, call: OperatorCall, _: TensorType) -> None:
        """Pooling by windows."""
        operator, (x,) = call.operator, call.args
        assert isinstance(operator, PoolOp) and isinstance(x, str)
        self._made(name, self._emit(f"{operator.name}_packed", self._pack(x), **dict(operator.attributes())))

    def adaptive_pool(self, name: str, call: OperatorCall, result: TensorType) -> None:
        """A mean, or pooling by windows that tile the image."""
        operator, (x,) = call.operator, call.args
        assert isinstance(operator, AdaptiveAvgPool2dOp) and isinstance(x, str)
        if operator.size == (1, 1):
            self._made(name, self._emit("mean", self._pack(x), axes=_SPACE, keepdims=True))
            return
        space = [value_of(e) or 1 for e in self._shape(x)[2:]]  # the operator has checked that they are numbers
        kernel = tuple(e // n for e, n in zip(space, operator.size, strict=True))
        self._made(name, self._emit("avg_pool2d_packed", self._pack(x), kernel=kernel))

    def reduction(self, name: str, call: OperatorCall, result: TensorType) -> None:
        """A reduction of whole images."""
        operator, (x,) = call.operator, call.args
        assert isinstance(operator, ReductionOp) and isinstance(x, str) and result.shape is not None
        if axes_of(operator.axes, 4) != _SPACE:
            raise _Left(f"it reduces the axes {operator.axes}; accepted: rows and columns")
        made = self._emit(operator.name, self._pack(x), axes=_SPACE, keepdims=operator.keepdims)
        if operator.keepdims:
            self._made(name, made)
        else:
            self._bind(name, OperatorCall((made,), operator_named("reshape", shape=result.shape)))

    def concat(self, name: str, call: OperatorCall, result: TensorType) -> None:
        """A concatenation along channels, each of which is whole blocks, or along another axis of images."""
        operator = call.operator
        assert isinstance(operator, ConcatOp)
        assert result.shape is not None
        parts, whole = [str(o) for o in call.args], self._block(value_of(result.shape[1]))
        for part in parts:
            self._divided(part)
        for part in parts:
            if self._block(value_of(self._shape(part)[1])) != whole:
                raise _Left(f"the channels of {part} are in other blocks than those of all parts")
        self._made(name, self._emit("concat", *map(self._pack, parts), axis=axis_of(operator.axis, 4)))

    def pointwise(self, name: str, call: OperatorCall, result: TensorType) -> None:
        """A pointwise operator of images and of what is broadcast to them."""
        assert result.shape is not None
        if len(result.shape) != 4:
            raise _Left(f"its result has {len(result.shape)} axes")
        for o in call.args:
            if isinstance(o, str) and len(shape := self._shape(o)) >= 3 and shape[-3] != ONE:
                self._divided(o)
        self._made(name, self._emit_operator(call.operator, *(self._broadcast(o) for o in call.args)))

    # --- values -------------------------------------------------------------------------------------------------------

    def _broadcast(self, operand: Operand) -> Operand:
        """An operand of a pointwise operator of packed images: packed if it has channels, else with an axis of 1."""
        if not isinstance(operand, str) or operand in self.packed:
            return self.packed[operand] if isinstance(operand, str) else operand
        shape = self._shape(operand)
        if len(shape) >= 3 and shape[-3] != ONE:
            return self._pack(operand if len(shape) == 4 else self._emit("unsqueeze", operand, axes=(0,)))
        return self._emit("unsqueeze", operand, axes=(-1,)) if shape else operand

    def _divided(self, name: str) -> None:
        """Refuses an image whose channels are not whole blocks."""
        if name not in self.packed:
            channels = self._shape(name)[-3]
            if self._block(value_of(channels)) is None:
                raise _Left(f"{self._blocks} do not divide the {channels} channels of {name}")

    def _pack(self, name: str) -> str:
        """The packed form of an image, which is made if there is none."""
        if name not in self.packed:
            self._divided(name)
            n, c, *space = self._shape(name)
            channels, block = value_of(c), self._block(value_of(c))
            assert channels is not None and block is not None
            self.conversions += name not in self.module.constants
            split = self._emit("reshape", name, shape=(n, channels // block, block, *space))
            self.packed[name] = self._emit("permute", split, axes=_PACK)
        return self.packed[name]

    def _block(self, channels: int | None) -> int | None:
        """The channels of a block of an image: those of a vector, or of half a vector; None if neither divides."""
        return next((b for b in self.blocks if channels is not None and channels % b == 0), None)

    @property
    def _blocks(self) -> str:
        return f"blocks of {' or '.join(map(str, self.blocks))}"

    def _unpack(self, name: str) -> None:
        """Computes the plain form of an image, under its name, if it has only been computed packed."""
        if name not in self.pending:
            return
        self.pending.remove(name)
        shape, source = self._shape(name), self.packed[name]
        if any(e != ONE for e in shape[2:]):
            self.conversions += 1
            source = self._emit("permute", source, axes=_UNPACK)
        self._bind(name, OperatorCall((source,), operator_named("reshape", shape=shape)))

    def _made(self, name: str, packed: str) -> None:
        self.packed[name] = packed
        self.pending.add(name)

    def _shape(self, name: str) -> Shape:
        """The plain shape of a value."""
        constant = self.module.constants.get(name)
        found: Annotation | None = None if constant is None else constant.annotation
        found = found or self.before.annotations.get(name) or self.scope.annotations[name]
        if not isinstance(found, TensorType) or found.shape is None:
            raise _Left(f"the shape of {name} is not known")
        return found.shape

    # --- new calls ----------------------------------------------------------------------------------------------------

    def _emit(self, operator: str, *args: Operand, **attributes: object) -> str:
        return self._emit_operator(operator_named(operator, **attributes), *args)

    def _emit_operator(self, operator: GraphOperator, *args: Operand) -> str:
        name, number = operator.name, 0
        while name in self.taken:
            number += 1
            name = f"{operator.name}_{number}"
        self.taken.add(name)
        self._bind(name, OperatorCall(args, operator))
        return name

    def _bind(self, name: str, call: OperatorCall) -> None:
        self.bindings.append(self.scope.bind(name, call))


_Rule = Callable[[_Packing, str, OperatorCall, TensorType], None]
_RULES: Mapping[type, _Rule] = {
    Conv2dOp: _Packing.convolution,
    MaxPool2dOp: _Packing.pool,
    AvgPool2dOp: _Packing.pool,
    AdaptiveAvgPool2dOp: _Packing.adaptive_pool,
    ReductionOp: _Packing.reduction,
    ConcatOp: _Packing.concat,
    PointwiseOp: _Packing.pointwise,
}
