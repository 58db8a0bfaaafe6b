"""Convolutions and windows in plain numpy: any number of spatial axes, channels second, written for speed.

Deliberately independent of the IR: the results of programs are checked against these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from searchlab.workloads.definition import Array

_CHUNK = 1 << 23  # elements of one unfolded matrix: 64 MB of doubles


def windows(x: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], lead: int = 2) -> Array:
    """A view (*lead axes, *output, *kernel) of all windows along the axes after the first `lead`."""
    axes = tuple(range(lead, lead + len(kernel)))
    span = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    every = np.lib.stride_tricks.sliding_window_view(x, span, axis=axes)
    take = [slice(None)] * lead + [slice(None, None, s) for s in stride] + [slice(None)] * (x.ndim - lead - len(kernel))
    found: Array = every[(*take, *(slice(None, None, d) for d in dilation))]
    return found


def pad(x: Array, padding: Sequence[int], lead: int = 2, fill: float = 0) -> Array:
    """`x` with `fill` on both sides of the axes after the first `lead`."""
    after = x.ndim - lead - len(padding)
    return np.pad(x, [(0, 0)] * lead + [(p, p) for p in padding] + [(0, 0)] * after, constant_values=fill)


def convolution(
    x: Array, w: Array, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
) -> Array:
    """Convolves x (n, ci, *space) with w (co, ci / groups, *kernel)."""
    view = windows(pad(x, padding), w.shape[2:], stride, dilation)
    if w.shape[1] == 1:
        return _depthwise(view, w)
    parts = zip(np.split(view, groups, axis=1), np.split(w, groups), strict=True)
    return np.concatenate([_dense(v, wg) for v, wg in parts], axis=1)


def _dense(view: Array, w: Array) -> Array:
    """One matrix product per chunk of the output, small enough for its unfolded windows to fit in memory."""
    dims = w.ndim - 2
    n, out = view.shape[0], view.shape[2 : 2 + dims]
    y = np.empty((n, w.shape[0], *out))
    rows = max(1, _CHUNK // max(1, w[0].size * math.prod(out[1:])))
    inner = (0, *range(1 + dims, 1 + 2 * dims))
    for i in range(n):
        for start in range(0, out[0], rows):
            piece = view[i, :, start : start + rows]
            y[i, :, start : start + rows] = np.tensordot(w, piece, axes=(tuple(range(1, w.ndim)), inner))
    return y


def _depthwise(view: Array, w: Array) -> Array:
    dims = w.ndim - 2
    repeat = w.shape[0] // view.shape[1]
    y = np.zeros((view.shape[0], w.shape[0], *view.shape[2 : 2 + dims]))
    for at in np.ndindex(*w.shape[2:]):
        column = w[(slice(None), 0, *at)].reshape(-1, *[1] * dims)
        y += np.repeat(view[(..., *at)], repeat, axis=1) * column
    return y


def transposed_convolution(x: Array, w: Array, stride: Sequence[int], padding: Sequence[int]) -> Array:
    """Convolves x (n, ci, *space) with w (ci, co, *kernel): each input element adds a scaled kernel to the output."""
    space, kernel = x.shape[2:], w.shape[2:]
    full = [(e - 1) * s + k for e, s, k in zip(space, stride, kernel, strict=True)]
    y = np.zeros((x.shape[0], w.shape[1], *full))
    for at in np.ndindex(*kernel):
        target = tuple(slice(a, a + (e - 1) * s + 1, s) for a, e, s in zip(at, space, stride, strict=True))
        y[(slice(None), slice(None), *target)] += np.moveaxis(np.tensordot(w[(..., *at)], x, axes=(0, 1)), 1, 0)
    crop = [slice(None)] * 2 + [slice(p, e - p) for e, p in zip(full, padding, strict=True)]
    found: Array = y[tuple(crop)]
    return found


def capsule_convolution(x: Array, w: Array, stride: Sequence[int], padding: Sequence[int]) -> Array:
    """Convolves x (n, h, w, ci, a, b) with w (kh, kw, ci, co, b, c); the elements are matrices."""
    view = windows(pad(x, padding, lead=1), w.shape[:2], stride, (1, 1), lead=1)
    y = np.zeros((*view.shape[:3], w.shape[3], x.shape[4], w.shape[5]))
    for at in np.ndindex(*w.shape[:2]):
        y += np.einsum("nhwiab,iobc->nhwoac", view[(..., *at)], w[at], optimize=True)
    return y
