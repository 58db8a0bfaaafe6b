"""Pooling over windows of (n, c, h, w): max_pool2d, avg_pool2d, global_avg_pool2d."""

from __future__ import annotations

import math

from searchlab.dtype import DTYPES
from searchlab.ir.compute import Builder, Tensor, largest, total
from searchlab.ir.expr import Expr, cast, value_of
from searchlab.workloads import references
from searchlab.workloads.building_blocks import fitted, pad, per_axis, require, wide, window_count
from searchlab.workloads.catalogue import operator
from searchlab.workloads.definition import Array, Definition
from searchlab.workloads.parameters import Extent, Float, Padding, Window

_NAMES = ("n", "c", "h", "w")


class _Pooling:
    """The common part of max_pool2d and avg_pool2d: the padded input, its windows, the output's shape."""

    def __init__(self, b: Builder, x: Tensor, k: Window, stride: Window, padding: Padding, fill: float) -> None:
        self.kernel, self.step = per_axis("k", k, 2), per_axis("stride", stride, 2)
        self.padding, self.fill = per_axis("padding", padding, 2), fill
        for kernel, p in zip(self.kernel, self.padding, strict=True):
            require(2 * p <= kernel, f"padding = {p} is more than half of the kernel {kernel}: windows would be empty")
        windows = zip("hw", map(_plain, x.shape[2:]), self.kernel, self.step, self.padding, strict=True)
        self.shape = (*x.shape[:2], *(window_count(*a) for a in windows))
        self.data = pad(b, x, _NAMES, [(0, 0), (0, 0), *((p, p) for p in self.padding)], fill)
        self.axes = tuple(b.axis(f"k{a}", e) for a, e in zip("hw", self.kernel, strict=True))

    def at(self, n: Expr, c: Expr, h: Expr, w: Expr) -> Expr:
        """The element of an output's window at the current position of the reduction axes."""
        return self.data[n, c, h * self.step[0] + self.axes[0], w * self.step[1] + self.axes[1]]

    def windows(self, x: Array) -> Array:
        """All windows as a numpy array, with their elements in the last two axes."""
        return references.windows(references.pad(x, self.padding, fill=self.fill), self.kernel, self.step, (1, 1))


def _plain(e: Expr) -> Extent:
    known = value_of(e)
    return e if known is None else known


@operator
def max_pool2d(
    n: Extent = 1,
    c: Extent = 64,
    h: Extent = 112,
    w: Extent = 112,
    k: Window = 3,
    stride: Window = 2,
    padding: Padding = 0,
    dtype: Float = "float32",
) -> Definition:
    """The largest element of each window."""
    b = Builder("max_pool2d")
    X = b.input("X", (n, c, h, w), dtype)
    pool = _Pooling(b, X, k, stride, padding, -math.inf)
    Y = b.compute("Y", pool.shape, lambda n, c, h, w: largest(pool.at(n, c, h, w), *pool.axes))
    return Definition(b.program(Y), lambda X: pool.windows(X).max(axis=(-2, -1)))


@operator
def avg_pool2d(
    n: Extent = 1,
    c: Extent = 64,
    h: Extent = 56,
    w: Extent = 56,
    k: Window = 2,
    stride: Window = 2,
    padding: Padding = 0,
    dtype: Float = "float32",
) -> Definition:
    """The mean of each window; padding counts as zeros."""
    b = Builder("avg_pool2d")
    X = b.input("X", (n, c, h, w), dtype)
    pool = _Pooling(b, X, k, stride, padding, 0.0)
    S = b.compute("S", pool.shape, lambda n, c, h, w: total(wide(pool.at(n, c, h, w)), *pool.axes))
    Y = b.compute("Y", pool.shape, lambda n, c, h, w: fitted(S[n, c, h, w] / float(math.prod(pool.kernel)), dtype))
    return Definition(b.program(Y), lambda X: pool.windows(X).mean(axis=(-2, -1)))


@operator
def global_avg_pool2d(
    n: Extent = 1, c: Extent = 512, h: Extent = 7, w: Extent = 7, dtype: Float = "float32"
) -> Definition:
    """The mean of each channel."""
    b = Builder("global_avg_pool2d")
    X = b.input("X", (n, c, h, w), dtype)
    rh, rw, count = b.axis("h", h), b.axis("w", w), cast(h * w, DTYPES[dtype].arithmetic)
    S = b.compute("S", (n, c), lambda n, c: total(wide(X[n, c, rh, rw]), rh, rw))
    Y = b.compute("Y", (n, c), lambda n, c: fitted(S[n, c] / count, dtype))
    return Definition(b.program(Y), lambda X: X.mean(axis=(2, 3)))
