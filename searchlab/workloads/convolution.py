"""Convolutions, channels first (NCHW) with weights OIHW: 1D to 3D, grouped, dilated, depthwise, capsules.

k, stride, padding and dilation are one number or one per axis (3x7x7); `then` names the epilogue in the same kernel.
"""

from __future__ import annotations

from searchlab.ir.compute import Builder, Reduction, total
from searchlab.ir.expr import Var
from searchlab.workloads import references
from searchlab.workloads.building_blocks import (
    Epilogue,
    SlidingWindow,
    named,
    pad,
    per_axis,
    per_group,
    sum_stage,
    weight_type,
    wide,
    window_count,
)
from searchlab.workloads.catalogue import operator
from searchlab.workloads.definition import Array, Definition
from searchlab.workloads.parameters import Count, Extent, Float, Number, Padding, Window

PerAxis = int | tuple[int, ...]


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
    window = SlidingWindow.over(space, k=k, stride=stride, padding=padding, dilation=dilation)
    names = ("n", "c", *window.axes)
    inner, outer = per_group("ci", ci, groups), per_group("co", co, groups)
    epilogue = Epilogue.of(then, dtype)

    b = Builder(name)
    X, W = b.input("X", data, dtype), b.input("W", (co, inner, *window.kernel), weight_type(dtype))
    P = window.padded(b, X, names)
    rc = b.axis("ci", inner) if inner != 1 else None  # depthwise: no loop of one iteration
    rk = window.taps(b)

    def body(i: Var, c: Var, *at: Var) -> Reduction:
        first = c // outer * inner if groups > 1 else 0
        place = window.at(at, rk)
        if rc is None:
            return total(wide(P[(i, first, *place)]) * wide(W[(c, 0, *rk)]), *rk)
        return total(wide(P[(i, rc + first, *place)]) * wide(W[(c, rc, *rk)]), rc, *rk)

    C = b.compute(epilogue.stage, (n, co, *window.places), named(names, body))
    Y = epilogue.apply(b, C, names)

    def reference(X: Array, W: Array, *rest: Array) -> Array:
        y = references.convolution(X, W, window.stride, window.padding, window.dilation, groups)
        return epilogue.array(y, *rest)

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
def capsule_conv2d(
    n: Extent = 1,
    ci: Extent = 32,
    co: Extent = 32,
    h: Extent = 16,
    w: Extent = 16,
    k: Window = 3,
    stride: Window = 1,
    padding: Padding = 0,
    capsule: Count = 4,
    dtype: Float = "float32",
) -> Definition:
    """2D convolution whose elements are capsule x capsule matrices: X (n, h, w, ci, 4, 4), W (k, k, ci, co, 4, 4)."""
    kernel, step, around = per_axis("k", k, 2), per_axis("stride", stride, 2), per_axis("padding", padding, 2)
    out = [window_count(*a) for a in zip("hw", (h, w), kernel, step, around, strict=True)]
    b = Builder("capsule_conv2d")
    X = b.input("X", (n, h, w, ci, capsule, capsule), dtype)
    W = b.input("W", (*kernel, ci, co, capsule, capsule), dtype)
    still = (0, 0)
    P = pad(b, X, ("n", "h", "w", "c", "i", "j"), [still, *((p, p) for p in around), still, still, still])
    rc, rh, rw, rk = b.axis("ci", ci), b.axis("kh", kernel[0]), b.axis("kw", kernel[1]), b.axis("k", capsule)
    Y = sum_stage(
        b,
        "Y",
        (n, *out, co, capsule, capsule),
        lambda n, h, w, c, i, j: total(
            wide(P[n, h * step[0] + rh, w * step[1] + rw, rc, i, rk]) * wide(W[rh, rw, rc, c, rk, j]), rh, rw, rc, rk
        ),
        dtype,
    )
    return Definition(b.program(Y), lambda X, W: references.capsule_convolution(X, W, step, around), ("W",))
