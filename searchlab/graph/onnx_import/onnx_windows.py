"""Operators of ONNX on images: convolutions, pooling, resizing. Those on sequences are images of one row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from searchlab.graph.building import GraphValue
from searchlab.graph.onnx_import.onnx_conversion import OnnxStep, from_node, need
from searchlab.graph.onnx_import.onnx_known import KnownTensor, OnnxValue
from searchlab.graph.onnx_import.onnx_shapes import padded
from searchlab.ir.expr import Expr, index, value_of

Pair = tuple[int, ...]


@dataclass(frozen=True)
class NodeWindow:
    """The windows of a node over two axes: extents, steps, distances of elements, and padding on both sides."""

    kernel: Pair
    stride: Pair
    dilation: Pair
    before: Pair
    after: Pair

    @property
    def even(self) -> bool:
        """Whether both sides are padded alike."""
        return self.before == self.after


def _window(
    step: OnnxStep, space: tuple[Expr, ...], kernel: Pair, attributes: dict[str, Any], ceil: bool = False
) -> NodeWindow:
    """The windows that the attributes of a node describe; `space` has the extents that they move over."""
    rank = len(kernel)
    stride = tuple(attributes.get("strides") or [1] * rank)
    dilation = tuple(attributes.get("dilations") or [1] * rank)
    pads = list(attributes.get("pads") or [0] * (2 * rank))
    auto = attributes.get("auto_pad", "NOTSET")
    need(auto in ("NOTSET", "", "VALID", "SAME_UPPER", "SAME_LOWER"), f"auto_pad = {auto}")
    if auto.startswith("SAME"):
        sizes = step.known_extents(space, "for this auto_pad the extents")
        for axis, extent in enumerate(sizes):
            reach = (kernel[axis] - 1) * dilation[axis] + 1
            missing = max((math.ceil(extent / stride[axis]) - 1) * stride[axis] + reach - extent, 0)
            small, large = missing // 2, missing - missing // 2
            pads[axis], pads[rank + axis] = (small, large) if auto == "SAME_UPPER" else (large, small)
    if ceil:
        for axis, extent in enumerate(step.known_extents(space, "with ceil_mode the extents")):
            rest = (extent + pads[axis] + pads[rank + axis] - kernel[axis]) % stride[axis]
            pads[rank + axis] += stride[axis] - rest if rest else 0
    return _of_two_axes(NodeWindow(kernel, stride, dilation, tuple(pads[:rank]), tuple(pads[rank:])))


def _of_two_axes(w: NodeWindow) -> NodeWindow:
    if len(w.kernel) == 2:
        return w
    return NodeWindow((1, *w.kernel), (1, *w.stride), (1, *w.dilation), (0, *w.before), (0, *w.after))


def _on_images(step: OnnxStep, x: GraphValue, convert: Callable[[GraphValue], GraphValue]) -> GraphValue:
    """A function of images, also of sequences, which are images of one row."""
    rank = len(x.shape)
    need(rank in (3, 4), f"an operand of rank {rank}; one or two axes after the channels are covered")
    if rank == 4:
        return convert(x)
    return step.b.squeeze(convert(step.b.unsqueeze(x, axes=(2,))), axes=(2,))


def _around(step: OnnxStep, x: GraphValue, w: NodeWindow, value: float) -> GraphValue:
    return padded(step, x, (0, 0, *w.before), (0, 0, *w.after), value)


# --- convolutions -----------------------------------------------------------------------------------------------------


def _weights(step: OnnxStep, weight: OnnxValue) -> GraphValue:
    tensor = step.tensor(weight)
    return step.b.unsqueeze(tensor, axes=(2,)) if len(tensor.shape) == 3 else tensor


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
    w = _window(step, image.shape[2:], kernel, attributes)
    given = [] if bias is None else [step.tensor(bias)]

    def convert(image: GraphValue) -> GraphValue:
        image, padding = (image, w.before) if w.even else (_around(step, image, w, 0.0), (0, 0))
        windows = dict(stride=w.stride, padding=padding, dilation=w.dilation, groups=group)
        return step.b.conv2d(image, _weights(step, weight), *given, **windows)

    return _on_images(step, image, convert)


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
    w = _window(step, image.shape[2:], kernel, attributes)
    need(set(w.dilation) == {1}, f"dilations = {w.dilation} are not covered")
    extra = tuple(output_padding) or (0,) * len(kernel)
    extra = extra if len(extra) == 2 else (0, *extra)
    ends = tuple(q - e for q, e in zip(w.after, extra, strict=True))
    need(min(ends) >= 0, f"output_padding = {extra} beyond the padding is not covered")
    given = [] if bias is None else [step.tensor(bias)]

    def convert(image: GraphValue) -> GraphValue:
        even = w.before == ends
        made = step.b.conv_transpose2d(
            image, _weights(step, weight), *given, stride=w.stride, padding=w.before if even else (0, 0)
        )
        for axis, (p, q) in enumerate(zip(w.before, ends, strict=True), 2):
            if not even and (p or q):
                made = step.b.slice(made, axis=axis, start=p, stop=made.shape[axis] - q)
        return made

    return _on_images(step, image, convert)


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
    w = _window(step, image.shape[2:], tuple(kernel_shape), attributes, bool(ceil_mode))
    need(set(w.dilation) == {1}, f"dilations = {w.dilation} are not covered")

    def convert(image: GraphValue) -> GraphValue:
        image, padding = _for_pooling(step, image, w, -math.inf)
        return step.b.max_pool2d(image, kernel=w.kernel, stride=w.stride, padding=padding)

    return _on_images(step, image, convert)


def _for_pooling(step: OnnxStep, image: GraphValue, w: NodeWindow, value: float) -> tuple[GraphValue, Pair]:
    """The operand of pooling and its padding, which is a step of its own if the operator does not take it."""
    if w.even and all(2 * p <= k for p, k in zip(w.before, w.kernel, strict=True)):
        return image, w.before
    return _around(step, image, w, value), (0, 0)


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
    w = _window(step, image.shape[2:], tuple(kernel_shape), attributes, bool(ceil_mode))
    need(set(w.dilation) == {1}, f"dilations = {w.dilation} are not covered")
    plain = _window(step, image.shape[2:], tuple(kernel_shape), attributes)
    need(not count_include_pad or w == plain, "ceil_mode with padding that counts is not covered")

    def pooled(image: GraphValue) -> GraphValue:
        image, padding = _for_pooling(step, image, w, 0.0)
        return step.b.avg_pool2d(image, kernel=w.kernel, stride=w.stride, padding=padding)

    def convert(image: GraphValue) -> GraphValue:
        if count_include_pad or not any((*w.before, *w.after)):
            return pooled(image)
        ones = step.b.full(shape=(1, 1, *image.shape[2:]), value=1.0, dtype=image.dtype)
        return pooled(image) / pooled(ones)

    return _on_images(step, image, convert)


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
    return _on_images(step, image, lambda x: _repeated(step, x, by[2:], whole[2:], floors))


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
