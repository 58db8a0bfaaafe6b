"""Operators over windows of (n, c, h, w): convolutions, pooling, upsampling."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from searchlab.graph.annotations import Shape, TensorType, extents, plain
from searchlab.graph.operator import Array, Dims, GraphOperator, Ints, graph_operator, operator_named
from searchlab.graph.ops.operand_rules import float_of, layer_types, need, rank_of, same, shape_of, sum_type
from searchlab.graph.ops.product_ops import workload_program
from searchlab.graph.ops.shape_ops import MovementOp, numbers_of
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.compute import Tensor
from searchlab.ir.expr import Expr, index, value_of
from searchlab.ir.program import Program
from searchlab.workloads import convolution, references, transposed, windows
from searchlab.workloads.building_blocks import window_count


def _two(name: str, given: Ints) -> Ints:
    """One number per spatial axis."""
    need(len(given) in (1, 2), f"{name} = {given} has {len(given)} numbers for 2 axes")
    return given * 2 if len(given) == 1 else given


@dataclass(frozen=True)
class WindowOp(GraphOperator):
    """Base of operators of (n, c, h, w); attributes that are tuples have a number for each of h and w."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in self.attributes():
            if isinstance(value, tuple):
                object.__setattr__(self, name, _two(f"{self.name}: {name}", value))

    def coarse(self, *args: TensorType) -> TensorType:
        """Four axes."""
        return TensorType(dtype=args[0].dtype, rank=4)


def _bias(facts: SizeFacts, bias: TensorType | None, channels: Expr) -> list[TensorType]:
    if bias is None:
        return []
    rank_of(bias, 1)
    same(facts, channels, shape_of(bias)[0], "the output channels and the bias")
    return [bias]


def _out(space: Shape, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints = (1, 1)) -> Shape:
    """The extents of the output of a window operator."""
    rows = zip("hw", map(plain, space), kernel, stride, padding, dilation, strict=True)
    return tuple(index(window_count(*row)) for row in rows)


@graph_operator("conv2d")
@dataclass(frozen=True)
class Conv2dOp(WindowOp):
    """2D convolution of x (n, ci, h, w) with weights (co, ci / groups, kh, kw), and a bias if there is one.

    Bytes (uint8 or int8) are multiplied by weights of int8, and sums and bias are of int32.
    """

    stride: Ints = (1, 1)
    padding: Ints = (0, 0)
    dilation: Ints = (1, 1)
    groups: int = 1

    def coarse(self, *args: TensorType) -> TensorType:
        """Four axes."""
        return TensorType(dtype=sum_type(args[0].dtype), rank=4)

    def deduce(self, facts: SizeFacts, x: TensorType, weight: TensorType, bias: TensorType | None = None) -> TensorType:
        """The output channels and the number of windows."""
        rank_of(x, 4), rank_of(weight, 4)
        (n, ci, *space), (co, inner, *kernel) = shape_of(x), shape_of(weight)
        need(self.groups >= 1, f"groups = {self.groups}")
        same(
            facts, inner * self.groups, ci, "the input channels of the weights, times groups, and those of the operand"
        )
        channels = value_of(co)
        need(channels is None or channels % self.groups == 0, f"groups = {self.groups} does not divide {co} channels")
        _, dtype = layer_types(x, weight, *_bias(facts, bias, co))
        sizes = _known("the kernel", tuple(kernel))
        return TensorType((n, co, *_out(tuple(space), sizes, self.stride, self.padding, self.dilation)), dtype)

    def program(self, facts: SizeFacts, x: TensorType, weight: TensorType, bias: TensorType | None = None) -> Program:
        """The workload `conv2d`; the bias is its epilogue."""
        (n, ci, h, w), (co, *_, kh, kw) = map(plain, shape_of(x)), map(plain, shape_of(weight))
        sizes = dict(n=n, ci=ci, co=co, h=h, w=w, k=(kh, kw))
        steps = dict(stride=self.stride, padding=self.padding, dilation=self.dilation, groups=self.groups)
        then = "none" if bias is None else "bias"
        dtype, _ = layer_types(x, weight)
        return workload_program(convolution.conv2d.function, **sizes, **steps, dtype=dtype, then=then)

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        x, w, *bias = (np.asarray(a, np.float64) for a in args)  # exact for sums of bytes, too
        y = references.convolution(x, w, self.stride, self.padding, self.dilation, self.groups)
        return y + bias[0][:, None, None] if bias else y


def _known(what: str, dims: Shape) -> Ints:
    found = [value_of(e) for e in dims]
    need(None not in found, f"{what} has the extents ({', '.join(map(str, dims))}), which must be numbers")
    return tuple(n for n in found if n is not None)


@graph_operator("conv_transpose2d")
@dataclass(frozen=True)
class ConvTranspose2dOp(WindowOp):
    """Transposed 2D convolution of x (n, ci, h, w) with weights (ci, co, kh, kw), and a bias if there is one."""

    stride: Ints = (1, 1)
    padding: Ints = (0, 0)

    def deduce(self, facts: SizeFacts, x: TensorType, weight: TensorType, bias: TensorType | None = None) -> TensorType:
        """Every input adds a kernel to the output."""
        rank_of(x, 4), rank_of(weight, 4)
        (n, ci, *space), (inner, co, *kernel) = shape_of(x), shape_of(weight)
        same(facts, inner, ci, "the input channels of the weights and of the operand")
        dtype = float_of(x, weight, *_bias(facts, bias, co))
        rows = zip(space, _known("the kernel", tuple(kernel)), self.stride, self.padding, strict=True)
        out = [(e - 1) * s - 2 * p + k for e, k, s, p in rows]
        return TensorType((n, co, *extents(out)), dtype)

    def program(self, facts: SizeFacts, x: TensorType, weight: TensorType, bias: TensorType | None = None) -> Program:
        """The workload `conv2d_transpose`; the bias is its epilogue."""
        (n, ci, h, w), (_, co, kh, kw) = map(plain, shape_of(x)), map(plain, shape_of(weight))
        sizes = dict(n=n, ci=ci, co=co, h=h, w=w, k=(kh, kw))
        steps: dict[str, Any] = dict(stride=self.stride, padding=self.padding)
        then = "none" if bias is None else "bias"
        return workload_program(transposed.conv2d_transpose.function, **sizes, **steps, dtype=float_of(x), then=then)

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        x, w, *bias = args
        y = references.transposed_convolution(x, w, self.stride, self.padding)
        return y + bias[0][:, None, None] if bias else y


@dataclass(frozen=True)
class PoolOp(WindowOp):
    """Base of pooling: a window of `kernel` elements every `stride` ones (None: windows do not overlap)."""

    kernel: Ints
    stride: Ints | None = None
    padding: Ints = (0, 0)

    @property
    def step(self) -> Ints:
        """The distance of windows."""
        return self.kernel if self.stride is None else self.stride

    def deduce(self, facts: SizeFacts, x: TensorType) -> TensorType:
        """The number of windows."""
        rank_of(x, 4)
        for k, p in zip(self.kernel, self.padding, strict=True):
            need(2 * p <= k, f"padding = {p} is more than half of the kernel {k}: windows would be empty")
        n, c, *space = shape_of(x)
        return TensorType((n, c, *_out(tuple(space), self.kernel, self.step, self.padding)), float_of(x))

    def program(self, facts: SizeFacts, x: TensorType) -> Program:
        """The workload of the same name."""
        n, c, h, w = map(plain, shape_of(x))
        function = {"max_pool2d": windows.max_pool2d, "avg_pool2d": windows.avg_pool2d}[self.name].function
        steps: dict[str, Any] = dict(k=self.kernel, stride=self.step, padding=self.padding)
        return workload_program(function, n=n, c=c, h=h, w=w, **steps, dtype=float_of(x))

    @abstractmethod
    def reference(self, *args: Array) -> Array:
        """The same on arrays."""

    def _windows(self, x: Array, fill: float) -> Array:
        return references.windows(references.pad(x, self.padding, fill=fill), self.kernel, self.step, (1, 1))


@graph_operator("max_pool2d")
@dataclass(frozen=True)
class MaxPool2dOp(PoolOp):
    """The largest element of each window."""

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        found: Array = self._windows(args[0], -np.inf).max(axis=(-2, -1))
        return found


@graph_operator("avg_pool2d")
@dataclass(frozen=True)
class AvgPool2dOp(PoolOp):
    """The mean of each window; padding counts as zeros."""

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        found: Array = self._windows(args[0], 0.0).mean(axis=(-2, -1))
        return found


@graph_operator("adaptive_avg_pool2d")
@dataclass(frozen=True)
class AdaptiveAvgPool2dOp(WindowOp):
    """Means over windows that tile the input so that the output has `size`: 1 x 1, or numbers that divide the input."""

    size: Ints = (1, 1)

    def _instead(self, x: TensorType) -> GraphOperator:
        """The operator that does the same to this operand."""
        if self.size == (1, 1):
            return operator_named("mean", axes=(2, 3), keepdims=True)
        space = _known("the operand", shape_of(x)[2:])
        for e, out in zip(space, self.size, strict=True):
            need(out >= 1 and e % out == 0, f"{space} cannot be divided into {self.size} windows of one size")
        return operator_named("avg_pool2d", kernel=tuple(e // n for e, n in zip(space, self.size, strict=True)))

    def deduce(self, facts: SizeFacts, x: TensorType) -> TensorType:
        """The size in place of the last two extents."""
        rank_of(x, 4)
        found = self._instead(x).deduce(facts, x)
        assert isinstance(found, TensorType)
        return found

    def program(self, facts: SizeFacts, x: TensorType) -> Program | None:
        """The program of a mean, or of pooling."""
        return self._instead(x).program(facts, x)

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        (x,) = args
        n, c, h, w = x.shape
        rows, columns = self.size
        found: Array = x.reshape(n, c, rows, h // rows, columns, w // columns).mean(axis=(3, 5))
        return found


@graph_operator("upsample_nearest2d")
@dataclass(frozen=True)
class UpsampleNearest2dOp(MovementOp):
    """Elements repeated `scale` times along h and w, or as often as an output of `size` needs."""

    scale: Ints | None = None
    size: Dims | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        need((self.scale is None) != (self.size is None), f"{self.name}: give either scale or size")
        if self.scale is not None:
            object.__setattr__(self, "scale", _two(f"{self.name}: scale", self.scale))

    def moved(self, facts: SizeFacts, shape: Shape) -> Shape:
        """The larger shape."""
        need(len(shape) == 4, f"an operand of rank {len(shape)}; it takes rank 4")
        if self.scale is not None:
            return extents((*shape[:2], *(e * s for e, s in zip(shape[2:], self.scale, strict=True))))
        assert self.size is not None
        need(len(self.size) == 2, f"size = {self.size} has {len(self.size)} numbers for 2 axes")
        return extents((*shape[:2], *self.size))

    def source(self, X: Tensor, out: Shape, at: tuple[Expr, ...]) -> Expr:
        """The element that is repeated here."""
        n, c, *place = at
        if self.scale is not None:
            return X[(n, c, *(i // s for i, s in zip(place, self.scale, strict=True)))]
        return X[(n, c, *(i * e // whole for i, e, whole in zip(place, X.shape[2:], out[2:], strict=True)))]

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        (x,) = args
        if self.scale is not None:
            found: Array = x.repeat(self.scale[0], axis=2).repeat(self.scale[1], axis=3)
            return found
        assert self.size is not None
        rows, columns = (np.arange(m) * e // m for m, e in zip(numbers_of(self.size), x.shape[2:], strict=True))
        found = x[:, :, rows][:, :, :, columns]
        return found
