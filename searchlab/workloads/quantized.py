"""Quantised products: bytes with zero points, sums in int32, and results scaled back to bytes in the same kernel.

A byte q of the data stands for q - zero, one of the weights for w - weight_zero.  The sum of such products is

    sum q w  -  zero * sum w  -  weight_zero * sum q  +  length * zero * weight_zero

and programs are written in this form: the first sum is one of plain products of bytes, the kind that CPUs have
instructions for.  The second and the last depend on the weights alone, so they are made ahead of time and are part of
the input `offset` (see `offset_of`).  The third is a stage of its own, R, which only a weight_zero other than 0 needs.

The result is clamp(round(float32(sum) * scale[channel]) + out_zero), with one multiplication in float32, ties rounded
to even and the limits of the type `out`; for out = int32 it is the sum.  Sums wrap around at 32 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from searchlab.dtype import DTYPES
from searchlab.ir.compute import Builder, Reduction, Tensor, total
from searchlab.ir.expr import Expr, Like, Var, call, cast, maximum, minimum
from searchlab.workloads import references
from searchlab.workloads.building_blocks import SlidingWindow, named, per_group, require, wide
from searchlab.workloads.catalogue import operator
from searchlab.workloads.definition import Array, Definition
from searchlab.workloads.parameters import Count, Extent, Padding, Window

Byte = Literal["uint8", "int8"]
Out = Literal["uint8", "int8", "int32"]
WEIGHT = "int8"
_SPREAD = 40.0  # the standard deviation of results on random inputs, so that few are clamped
_BYTE_SPREAD = 256 / math.sqrt(12)  # that of random bytes


def offset_of(W: Array, axes: tuple[int, ...], zero: int, weight_zero: int, bias: Array | int = 0) -> Array:
    """The input `offset`: a bias (of the exact sum), and what zero points add that depends on the weights alone.

    `axes` are those of the weights that are summed over.
    """
    length = math.prod(W.shape[a] for a in axes)
    return np.asarray(bias - zero * W.sum(axis=axes, dtype=np.int64) + length * zero * weight_zero).astype(np.int32)


@dataclass(frozen=True)
class Quantization:
    """What bytes stand for, and what becomes of the sums."""

    dtype: str
    zero: int
    weight_zero: int
    out: str
    out_zero: int
    bias: bool

    def __post_init__(self) -> None:
        require(self.out != "int32" or self.out_zero == 0, f"out_zero = {self.out_zero}: sums (out = int32) have none")
        of = (("zero", self.zero, self.dtype), ("weight_zero", self.weight_zero, WEIGHT))
        for name, value, dtype in (*of, ("out_zero", self.out_zero, self.out)):
            low, high = DTYPES[dtype].limits
            require(low <= value <= high, f"{name} = {value} is not a number of type {dtype}, {low} to {high}")

    @property
    def further(self) -> tuple[str, ...]:
        """The inputs after data and weights: one number of each for every channel."""
        return ("offset",) * (self.bias or self.zero != 0) + ("scale",) * (self.out != "int32")

    def program(self, b: Builder, product: Product) -> Tensor:
        """The stages R (sums of data), C (products) and Y (the result), as far as they are needed."""
        x, w, axes = product.data, product.weight, product.axes
        further = self.further
        needed = bool(further) or self.weight_zero != 0

        def products(*at: Var) -> Reduction:
            return total(wide(x(*at)) * wide(w(*at)), *axes)

        R = product.sums(b) if self.weight_zero else None
        C = b.compute("C" if needed else "Y", product.shape, named(product.names, products))
        if not needed:
            return C
        width = (product.shape[product.channel],)
        given = {n: b.input(n, width, "int32" if n == "offset" else "float32") for n in further}

        def result(*at: Var) -> Expr:
            value, channel = C[at], at[product.channel]
            if "offset" in given:
                value = value + given["offset"][channel]
            if R is not None:
                value = value - R[product.group(at)] * self.weight_zero
            if self.out == "int32":
                return value
            low, high = DTYPES[self.out].limits
            scaled = call("round", cast(value, "float32") * given["scale"][channel]) + float(self.out_zero)
            return cast(minimum(maximum(scaled, low), high), self.out)

        return b.compute("Y", product.shape, named(product.names, result))

    def array(self, products: Array, sums: Array, given: Sequence[Array], channel: int) -> Array:
        """The result for exact sums of products and of data, which broadcasts to their shape."""
        rest = dict(zip(self.further, given, strict=True))
        column = [1] * products.ndim
        column[channel] = -1
        value = products.astype(np.int64) - self.weight_zero * sums.astype(np.int64)
        if "offset" in rest:
            value = value + rest["offset"].astype(np.int64).reshape(column)
        whole = value.astype(np.int32)
        if self.out == "int32":
            return whole
        scaled = np.rint(whole.astype(np.float32) * rest["scale"].astype(np.float32).reshape(column))
        clamped: Array = np.clip(scaled + np.float32(self.out_zero), *DTYPES[self.out].limits)
        return clamped.astype(self.out)

    def arrange(self, weight: str, axes: tuple[int, ...]) -> Callable[[dict[str, Array]], dict[str, Array]]:
        """Makes offsets that belong to the weights, and scales that spread results over the range of their type."""

        def arranged(inputs: dict[str, Array]) -> dict[str, Array]:
            W, found = inputs[weight], dict(inputs)
            if "offset" in inputs:
                found["offset"] = offset_of(W, axes, self.zero, self.weight_zero, inputs["offset"] if self.bias else 0)
            if "scale" in inputs:
                length = math.prod(W.shape[a] for a in axes)
                typical = np.float32(_SPREAD / (_BYTE_SPREAD**2 * math.sqrt(length)))
                found["scale"] = typical * (1 + inputs["scale"] / 2)
            return found

        return arranged


@dataclass(frozen=True)
class Product:
    """The shape of a sum of products: the operands at an output and at the axes of the sum.

    `moving` are the axes of the output on which the data depend; `shared` channels in a row read the same ones.
    """

    shape: tuple[Like, ...]
    names: tuple[str, ...]
    data: Callable[..., Expr]
    weight: Callable[..., Expr]
    axes: tuple[Var, ...]
    moving: tuple[int, ...]
    channel: int = 1
    shared: Extent = 1

    def group(self, at: Sequence[Var]) -> tuple[Expr, ...]:
        """Where the sum of the data of an output is found in stage R."""
        return tuple(at[n] // self.shared if n == self.channel else at[n] for n in self.moving)

    def sums(self, b: Builder) -> Tensor:
        """Stage R: the sums of the data alone, once for all channels that read the same data."""
        places, count = self.moving, len(self.shape)

        def body(*at: Var) -> Reduction:
            known = {n: i * self.shared if n == self.channel else i for n, i in zip(places, at, strict=True)}
            return total(wide(self.data(*(known.get(n, at[0]) for n in range(count)))), *self.axes)

        shape = [self.shape[n] // self.shared if n == self.channel else self.shape[n] for n in places]
        return b.compute("R", shape, named([self.names[n] for n in places], body))


def _matrices(name: str, data: str, weight: str, m: Extent, n: Extent, k: Extent, q: Quantization) -> Definition:
    b = Builder(name)
    X, W = b.input(data, (m, k), q.dtype), b.input(weight, (k, n), WEIGHT)
    r = b.axis("k", k)
    product = Product((m, n), ("i", "j"), lambda i, j: X[i, r], lambda i, j: W[r, j], (r,), (0,))
    Y = q.program(b, product)

    def reference(X: Array, W: Array, *rest: Array) -> Array:
        return q.array(X @ W, X.sum(axis=1, keepdims=True), rest, 1)

    return Definition(b.program(Y), reference, (weight, *q.further), q.arrange(weight, (0,)))


def _images(
    name: str,
    data: tuple[Extent, Extent, Extent, Extent],
    co: Extent,
    k: Window,
    stride: Window,
    padding: Padding,
    dilation: Window,
    groups: int,
    q: Quantization,
) -> Definition:
    """Convolutions of `data` (n, ci, h, w), in groups of channels that do not meet."""
    n, ci, *space = data
    window = SlidingWindow.over(space, k=k, stride=stride, padding=padding, dilation=dilation)
    inner, outer = per_group("ci", ci, groups), per_group("co", co, groups)
    names = ("n", "c", *window.axes)
    b = Builder(name)
    X, W = b.input("X", data, q.dtype), b.input("W", (co, inner, *window.kernel), WEIGHT)
    P = window.padded(b, X, names, q.zero)
    rc = (b.axis("ci", inner),) if groups == 1 or inner != 1 else ()  # depthwise: no loop of one iteration
    rk = window.taps(b)

    def operand(i: Var, c: Expr, *at: Var) -> Expr:
        first = c // outer * inner if groups > 1 else 0
        return P[(i, first + rc[0] if rc else first, *window.at(at, rk))]

    product = Product(
        (n, co, *window.places), names, operand, lambda i, c, *at: W[(c, *(rc or (0,)), *rk)], (*rc, *rk),
        moving=(0, 2, 3) if groups == 1 else (0, 1, 2, 3), shared=outer,
    )  # fmt: skip
    Y = q.program(b, product)

    def reference(X: Array, W: Array, *rest: Array) -> Array:
        padded, ones = references.pad(X, window.padding, fill=q.zero), np.ones((groups, *W.shape[1:]))
        products, sums = (
            references.convolution(padded, w, window.stride, (0, 0), window.dilation, groups) for w in (W, ones)
        )
        return q.array(products, np.repeat(sums, len(W) // groups, axis=1), rest, 1)

    return Definition(b.program(Y), reference, ("W", *q.further), q.arrange("W", (1, 2, 3)))


@operator
def qmatmul(
    m: Extent = 512,
    n: Extent = 512,
    k: Extent = 512,
    dtype: Byte = "uint8",
    zero: int = 0,
    weight_zero: int = 0,
    out: Out = "uint8",
    out_zero: int = 0,
) -> Definition:
    """C = A B of bytes, scaled back to bytes for every column; B is int8. The result is called Y."""
    q = Quantization(dtype, zero, weight_zero, out, out_zero, bias=False)
    return _matrices("qmatmul", "A", "B", m, n, k, q)


@operator
def qdense(
    m: Extent = 128,
    n: Extent = 768,
    k: Extent = 768,
    bias: bool = True,
    dtype: Byte = "uint8",
    zero: int = 0,
    weight_zero: int = 0,
    out: Out = "uint8",
    out_zero: int = 0,
) -> Definition:
    """A fully connected layer of bytes; an `out_zero` that is the least number of its type makes the clamp a relu."""
    return _matrices("qdense", "X", "W", m, n, k, Quantization(dtype, zero, weight_zero, out, out_zero, bias))


@operator
def qconv2d(
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
    bias: bool = True,
    dtype: Byte = "uint8",
    zero: int = 0,
    weight_zero: int = 0,
    out: Out = "uint8",
    out_zero: int = 0,
) -> Definition:
    """2D convolution of bytes X (n, ci, h, w), padded with `zero`; scales for every output channel."""
    q = Quantization(dtype, zero, weight_zero, out, out_zero, bias)
    return _images("qconv2d", (n, ci, h, w), co, k, stride, padding, dilation, groups, q)


@operator
def qdepthwise_conv2d(
    n: Extent = 1,
    c: Count = 32,
    h: Extent = 112,
    w: Extent = 112,
    k: Window = 3,
    stride: Window = 1,
    padding: Padding = 0,
    dilation: Window = 1,
    bias: bool = True,
    dtype: Byte = "uint8",
    zero: int = 0,
    weight_zero: int = 0,
    out: Out = "uint8",
    out_zero: int = 0,
) -> Definition:
    """2D convolution of bytes in which every channel has a kernel of its own; weights (c, 1, k, k)."""
    q = Quantization(dtype, zero, weight_zero, out, out_zero, bias)
    return _images("qdepthwise_conv2d", (n, c, h, w), c, k, stride, padding, dilation, c, q)
