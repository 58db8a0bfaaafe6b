"""Windows over images as other systems describe them: padded unevenly, rounded up, over two axes or one.

Convolutions and pooling of both imports are written by these functions; sequences are images of one row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from searchlab.graph.building import GraphBuilder, GraphValue
from searchlab.graph.ops.operand_rules import need
from searchlab.ir.expr import value_of

Pair = tuple[int, ...]


@dataclass(frozen=True)
class ImageWindow:
    """Windows over two axes: extents, steps, distances of elements, and padding on both sides.

    `beyond` is what rounding up adds behind the padding, which never counts as elements.
    """

    kernel: Pair
    stride: Pair
    dilation: Pair
    before: Pair
    after: Pair
    beyond: Pair = (0, 0)

    @staticmethod
    def of(kernel: Pair, stride: Pair, dilation: Pair, before: Pair, after: Pair) -> ImageWindow:
        """The windows over one axis, as those over the second of two, or over both."""
        if len(kernel) == 2:
            return ImageWindow(kernel, stride, dilation, before, after)
        return ImageWindow((1, *kernel), (1, *stride), (1, *dilation), (0, *before), (0, *after))

    @property
    def ends(self) -> Pair:
        """All that is added behind the elements."""
        return tuple(a + b for a, b in zip(self.after, self.beyond, strict=True))

    @property
    def is_even(self) -> bool:
        """Whether both sides are padded alike."""
        return self.before == self.ends

    def rounded_up(self, space: Sequence[int]) -> ImageWindow:
        """The windows with one more where elements are left; one that begins in the padding is not added."""
        over = (1,) * (2 - len(space)) + tuple(space)
        added = []
        rows = zip(over, self.kernel, self.stride, self.before, self.after, strict=True)
        for extent, kernel, stride, before, after in rows:
            rest = (extent + before + after - kernel) % stride
            starts = extent + before + after - kernel - rest + stride  # of the window that is added
            added.append(stride - rest if rest and starts < extent + before else 0)
        return replace(self, beyond=tuple(added))


def on_images(b: GraphBuilder, x: GraphValue, convert: Callable[[GraphValue], GraphValue]) -> GraphValue:
    """A function of images, also of sequences, which are images of one row."""
    rank = len(x.shape)
    need(rank in (3, 4), f"an operand of rank {rank}; windows over one or two axes are covered")
    if rank == 4:
        return convert(x)
    return b.squeeze(convert(b.unsqueeze(x, axes=(2,))), axes=(2,))


def convolved(
    b: GraphBuilder, x: GraphValue, weight: GraphValue, bias: Sequence[GraphValue], w: ImageWindow, groups: int
) -> GraphValue:
    """A convolution over one or two axes."""
    kernel = b.unsqueeze(weight, axes=(2,)) if len(weight.shape) == 3 else weight

    def convert(image: GraphValue) -> GraphValue:
        image, padding = (image, w.before) if w.is_even else (_around(b, image, w, 0.0), (0, 0))
        return b.conv2d(image, kernel, *bias, stride=w.stride, padding=padding, dilation=w.dilation, groups=groups)

    return on_images(b, x, convert)


def convolved_back(
    b: GraphBuilder, x: GraphValue, weight: GraphValue, bias: Sequence[GraphValue], w: ImageWindow, extra: Pair
) -> GraphValue:
    """A transposed convolution over one or two axes, whose padding cuts off its result, `extra` less at the end."""
    need(set(w.dilation) == {1}, f"dilation = {w.dilation} is not covered")
    ends = tuple(q - e for q, e in zip(w.after, (0,) * (2 - len(extra)) + tuple(extra), strict=True))
    need(min(ends) >= 0, f"output_padding = {extra} beyond the padding is not covered")
    kernel = b.unsqueeze(weight, axes=(2,)) if len(weight.shape) == 3 else weight

    def convert(image: GraphValue) -> GraphValue:
        even = w.before == ends
        made = b.conv_transpose2d(image, kernel, *bias, stride=w.stride, padding=w.before if even else (0, 0))
        for axis, (p, q) in enumerate(zip(w.before, ends, strict=True), 2):
            if not even and (p or q):
                made = b.slice(made, axis=axis, start=p, stop=made.shape[axis] - q)
        return made

    return on_images(b, x, convert)


def max_pooled(b: GraphBuilder, x: GraphValue, w: ImageWindow) -> GraphValue:
    """The largest elements of windows."""
    need(set(w.dilation) == {1}, f"dilation = {w.dilation} is not covered")

    def convert(image: GraphValue) -> GraphValue:
        image, padding = _for_pooling(b, image, w, -math.inf)
        return b.max_pool2d(image, kernel=w.kernel, stride=w.stride, padding=padding)

    return on_images(b, x, convert)


def mean_pooled(b: GraphBuilder, x: GraphValue, w: ImageWindow, counts_padding: bool) -> GraphValue:
    """The means of windows; padding counts as zeros, or the mean is of the elements that there are."""
    need(set(w.dilation) == {1}, f"dilation = {w.dilation} is not covered")
    need(not counts_padding or not any(w.beyond), "ceil_mode with padding that counts is not covered")

    def pooled(image: GraphValue) -> GraphValue:
        image, padding = _for_pooling(b, image, w, 0.0)
        return b.avg_pool2d(image, kernel=w.kernel, stride=w.stride, padding=padding)

    def convert(image: GraphValue) -> GraphValue:
        if counts_padding or not any((*w.before, *w.ends)):
            return pooled(image)
        ones = b.full(shape=(1, 1, *image.shape[2:]), value=1.0, dtype=image.dtype)
        return pooled(image) / pooled(ones)

    return on_images(b, x, convert)


def known_space(x: GraphValue, why: str) -> tuple[int, ...]:
    """The extents that windows move over, which must be numbers."""
    found = [value_of(e) for e in x.shape[2:]]
    need(None not in found, f"{why} ({', '.join(map(str, x.shape[2:]))}) must be known")
    return tuple(n for n in found if n is not None)


def _around(b: GraphBuilder, x: GraphValue, w: ImageWindow, value: float) -> GraphValue:
    if not any((*w.before, *w.ends)):
        return x
    return b.pad(x, before=(0, 0, *w.before), after=(0, 0, *w.ends), value=value)


def _for_pooling(b: GraphBuilder, image: GraphValue, w: ImageWindow, value: float) -> tuple[GraphValue, Pair]:
    """The operand of pooling and its padding, which is a step of its own if the operator does not take it."""
    if w.is_even and all(2 * p <= k for p, k in zip(w.before, w.kernel, strict=True)):
        return image, w.before
    return _around(b, image, w, value), (0, 0)
