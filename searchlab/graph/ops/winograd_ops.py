"""Winograd's convolution of packed images: tiles of 2x2 outputs of a 3x3 kernel take 16 products instead of 36.

    Y = A^T ((G g G^T) * (B^T d B)) A        for a kernel g, a patch d of 4x4 inputs, and a tile Y of 2x2 outputs

The transforms only add and subtract, except that of the weights, which is computed once.  Errors of float32 are a few
times those of a plain convolution, as F(2x2, 3x3) has no large constants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from searchlab.errors import GraphError
from searchlab.graph.annotations import TensorType
from searchlab.graph.operator import Array, GraphOperator, Ints, graph_operator
from searchlab.graph.ops.operand_rules import float_of, rank_of, same, shape_of
from searchlab.graph.ops.packed_ops import PACKED_AXES, Conv2dPackedOp
from searchlab.graph.ops.window_ops import WindowOp
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.compute import Builder, Reduction, total
from searchlab.ir.expr import Const, Expr, Var, select, value_of
from searchlab.ir.program import Program
from searchlab.workloads.building_blocks import fitted, named, pad, wide

KERNEL, TILE, PATCH = 3, 2, 4
_G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
_B = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])  # transposed, as is A
_A = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])

Line = Callable[[int], Expr]  # the elements of a row or a column


def _which(i: Expr, *values: Expr) -> Expr:
    """The value that an index names."""
    *others, found = values
    for n, value in reversed(list(enumerate(others))):
        found = select(i.equals(n), value, found)
    return found


def _patch_line(i: Expr, d: Line) -> Expr:
    return _which(i, d(0) - d(2), d(1) + d(2), d(2) - d(1), d(1) - d(3))


def _tile_line(i: Expr, m: Line) -> Expr:
    return _which(i, m(0) + m(1) + m(2), m(1) - m(2) - m(3))


def _weight_line(i: Expr, g: Line) -> Expr:
    return _which(i, g(0), (g(0) + g(1) + g(2)) * 0.5, (g(0) - g(1) + g(2)) * 0.5, g(2))


@graph_operator("winograd_weights_packed")
@dataclass(frozen=True)
class WinogradWeightsOp(GraphOperator):
    """Weights (co / b, ci / a, 3, 3, a, b) as those of Winograd's convolution, (4, 4, co / b, ci / a, a, b)."""

    def deduce(self, facts: SizeFacts, weight: TensorType) -> TensorType:
        """A patch in place of the kernel."""
        rank_of(weight, 6)
        outer, inner, kh, kw, a, b = shape_of(weight)
        for size in (kh, kw):
            same(facts, size, Const(KERNEL), "the kernel and that of Winograd's convolution")
        return TensorType((Const(PATCH), Const(PATCH), outer, inner, a, b), float_of(weight))

    def program(self, facts: SizeFacts, weight: TensorType) -> Program:
        """One stage."""
        outer, inner, _, _, a, b = shape_of(weight)
        dtype = float_of(weight)
        builder = Builder(self.name)
        W = builder.input("W", shape_of(weight), dtype)

        def body(i: Var, j: Var, o: Var, c: Var, a: Var, b: Var) -> Expr:
            def element(k: int, m: int) -> Expr:
                return wide(W[o, c, k, m, a, b])

            return fitted(_weight_line(j, lambda m: _weight_line(i, lambda k: element(k, m))), dtype)

        shape = (PATCH, PATCH, outer, inner, a, b)
        return builder.program(builder.compute("U", shape, named(("i", "j", "o", "c", "a", "b"), body)))

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        made: Array = np.einsum("ik,jl,ocklab->ijocab", _G, _G, args[0])
        return made


@graph_operator("winograd_conv2d_packed")
@dataclass(frozen=True)
class WinogradConv2dPackedOp(WindowOp):
    """3x3 convolution of x (n, ci / a, h, w, a) with weights in Winograd's form, to (n, co / b, h, w, b)."""

    padding: Ints = (0, 0)

    def coarse(self, *args: TensorType) -> TensorType:
        """Five axes."""
        return TensorType(dtype=args[0].dtype, rank=5)

    def deduce(self, facts: SizeFacts, x: TensorType, weight: TensorType) -> TensorType:
        """The blocks of output channels, and the pixels of a 3x3 convolution, which must be known."""
        rank_of(weight, 6)
        i, j, outer, inner, a, b = shape_of(weight)
        for size in (i, j):
            same(facts, size, Const(PATCH), "the transformed weights and Winograd's patch")
        kernel = TensorType((outer, inner, Const(KERNEL), Const(KERNEL), a, b), weight.dtype)
        found = Conv2dPackedOp(padding=self.padding).deduce(facts, x, kernel)
        if any(value_of(e) is None for e in shape_of(x)[2:4]):
            raise GraphError(f"{self.name}: rows and columns must be numbers, not those of {x}")
        return found

    def program(self, facts: SizeFacts, x: TensorType, weight: TensorType) -> Program:
        """Patches with room for the last tile (P), their transforms (V), products (M), and tiles (Y)."""
        images, _, *space, _ = shape_of(x)
        _, _, outer, inner, a, width = shape_of(weight)
        places = [_number(e) + 2 * p - KERNEL + 1 for e, p in zip(space, self.padding, strict=True)]
        tiles = [-(-places_ // TILE) for places_ in places]
        dtype = float_of(x, weight)
        b = Builder(self.name)
        X, U = b.input("X", shape_of(x), dtype), b.input("U", shape_of(weight), dtype)
        ends = [TILE * t + KERNEL - 1 - _number(e) - p for t, e, p in zip(tiles, space, self.padding, strict=True)]
        P = pad(b, X, PACKED_AXES, [(0, 0), (0, 0), *zip(self.padding, ends, strict=True), (0, 0)])

        def patch(n: Var, t: Var, i: Var, j: Var, c: Var, u: Var, k: Var) -> Expr:
            def row(x: int) -> Expr:
                return _patch_line(i, lambda y: wide(P[n, c, TILE * t + y, TILE * u + x, k]))

            return _patch_line(j, row)

        V = b.compute(
            "V", (images, tiles[0], PATCH, PATCH, inner, tiles[1], a), named(("n", "t", "i", "j", "c", "u", "k"), patch)
        )
        rc, ri = b.axis("cb", inner), b.axis("ci", a)

        def product(n: Var, i: Var, j: Var, t: Var, u: Var, o: Var, k: Var) -> Reduction:
            return total(V[n, t, i, j, rc, u, ri] * wide(U[i, j, o, rc, ri, k]), rc, ri)

        M = b.compute(
            "M", (images, PATCH, PATCH, *tiles, outer, width), named(("n", "i", "j", "t", "u", "o", "k"), product)
        )

        def tile(n: Var, o: Var, h: Var, w: Var, k: Var) -> Expr:
            def column(j: int) -> Expr:
                return _tile_line(h % TILE, lambda i: M[n, i, j, h // TILE, w // TILE, o, k])

            return fitted(_tile_line(w % TILE, column), dtype)

        return b.program(b.compute("Y", (images, outer, *places, width), named(PACKED_AXES, tile)))

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        x, u = args
        places = [e + 2 * p - KERNEL + 1 for e, p in zip(x.shape[2:4], self.padding, strict=True)]
        tiles = [-(-e // TILE) for e in places]
        ends = [TILE * t + KERNEL - 1 - e - p for t, e, p in zip(tiles, x.shape[2:4], self.padding, strict=True)]
        padded = np.pad(x, [(0, 0), (0, 0), *zip(self.padding, ends, strict=True), (0, 0)])
        patches = np.lib.stride_tricks.sliding_window_view(padded, (PATCH, PATCH), (2, 3))[:, :, ::TILE, ::TILE]
        products = np.einsum("iy,jx,nctukyx,ijocka->nijtuoa", _B, _B, patches, u, optimize=True)
        made: Array = np.einsum("ri,sj,nijtuoa->notrusa", _A, _A, products, optimize=True)
        n, o, t, _, s, _, k = made.shape
        return made.reshape(n, o, TILE * t, TILE * s, k)[:, :, : places[0], : places[1]]


def _number(e: Expr) -> int:
    known = value_of(e)
    assert known is not None  # checked when the call was written
    return known
