"""Library functions of layers on changes: they compute what active pixels reach, and copy the rest of the old sums.

Which pixels are active depends on the data, so the work does, too: what output pixels need is gathered into the rows of
a matrix, multiplied by BLAS, and added where it belongs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from searchlab.graph import library

Array = npt.NDArray[Any]


def weight_columns(weight: Array, groups: int) -> Array:
    """Weights (co, ci / groups, kh, kw) as matrices (groups, kh * kw * ci / groups, co / groups)."""
    outputs, inner, *kernel = weight.shape
    grouped = weight.reshape(groups, outputs // groups, inner, *kernel).transpose(0, 3, 4, 2, 1)
    return np.ascontiguousarray(grouped).reshape(groups, -1, outputs // groups)


def reached(active: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Array:
    """The output pixels whose windows hold an active pixel of a padded image (rows, columns)."""
    found = active
    for axis in (0, 1):
        count = (found.shape[axis] - dilation[axis] * (kernel[axis] - 1) - 1) // stride[axis] + 1
        windows = [
            found[(slice(None),) * axis + (slice(k * dilation[axis], None, stride[axis]),)] for k in range(kernel[axis])
        ]
        found = np.logical_or.reduce([w[(slice(None),) * axis + (slice(0, count),)] for w in windows])
    return found


@library("video.conv2d_changes")
def conv2d_changes(
    change: Array, active: Array, before: Array, weight: Array, after: Array, computed: Array,
    kernel: Sequence[int] = (1, 1), stride: Sequence[int] = (1, 1), padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1), groups: int = 1, limit: float = 1.0,
) -> None:  # fmt: skip
    """after = before + convolution of the change (n, h, w, c); `active` (n, 1, h, w) is not zero where pixels changed.

    `computed` receives the number of output pixels that were computed; above a share `limit` all are.
    """
    rows, columns = padding
    around = ((rows, rows), (columns, columns))
    after[...] = before
    total = 0
    for image in range(change.shape[0]):
        wanted = reached(np.pad(active[image, 0] != 0, around), kernel, stride, dilation)
        count = int(np.count_nonzero(wanted))
        if count > limit * wanted.size:
            wanted[...] = True
            count = wanted.size
        total += count
        if count:
            padded = np.pad(change[image], (*around, (0, 0))) if rows or columns else change[image]
            places = np.flatnonzero(wanted)
            at = tuple(p * s for p, s in zip(np.divmod(places, wanted.shape[1]), stride, strict=True))
            made = _products(_windows(padded, at, kernel, dilation), weight, groups)
            after[image].reshape(after.shape[1], -1)[:, places] += made.T
    computed[0] = total


def _windows(padded: Array, at: tuple[Array, ...], kernel: Sequence[int], dilation: Sequence[int]) -> Array:
    """What windows that begin at pixels hold, (pixels, taps, channels)."""
    _, width, channels = padded.shape
    corner = at[0] * width + at[1]
    flat = padded.reshape(-1, channels)
    found = np.empty((len(corner), kernel[0], kernel[1], channels), padded.dtype)
    if dilation[1] == 1:  # a row of a window is one piece of memory
        step, item = flat.strides
        pieces = as_strided(flat, (len(flat) - kernel[1] + 1, kernel[1] * channels), (step, item), writeable=False)
        for down in range(kernel[0]):
            found[:, down] = pieces[corner + down * dilation[0] * width].reshape(-1, kernel[1], channels)
    else:
        for down, across in np.ndindex(kernel[0], kernel[1]):
            found[:, down, across] = flat[corner + down * dilation[0] * width + across * dilation[1]]
    return found.reshape(len(corner), -1, channels)


def _products(windows: Array, weight: Array, groups: int) -> Array:
    """The sums of windows, (pixels, output channels)."""
    pixels, taps, channels = windows.shape
    if groups == 1:
        whole: Array = windows.reshape(pixels, -1) @ weight[0]
        return whole
    split = windows.reshape(pixels, taps, groups, channels // groups).transpose(2, 0, 1, 3)
    made: Array = np.matmul(split.reshape(groups, pixels, -1), weight)
    return made.transpose(1, 0, 2).reshape(pixels, -1)


@library("video.linear_changes")
def linear_changes(change: Array, before: Array, weight: Array, after: Array, computed: Array) -> None:
    """after = before + change times weights (inputs, outputs), by the inputs that changed in any row.

    `computed` receives the number of these inputs.
    """
    rows = change.reshape(-1, change.shape[-1])
    places = np.flatnonzero(rows.any(axis=0))
    computed[0] = len(places)
    if len(places) == rows.shape[1]:
        np.add(before, np.matmul(change, weight), out=after)
        return
    after[...] = before
    if len(places):
        after.reshape(-1, after.shape[-1])[...] += rows[:, places] @ weight[places]
