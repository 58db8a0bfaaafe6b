"""Operators of ATen on images: convolutions, pooling, upsampling. Those on sequences are images of one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from searchlab.graph.building import GraphValue
from searchlab.graph.image_windows import (
    ImageWindow,
    Pair,
    convolved,
    convolved_back,
    known_space,
    max_pooled,
    mean_pooled,
)
from searchlab.graph.torch_import.conversion import AtenStep, Tensors, converts, need
from searchlab.ir.expr import value_of

Numbers = int | Sequence[int]


@converts("aten.convolution.default")
def convolution(
    step: AtenStep,
    x: GraphValue,
    weight: GraphValue,
    bias: GraphValue | None,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    transposed: bool,
    output_padding: Numbers,
    groups: int,
) -> GraphValue:
    """A convolution over one or two axes, or a transposed one."""
    given, axes = [] if bias is None else [bias], len(x.shape) - 2
    need(axes in (1, 2), f"an operand of rank {len(x.shape)}; convolutions over one or two axes are covered")
    w = _window(axes, known_space(weight, "the kernel"), stride, padding, dilation)
    if not transposed:
        return convolved(step.b, x, weight, given, w, groups)
    need(groups == 1, "transposed convolutions are covered without groups")
    return convolved_back(step.b, x, weight, given, w, _each(output_padding, axes))


def _each(given: Numbers, axes: int) -> Pair:
    """A number for every axis; one stands for all."""
    found = (given,) if isinstance(given, int) else tuple(given)
    return found * axes if len(found) == 1 else found


def _window(axes: int, kernel: Numbers, stride: Numbers, padding: Numbers, dilation: Numbers = 1) -> ImageWindow:
    around = _each(padding, axes)
    return ImageWindow.of(_each(kernel, axes), _each(stride, axes), _each(dilation, axes), around, around)


@converts("aten.conv2d.default", "aten.conv1d.default")
def conv(
    step: AtenStep,
    x: GraphValue,
    weight: GraphValue,
    bias: GraphValue | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> GraphValue:
    """A convolution."""
    return convolution(step, x, weight, bias, stride, padding, dilation, False, 0, groups)


@converts("aten.conv_transpose2d.input")
def conv_transpose(
    step: AtenStep,
    x: GraphValue,
    weight: GraphValue,
    bias: GraphValue | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    output_padding: Numbers = 0,
    groups: int = 1,
    dilation: Numbers = 1,
) -> GraphValue:
    """A transposed convolution."""
    return convolution(step, x, weight, bias, stride, padding, dilation, True, output_padding, groups)


# --- pooling ----------------------------------------------------------------------------------------------------------


@converts("aten.max_pool2d.default")
def max_pool(
    step: AtenStep,
    x: GraphValue,
    kernel: Numbers,
    stride: Numbers = (),
    padding: Numbers = 0,
    dilation: Numbers = 1,
    ceil_mode: bool = False,
) -> GraphValue:
    """The largest elements of windows."""
    return max_pooled(step.b, x, _pooling(x, kernel, stride, padding, dilation, ceil_mode))


def _pooling(
    x: GraphValue, kernel: Numbers, stride: Numbers, padding: Numbers, dilation: Numbers, ceil: bool
) -> ImageWindow:
    """The windows of pooling over two axes, which move by their extents if nothing else is said."""
    step = kernel if not isinstance(stride, int) and not tuple(stride) else stride
    found = _window(2, kernel, step, padding, dilation)
    return found.rounded_up(known_space(x, "with ceil_mode the extents")) if ceil else found


@converts("aten.max_pool2d_with_indices.default")
def max_pool_with_indices(step: AtenStep, x: GraphValue, *window: Any) -> Tensors:
    """The same; where these elements are, is not covered."""
    return max_pool(step, x, *window), None


@converts("aten.avg_pool2d.default")
def avg_pool(
    step: AtenStep,
    x: GraphValue,
    kernel: Numbers,
    stride: Numbers = (),
    padding: Numbers = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> GraphValue:
    """The means of windows."""
    need(divisor_override is None, "avg_pool2d is covered as a mean, without divisor_override")
    return mean_pooled(step.b, x, _pooling(x, kernel, stride, padding, 1, ceil_mode), count_include_pad)


@converts("aten.adaptive_avg_pool2d.default", "aten._adaptive_avg_pool2d.default")
def adaptive_avg_pool(step: AtenStep, x: GraphValue, size: list[int]) -> GraphValue:
    """The means of as many windows as asked for."""
    return step.b.adaptive_avg_pool2d(x, size=size)


@converts("aten.upsample_nearest2d.vec", "aten.upsample_nearest2d.default")
def upsample(step: AtenStep, x: GraphValue, *_: Any) -> GraphValue:
    """Elements repeated; by whole numbers where the sizes that torch has found are such multiples."""
    scale = [value_of(big // small) for small, big in zip(x.shape[2:], step.shape[2:], strict=True)]
    if all(n is not None and e * n == big for n, e, big in zip(scale, x.shape[2:], step.shape[2:], strict=True)):
        return step.b.upsample_nearest2d(x, scale=scale)
    return step.b.upsample_nearest2d(x, size=step.shape[2:])
