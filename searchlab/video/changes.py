"""Library functions of layers on changes: they compute what active pixels reach, and copy the rest of the old sums.

Which pixels are active depends on the data, so the work does, too: what output pixels need is gathered into the columns
of a matrix, multiplied by BLAS, and added where it belongs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.graph import library

Array = npt.NDArray[Any]


def weight_columns(weight: Array, groups: int) -> Array:
    """Weights (co, ci / groups, kh, kw) as matrices (groups, co / groups, kh * kw * ci / groups)."""
    outputs, inner, *kernel = weight.shape
    return np.ascontiguousarray(weight.transpose(0, 2, 3, 1)).reshape(
        groups, outputs // groups, kernel[0] * kernel[1] * inner
    )


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
    change: Array, strength: Array, before: Array, weight: Array, after: Array, computed: Array,
    kernel: Sequence[int] = (1, 1), stride: Sequence[int] = (1, 1), padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1), groups: int = 1, limit: float = 1.0,
) -> None:  # fmt: skip
    """after = before + convolution of the change; `strength` is zero where a pixel did not change.

    `computed` receives the number of output pixels that were computed; above a share `limit` all are.
    """
    rows, columns = padding
    around = ((rows, rows), (columns, columns))
    after[...] = before
    total = 0
    for image in range(change.shape[0]):
        wanted = reached(np.pad(strength[image, 0] != 0, around), kernel, stride, dilation)
        count = int(np.count_nonzero(wanted))
        if count > limit * wanted.size:
            wanted[...] = True
            count = wanted.size
        total += count
        if count:
            padded = np.pad(change[image], ((0, 0), *around)) if rows or columns else change[image]
            places = np.flatnonzero(wanted)
            made = _product(padded, weight, np.divmod(places, wanted.shape[1]), kernel, stride, dilation, groups)
            after[image].reshape(after.shape[1], -1)[:, places] += made
    computed[0] = total


def _product(
    padded: Array, weight: Array, places: tuple[Array, Array], kernel: Sequence[int], stride: Sequence[int],
    dilation: Sequence[int], groups: int,
) -> Array:  # fmt: skip
    """The convolution at output pixels, (channels, pixels)."""
    channels, _, width = padded.shape
    inner = channels // groups
    flat = padded.reshape(groups, inner, -1)
    corner = places[0] * stride[0] * width + places[1] * stride[1]
    gathered = np.empty((groups, weight.shape[2], len(corner)), padded.dtype)
    for tap in range(kernel[0] * kernel[1]):
        down, across = divmod(tap, kernel[1])
        at = corner + (down * dilation[0] * width + across * dilation[1])
        # the indices are inside: "clip" spares numpy a buffered check
        np.take(flat, at, axis=2, out=gathered[:, tap * inner : (tap + 1) * inner], mode="clip")
    made: Array = np.matmul(weight, gathered)
    return made.reshape(-1, len(corner))


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
