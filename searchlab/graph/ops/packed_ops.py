"""Operators over windows of images whose channels lie in blocks: (n, c / b, h, w, b) in place of (n, c, h, w).

The pass `propagate_layouts` makes them of the operators of the same names in `window_ops`; a block is a vector wide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from searchlab.graph.annotations import TensorType, plain
from searchlab.graph.operator import Array, Ints, graph_operator
from searchlab.graph.ops.operand_rules import float_of, rank_of, same, shape_of
from searchlab.graph.ops.window_ops import AvgPool2dOp, Conv2dOp, MaxPool2dOp, PoolOp, WindowOp
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.compute import Builder, Reduction, Tensor, largest, total
from searchlab.ir.expr import ONE, Expr, Var
from searchlab.ir.program import Program
from searchlab.workloads.building_blocks import SlidingWindow, fitted, named, pad, sum_stage, wide

PACKED_AXES = ("n", "c", "h", "w", "b")  # of the axes of a packed image


def packed_array(x: Array, block: int) -> Array:
    """An image (n, c, h, w) with its channels in blocks."""
    n, c, h, w = x.shape
    return np.ascontiguousarray(x.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2))


def unpacked_array(x: Array) -> Array:
    """A packed image with its channels side by side."""
    n, blocks, h, w, block = x.shape
    return x.transpose(0, 1, 4, 2, 3).reshape(n, blocks * block, h, w)


def _unpacked(x: TensorType) -> TensorType:
    rank_of(x, 5)
    n, blocks, h, w, block = shape_of(x)
    return TensorType((n, blocks * block, h, w), x.dtype)


def _padded(b: Builder, x: Tensor, padding: Ints, fill: float = 0) -> Tensor:
    still = (0, 0)
    return pad(b, x, PACKED_AXES, [still, still, *((p, p) for p in padding), still], fill)


@dataclass(frozen=True)
class PackedConvolutionOp(WindowOp):
    """Base of convolutions of packed images."""

    stride: Ints = (1, 1)
    padding: Ints = (0, 0)
    dilation: Ints = (1, 1)

    def coarse(self, *args: TensorType) -> TensorType:
        """Five axes."""
        return TensorType(dtype=args[0].dtype, rank=5)

    def _window(self, x: TensorType, kernel: tuple[Expr, ...]) -> SlidingWindow:
        steps = dict(stride=self.stride, padding=self.padding, dilation=self.dilation)
        k = tuple(int(plain(e)) for e in kernel)  # type: ignore[arg-type]
        return SlidingWindow.over(list(map(plain, shape_of(x)[2:4])), k=k, **steps)


@graph_operator("conv2d_packed")
@dataclass(frozen=True)
class Conv2dPackedOp(PackedConvolutionOp):
    """2D convolution of x (n, ci / a, h, w, a) with weights (co / b, ci / a, kh, kw, a, b) to (n, co / b, h, w, b)."""

    def deduce(self, facts: SizeFacts, x: TensorType, weight: TensorType) -> TensorType:
        """The blocks of output channels and the number of windows."""
        rank_of(weight, 6)
        outer, inner, kh, kw, a, b = shape_of(weight)
        same(facts, a, shape_of(x)[-1], "the blocks of input channels of the weights and of the operand")
        whole = Conv2dOp(self.stride, self.padding, self.dilation)
        found = whole.deduce(facts, _unpacked(x), TensorType((outer * b, inner * a, kh, kw), weight.dtype))
        n, _, *space = shape_of(found)
        return TensorType((n, outer, *space, b), found.dtype)

    def program(self, facts: SizeFacts, x: TensorType, weight: TensorType) -> Program:
        """A sum over blocks of channels, windows, and channels of a block."""
        outer, inner, *kernel, a, width = shape_of(weight)
        window = self._window(x, tuple(kernel))
        dtype = float_of(x, weight)
        b = Builder(self.name)
        X, W = b.input("X", shape_of(x), dtype), b.input("W", shape_of(weight), dtype)
        P = _padded(b, X, self.padding)
        rc, rk, ri = b.axis("cb", inner), window.taps(b), b.axis("ci", a)

        def body(n: Var, c: Var, h: Var, w: Var, o: Var) -> Reduction:
            pixel = P[(n, rc, *window.at((h, w), rk), ri)]
            return total(wide(pixel) * wide(W[(c, rc, *rk, ri, o)]), rc, *rk, ri)

        shape = (shape_of(x)[0], outer, *window.places, width)
        return b.program(sum_stage(b, "Y", shape, named(PACKED_AXES, body), dtype))

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        x, w = args
        outer, inner, kh, kw, a, b = w.shape
        flat = w.transpose(0, 5, 1, 4, 2, 3).reshape(outer * b, inner * a, kh, kw)
        return packed_array(Conv2dOp(self.stride, self.padding, self.dilation).reference(unpacked_array(x), flat), b)


@graph_operator("depthwise_conv2d_packed")
@dataclass(frozen=True)
class DepthwisePackedOp(PackedConvolutionOp):
    """Convolution of every channel of x (n, c / b, h, w, b) with a kernel of its own; weights (c / b, kh, kw, b)."""

    def deduce(self, facts: SizeFacts, x: TensorType, weight: TensorType) -> TensorType:
        """The number of windows."""
        rank_of(x, 5), rank_of(weight, 4)
        (n, blocks, *space, b), (own, kh, kw, width) = shape_of(x), shape_of(weight)
        same(facts, width, b, "the blocks of channels of the weights and of the operand")
        same(facts, own, blocks, "the channels of the weights and of the operand")
        one = Conv2dOp(self.stride, self.padding, self.dilation)
        kernel = TensorType((ONE, ONE, kh, kw), weight.dtype)
        found = shape_of(one.deduce(facts, TensorType((n, ONE, *space), x.dtype), kernel))
        return TensorType((n, blocks, *found[2:], b), float_of(x, weight))

    def program(self, facts: SizeFacts, x: TensorType, weight: TensorType) -> Program:
        """A sum over windows."""
        n, blocks, _, _, width = shape_of(x)
        window = self._window(x, shape_of(weight)[1:3])
        dtype = float_of(x, weight)
        b = Builder(self.name)
        X, W = b.input("X", shape_of(x), dtype), b.input("W", shape_of(weight), dtype)
        P = _padded(b, X, self.padding)
        rk = window.taps(b)

        def body(n: Var, c: Var, h: Var, w: Var, o: Var) -> Reduction:
            return total(wide(P[(n, c, *window.at((h, w), rk), o)]) * wide(W[(c, *rk, o)]), *rk)

        return b.program(sum_stage(b, "Y", (n, blocks, *window.places, width), named(PACKED_AXES, body), dtype))

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        x, w = args
        blocks, kh, kw, b = w.shape
        flat = w.transpose(0, 3, 1, 2).reshape(blocks * b, 1, kh, kw)
        whole = Conv2dOp(self.stride, self.padding, self.dilation, blocks * b)
        return packed_array(whole.reference(unpacked_array(x), flat), b)


@dataclass(frozen=True)
class PackedPoolOp(PoolOp):
    """Base of pooling of packed images."""

    whole: ClassVar[type[PoolOp]]  # the same of images that are not packed
    fill: ClassVar[float]

    def _plain(self) -> PoolOp:
        return self.whole(self.kernel, self.stride, self.padding)

    def coarse(self, *args: TensorType) -> TensorType:
        """Five axes."""
        return TensorType(dtype=args[0].dtype, rank=5)

    def deduce(self, facts: SizeFacts, x: TensorType) -> TensorType:
        """The number of windows."""
        found = self._plain().deduce(facts, _unpacked(x))
        (n, blocks, *_, b), (_, _, *space) = shape_of(x), shape_of(found)
        return TensorType((n, blocks, *space, b), found.dtype)

    def program(self, facts: SizeFacts, x: TensorType) -> Program:
        """A reduction of windows, and for means a stage that divides."""
        dtype, (n, blocks, h, w, width) = float_of(x), shape_of(x)
        window = SlidingWindow.over(
            (plain(h), plain(w)), k=self.kernel, stride=self.step, padding=self.padding, dilation=1
        )
        b = Builder(self.name)
        P = _padded(b, b.input("X", shape_of(x), dtype), self.padding, self.fill)
        rk, shape = window.taps(b), (n, blocks, *window.places, width)

        def at(n: Var, c: Var, h: Var, w: Var, o: Var) -> Expr:
            return P[(n, c, *window.at((h, w), rk), o)]

        if self.fill:
            return b.program(b.compute("Y", shape, named(PACKED_AXES, lambda *i: largest(at(*i), *rk))))
        S = b.compute("S", shape, named(PACKED_AXES, lambda *i: total(wide(at(*i)), *rk)))
        count = float(math.prod(self.kernel))
        return b.program(b.compute("Y", shape, named(PACKED_AXES, lambda *i: fitted(S[i] / count, dtype))))

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        (x,) = args
        return packed_array(self._plain().reference(unpacked_array(x)), x.shape[-1])


@graph_operator("max_pool2d_packed")
@dataclass(frozen=True)
class MaxPool2dPackedOp(PackedPoolOp):
    """The largest element of each window of a packed image."""

    whole: ClassVar[type[PoolOp]] = MaxPool2dOp
    fill: ClassVar[float] = -math.inf


@graph_operator("avg_pool2d_packed")
@dataclass(frozen=True)
class AvgPool2dPackedOp(PackedPoolOp):
    """The mean of each window of a packed image; padding counts as zeros."""

    whole: ClassVar[type[PoolOp]] = AvgPool2dOp
    fill: ClassVar[float] = 0.0
