"""Operators of ATen on images: convolutions, pooling, upsampling. Those on sequences are images of one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from searchlab.graph.building import GraphValue
from searchlab.graph.torch_import.conversion import AtenStep, Tensors, converts, need
from searchlab.ir.expr import value_of

Pair = int | Sequence[int]


@converts("aten.convolution.default")
def convolution(
    step: AtenStep,
    x: GraphValue,
    weight: GraphValue,
    bias: GraphValue | None,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    transposed: bool,
    output_padding: Pair,
    groups: int,
) -> GraphValue:
    """A convolution over one or two axes, or a transposed one over two."""
    given = [] if bias is None else [bias]
    rank = len(x.shape)
    need(rank in (3, 4), f"an operand of rank {rank}; convolutions over one or two axes are covered")
    if not transposed:
        window = dict(stride=_pair(stride), padding=_pair(padding), dilation=_pair(dilation), groups=groups)
        if rank == 4:
            return step.b.conv2d(x, weight, *given, **window)
        return _of_a_row(step, x, weight, given, window)
    plain = groups == 1 and set(_pair(dilation)) == {1} and set(_pair(output_padding)) == {0}
    need(
        rank == 4 and plain,
        "transposed convolutions are covered over two axes, without groups, dilation, output_padding",
    )
    return step.b.conv_transpose2d(x, weight, *given, stride=_pair(stride), padding=_pair(padding))


def _pair(given: Pair) -> tuple[int, ...]:
    return (given,) if isinstance(given, int) else tuple(given)


def _of_a_row(
    step: AtenStep, x: GraphValue, weight: GraphValue, bias: list[GraphValue], window: dict[str, Any]
) -> GraphValue:
    """A convolution over one axis as one over two, of which the first has the extent 1."""
    ahead = {"stride": 1, "padding": 0, "dilation": 1}
    image, kernel = step.b.unsqueeze(x, axes=(2,)), step.b.unsqueeze(weight, axes=(2,))
    both = {name: (ahead[name], *window[name]) if name in ahead else window[name] for name in window}
    return step.b.squeeze(step.b.conv2d(image, kernel, *bias, **both), axes=(2,))


@converts("aten.conv2d.default", "aten.conv1d.default")
def conv(
    step: AtenStep,
    x: GraphValue,
    weight: GraphValue,
    bias: GraphValue | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
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
    stride: Pair = 1,
    padding: Pair = 0,
    output_padding: Pair = 0,
    groups: int = 1,
    dilation: Pair = 1,
) -> GraphValue:
    """A transposed convolution."""
    return convolution(step, x, weight, bias, stride, padding, dilation, True, output_padding, groups)


# --- pooling ----------------------------------------------------------------------------------------------------------


@converts("aten.max_pool2d.default")
def max_pool(
    step: AtenStep,
    x: GraphValue,
    kernel: Pair,
    stride: Pair = (),
    padding: Pair = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
) -> GraphValue:
    """The largest elements of windows."""
    need(set(_pair(dilation)) == {1} and not ceil_mode, "max_pool2d with dilation or ceil_mode is not covered")
    return step.b.max_pool2d(x, kernel=_pair(kernel), stride=_pair(stride) or None, padding=_pair(padding))


@converts("aten.max_pool2d_with_indices.default")
def max_pool_with_indices(step: AtenStep, x: GraphValue, *window: Any) -> Tensors:
    """The same; where these elements are, is not covered."""
    return max_pool(step, x, *window), None


@converts("aten.avg_pool2d.default")
def avg_pool(
    step: AtenStep,
    x: GraphValue,
    kernel: Pair,
    stride: Pair = (),
    padding: Pair = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> GraphValue:
    """The means of windows."""
    counted = count_include_pad or set(_pair(padding)) == {0}
    need(
        not ceil_mode and counted and divisor_override is None,
        "avg_pool2d is covered as a mean, padding counted as zeros",
    )
    return step.b.avg_pool2d(x, kernel=_pair(kernel), stride=_pair(stride) or None, padding=_pair(padding))


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
