"""Operators of ONNX on images: convolutions, pooling, resizing. Those on sequences are images of one row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from searchlab.graph.building import GraphValue
from searchlab.graph.image_windows import (
    ImageWindow,
    Pair,
    convolved,
    convolved_back,
    known_space,
    max_pooled,
    mean_pooled,
    on_images,
)
from searchlab.graph.onnx_import.onnx_conversion import OnnxStep, from_node, need
from searchlab.graph.onnx_import.onnx_known import KnownTensor, OnnxValue
from searchlab.ir.expr import Expr, index, value_of


def _window(
    step: OnnxStep, image: GraphValue, kernel: Pair, attributes: dict[str, Any], ceil: bool = False
) -> ImageWindow:
    """The windows that the attributes of a node describe, over an image or a sequence."""
    rank = len(kernel)
    stride = tuple(attributes.get("strides") or [1] * rank)
    dilation = tuple(attributes.get("dilations") or [1] * rank)
    pads = list(attributes.get("pads") or [0] * (2 * rank))
    auto = attributes.get("auto_pad", "NOTSET")
    need(auto in ("NOTSET", "", "VALID", "SAME_UPPER", "SAME_LOWER"), f"auto_pad = {auto}")
    if auto.startswith("SAME"):
        for axis, extent in enumerate(known_space(image, "for this auto_pad the extents")):
            reach = (kernel[axis] - 1) * dilation[axis] + 1
            missing = max((math.ceil(extent / stride[axis]) - 1) * stride[axis] + reach - extent, 0)
            small, large = missing // 2, missing - missing // 2
            pads[axis], pads[rank + axis] = (small, large) if auto == "SAME_UPPER" else (large, small)
    found = ImageWindow.of(kernel, stride, dilation, tuple(pads[:rank]), tuple(pads[rank:]))
    return found.rounded_up(known_space(image, "with ceil_mode the extents")) if ceil else found


# --- convolutions -----------------------------------------------------------------------------------------------------


@from_node("Conv")
def conv(
    step: OnnxStep,
    x: OnnxValue,
    weight: OnnxValue,
    bias: OnnxValue | None = None,
    *,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    **attributes: Any,
) -> GraphValue:
    """A convolution over one or two axes."""
    image, kernel = step.tensor(x), step.known_extents(step.shape(weight)[2:], "the kernel")
    given = [] if bias is None else [step.tensor(bias)]
    return convolved(step.b, image, step.tensor(weight), given, _window(step, image, kernel, attributes), group)


@from_node("ConvTranspose")
def conv_transpose(
    step: OnnxStep,
    x: OnnxValue,
    weight: OnnxValue,
    bias: OnnxValue | None = None,
    *,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] = (),
    auto_pad: str = "NOTSET",
    **attributes: Any,
) -> GraphValue:
    """A transposed convolution over one or two axes, whose padding cuts off its result."""
    need(group == 1 and "output_shape" not in attributes, "groups and output_shape are not covered")
    need(auto_pad in ("NOTSET", "VALID"), f"auto_pad = {auto_pad} is not covered")
    image, kernel = step.tensor(x), step.known_extents(step.shape(weight)[2:], "the kernel")
    given = [] if bias is None else [step.tensor(bias)]
    w, extra = _window(step, image, kernel, attributes), tuple(output_padding) or (0,) * len(kernel)
    return convolved_back(step.b, image, step.tensor(weight), given, w, extra)


# --- pooling ----------------------------------------------------------------------------------------------------------


@from_node("MaxPool")
def max_pool(
    step: OnnxStep,
    x: OnnxValue,
    *,
    kernel_shape: Sequence[int],
    ceil_mode: int = 0,
    storage_order: int = 0,
    **attributes: Any,
) -> GraphValue:
    """The largest elements of windows."""
    image = step.tensor(x)
    return max_pooled(step.b, image, _window(step, image, tuple(kernel_shape), attributes, bool(ceil_mode)))


@from_node("AveragePool")
def average_pool(
    step: OnnxStep,
    x: OnnxValue,
    *,
    kernel_shape: Sequence[int],
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    **attributes: Any,
) -> GraphValue:
    """The means of windows; padding counts, or the mean is of the elements that there are."""
    image = step.tensor(x)
    w = _window(step, image, tuple(kernel_shape), attributes, bool(ceil_mode))
    return mean_pooled(step.b, image, w, bool(count_include_pad))


# --- resizing ---------------------------------------------------------------------------------------------------------


@from_node("Resize")
def resize(
    step: OnnxStep,
    x: OnnxValue,
    roi: OnnxValue | None = None,
    scales: OnnxValue | None = None,
    sizes: OnnxValue | None = None,
    *,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    axes: Sequence[int] | None = None,
    keep_aspect_ratio_policy: str = "stretch",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    antialias: int = 0,
) -> GraphValue:
    """Elements repeated."""
    need(mode == "nearest", f"mode {mode}; nearest is covered")
    need(keep_aspect_ratio_policy == "stretch" and not antialias, "aspect ratios and antialiasing are not covered")
    image = step.tensor(x)
    rank = len(image.shape)
    along = tuple(range(rank)) if axes is None else tuple(a % rank for a in axes)
    by = [index(1)] * rank
    whole = list(image.shape)
    if scales is not None and step.shape(scales) != (index(0),):
        for axis, factor in zip(along, step.numbers(scales, "the scales").ravel(), strict=True):
            need(float(factor).is_integer(), f"a scale of {factor}; whole numbers are covered")
            by[axis], whole[axis] = index(int(factor)), image.shape[axis] * int(factor)
    else:
        need(sizes is not None, "neither scales nor sizes are given")
        assert sizes is not None
        for axis, extent in zip(along, step.sizes(sizes, "the sizes"), strict=True):
            by[axis], whole[axis] = step.facts.simplify(extent // image.shape[axis]), extent
    need(tuple(whole[:2]) == image.shape[:2], "resizing of channels is not covered")
    rounds = nearest_mode.startswith("round") and coordinate_transformation_mode in (
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
    )  # fmt: skip
    floors = nearest_mode == "floor" and coordinate_transformation_mode == "asymmetric"
    need(rounds or floors, f"{coordinate_transformation_mode} with {nearest_mode} is not covered")
    return on_images(step.b, image, lambda x: _repeated(step, x, by[2:], whole[2:], floors))


def _repeated(step: OnnxStep, x: GraphValue, by: list[Expr], whole: list[Expr], floors: bool) -> GraphValue:
    times = [index(1)] * (2 - len(by)) + by
    wanted = [index(1)] * (2 - len(whole)) + whole
    factors = [value_of(n) for n in times]
    if all(n is not None and n >= 1 and e * n == w for n, e, w in zip(factors, x.shape[2:], wanted, strict=True)):
        return step.b.upsample_nearest2d(x, scale=factors)
    need(floors, "sizes that are no multiples are covered with asymmetric coordinates, rounded down")
    return step.b.upsample_nearest2d(x, size=wanted)


@from_node("Upsample")
def upsample(
    step: OnnxStep,
    x: OnnxValue,
    given: OnnxValue | None = None,
    *,
    mode: str = "nearest",
    scales: Sequence[float] = (),
) -> GraphValue:
    """What `Resize` was before operator set 10."""
    factors = KnownTensor(np.asarray(scales, "float32"), "float32") if given is None else given
    return resize(step, x, None, factors, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor")
