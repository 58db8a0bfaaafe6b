"""Convolutions, channels first (NCHW) with weights OIHW: 1D to 3D, grouped, dilated, depthwise, transposed, capsules.

k, stride, padding and dilation are one number or one per axis (3x7x7); `then` names what follows in the same kernel.
"""

from __future__ import annotations

from searchlab.errors import WorkloadError
from searchlab.ir.compute import Builder, Tensor, total
from searchlab.ir.expr import Expr, Like, Var, all_of, ceildiv, select, value_of
from searchlab.workloads import references
from searchlab.workloads.core import Array, Definition
from searchlab.workloads.parameters import Count, Extent, Float, Number, Padding, Window
from searchlab.workloads.registry import operator
from searchlab.workloads.stages import (
    SPACE,
    Epilogue,
    named,
    pad,
    per_axis,
    require,
    weight_type,
    wide,
    window_count,
)

PerAxis = int | tuple[int, ...]


def _split(name: str, extent: Extent, groups: int) -> Like:
    """Channels per group."""
    if groups == 1:
        return extent
    require(isinstance(extent, int), f"{name} must be a number if groups = {groups}")
    require(not isinstance(extent, int) or extent % groups == 0, f"groups = {groups} does not divide {name} = {extent}")
    return extent // groups


def _convolution(
    name: str,
    data: tuple[Extent, ...],
    co: Extent,
    k: PerAxis,
    stride: PerAxis,
    padding: PerAxis,
    dilation: PerAxis,
    groups: int,
    dtype: str,
    then: str,
) -> Definition:
    """All convolutions over `data` = (n, ci, *space)."""
    n, ci, *space = data
    dims = len(space)
    axes = SPACE[dims]
    names = ("n", "c", *axes)
    kernel, step = per_axis("k", k, dims), per_axis("stride", stride, dims)
    around, gap = per_axis("padding", padding, dims), per_axis("dilation", dilation, dims)
    inner, outer = _split("ci", ci, groups), _split("co", co, groups)
    out = [window_count(*a) for a in zip(axes, space, kernel, step, around, gap, strict=True)]
    epilogue = Epilogue.of(then, dtype)

    b = Builder(name)
    X, W = b.input("X", data, dtype), b.input("W", (co, inner, *kernel), weight_type(dtype))
    P = pad(b, X, names, [(0, 0), (0, 0), *((p, p) for p in around)])
    rc = b.axis("ci", inner) if inner != 1 else None  # depthwise: a loop of one iteration would only be in the way
    rk = [b.axis(f"k{a}", e) for a, e in zip(axes, kernel, strict=True)]

    def body(i: Var, c: Var, *at: Var) -> object:
        first = c // outer * inner if groups > 1 else 0
        x = P[(i, first if rc is None else rc + first, *(o * s + r * d for o, s, r, d in zip(at, step, rk, gap, strict=True)))]
        return total(wide(x) * wide(W[(c, 0 if rc is None else rc, *rk)]), *([rc] if rc is not None else []), *rk)

    C = b.compute(epilogue.stage, (n, co, *out), named(names, body))
    Y = epilogue.apply(b, C, names)

    def reference(X: Array, W: Array, *rest: Array) -> Array:
        return epilogue.array(references.convolution(X, W, step, around, gap, groups), *rest)

    return Definition(b.program(Y), reference, ("W", *epilogue.weights))


@operator
def conv1d(
    n: Extent = 1,
    ci: Extent = 64,
    co: Extent = 128,
    w: Extent = 256,
    k: Window = 3,
    stride: Window = 1,
    padding: Padding = 0,
    dilation: Window = 1,
    groups: Count = 1,
    dtype: Number = "float32",
    then: str = "none",
) -> Definition:
    """1D convolution of X (n, ci, w)."""
    return _convolution("conv1d", (n, ci, w), co, k, stride, padding, dilation, groups, dtype, then)


@operator
def conv2d(
    n: Extent = 1,
    ci: Extent = 64,
    co: Extent = 64,
    h: Extent = 56,
    w: Extent = 56,
    k: Window = 3,
    stride: Window = 1,
    padding: Padding = 0,
    dilation: Window = 1,
    groups: Count = 1,
    dtype: Number = "float32",
    then: str = "none",
) -> Definition:
    """2D convolution of X (n, ci, h, w); integers are added up as int32, and uint8 multiplies int8."""
    return _convolution("conv2d", (n, ci, h, w), co, k, stride, padding, dilation, groups, dtype, then)


@operator
def conv3d(
    n: Extent = 1,
    ci: Extent = 64,
    co: Extent = 64,
    d: Extent = 16,
    h: Extent = 56,
    w: Extent = 56,
    k: Window = 3,
    stride: Window = 1,
    padding: Padding = 0,
    dilation: Window = 1,
    groups: Count = 1,
    dtype: Number = "float32",
    then: str = "none",
) -> Definition:
    """3D convolution of X (n, ci, d, h, w)."""
    return _convolution("conv3d", (n, ci, d, h, w), co, k, stride, padding, dilation, groups, dtype, then)


@operator
def depthwise_conv2d(
    n: Extent = 1,
    c: Count = 32,
    h: Extent = 112,
    w: Extent = 112,
    k: Window = 3,
    stride: Window = 1,
    padding: Padding = 0,
    dilation: Window = 1,
    dtype: Number = "float32",
    then: str = "none",
) -> Definition:
    """2D convolution of every channel with a kernel of its own; weights (c, 1, k, k)."""
    return _convolution("depthwise_conv2d", (n, c, h, w), c, k, stride, padding, dilation, c, dtype, then)


@operator
def conv2d_bn_relu(
    n: Extent = 1,
    ci: Extent = 64,
    co: Extent = 64,
    h: Extent = 56,
    w: Extent = 56,
    k: Window = 3,
    stride: Window = 1,
    padding: Padding = 0,
    dilation: Window = 1,
    groups: Count = 1,
    dtype: Float = "float32",
) -> Definition:
    """conv2d, batch normalisation folded into a scale and a shift per channel, relu."""
    return _convolution("conv2d_bn_relu", (n, ci, h, w), co, k, stride, padding, dilation, groups, dtype, "bn,relu")


@operator
def conv2d_transpose(
    n: Extent = 1,
    ci: Extent = 64,
    co: Extent = 32,
    h: Extent = 16,
    w: Extent = 16,
    k: Window = 4,
    stride: Window = 2,
    padding: Padding = 1,
    dtype: Float = "float32",
    then: str = "none",
) -> Definition:
    """Transposed 2D convolution (up-sampling) with weights IOHW: a convolution of the input spread out with zeros.

    The multiplications by those zeros count as arithmetic: leaving them out is up to the schedule.
    """
    kernel, step, around = per_axis("k", k, 2), per_axis("stride", stride, 2), per_axis("padding", padding, 2)
    for axis, kk, p in zip("hw", kernel, around, strict=True):
        require(p < kk, f"padding = {p} leaves no part of a kernel of {kk} along {axis}")
    out = [_spread_size(axis, *a) for axis, *a in zip("hw", (h, w), kernel, step, around, strict=True)]
    epilogue = Epilogue.of(then, dtype)
    b = Builder("conv2d_transpose")
    X, W = b.input("X", (n, ci, h, w), dtype), b.input("W", (ci, co, *kernel), dtype)
    P = _spread(b, X, step, [kk - 1 - p for kk, p in zip(kernel, around, strict=True)], [o + kk - 1 for o, kk in zip(out, kernel, strict=True)])
    rc, rh, rw = b.axis("ci", ci), b.axis("kh", kernel[0]), b.axis("kw", kernel[1])
    C = b.compute(
        epilogue.stage,
        (n, co, *out),
        lambda n, c, h, w: total(P[n, rc, h + rh, w + rw] * W[rc, c, kernel[0] - 1 - rh, kernel[1] - 1 - rw], rc, rh, rw),
    )
    Y = epilogue.apply(b, C, ("n", "c", "h", "w"))

    def reference(X: Array, W: Array, *rest: Array) -> Array:
        return epilogue.array(references.transposed_convolution(X, W, step, around), *rest)

    return Definition(b.program(Y), reference, ("W", *epilogue.weights))
