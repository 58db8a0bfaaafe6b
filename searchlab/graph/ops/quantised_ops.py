"""Products with weights of 4 bits: `linear_q4`, whose weights are decoded where they are multiplied.

Weights (inputs, outputs) are quantised in groups of inputs: a weight is q * scale, plus an offset if there is one, with
q from -8 to 7 and a scale for each group and output. Two weights are packed into a byte: the input i of the first half
of a group and the input i of its second half. So a vector of bytes, read along the outputs, is two vectors of weights,
and no lane has to change its place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from searchlab.graph.annotations import TensorType
from searchlab.graph.operator import Array, GraphOperator, graph_operator
from searchlab.graph.ops.operand_rules import float_of, loop_names, need, rank_of, same, shape_of
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.compute import Builder, Reduction, Tensor, total
from searchlab.ir.expr import ONE, Expr, Var, call, cast, select
from searchlab.ir.program import Program
from searchlab.workloads.building_blocks import named, wide

LOW, HIGH = -8, 7  # what 4 bits hold


def packed(q: Array, group: int) -> Array:
    """Integers from -8 to 7, (inputs, outputs), two to a byte: (inputs / 2, outputs)."""
    inputs, outputs = q.shape
    first, second = np.moveaxis(q.reshape(inputs // group, 2, group // 2, outputs), 1, 0)
    # the second half is the upper nibble in two's complement; the first is counted from -8, so that it has no sign
    made: Array = ((second.astype(np.uint8) << 4) | (first - LOW).astype(np.uint8)).reshape(inputs // 2, outputs)
    return made


def unpacked(data: Array, group: int) -> Array:
    """The integers that `packed` has packed."""
    rows, outputs = data.shape
    halves = data.reshape(rows * 2 // group, group // 2, outputs)
    second = halves.view(np.int8) >> 4
    first = (halves & 15).astype(np.int8) + LOW
    return np.stack([first, second], axis=1).reshape(rows * 2, outputs)


def quantised(weights: Array, group: int, offsets: bool = False) -> tuple[Array, Array, Array | None]:
    """Weights (inputs, outputs) as packed integers and scales, and offsets if these are wanted.

    Without offsets the largest weight of a group, by magnitude, is -8 times its scale, which uses all 16 values; with
    offsets the smallest and the largest are the ends.
    """
    inputs, outputs = weights.shape
    parts = np.asarray(weights, np.float64).reshape(inputs // group, group, outputs)
    if offsets:
        low, high = parts.min(axis=1), parts.max(axis=1)
        scale = (high - low) / (HIGH - LOW)
        offset = low - scale * LOW
    else:
        place = np.abs(parts).argmax(axis=1)[:, None]
        scale = np.take_along_axis(parts, place, axis=1)[:, 0] / LOW
        offset = np.zeros_like(scale)
    scale, offset = scale.astype(np.float32), offset.astype(np.float32)
    steps = np.where(scale == 0, 1, scale).astype(np.float64)[:, None]
    q = np.clip(np.round((parts - offset[:, None]) / steps), LOW, HIGH).astype(np.int8)
    return packed(q.reshape(inputs, outputs), group), scale, offset if offsets else None


@graph_operator("linear_q4")
@dataclass(frozen=True)
class LinearQ4Op(GraphOperator):
    """x times weights of 4 bits: bytes (inputs / 2, outputs), scales and offsets (inputs / group, outputs)."""

    group: int = 32

    def deduce(
        self, facts: SizeFacts, x: TensorType, weight: TensorType, scale: TensorType, offset: TensorType | None = None
    ) -> TensorType:
        """The shape of x with the number of outputs as its last extent."""
        tables = [scale] if offset is None else [scale, offset]
        need(weight.dtype == "uint8", f"weights of {weight.dtype}; two are packed into each element of uint8")
        need(self.group >= 2 and self.group % 2 == 0, f"group = {self.group} is not an even number")
        need(all(t.dtype == "float32" for t in tables), "scales and offsets are of float32")
        for operand in (weight, *tables):
            rank_of(operand, 2)
        a, (rows, outputs) = shape_of(x), shape_of(weight)
        need(len(a) >= 1, "its first operand has no axis")
        same(facts, a[-1], rows * 2, "the last axis of the operand and twice the rows of the weights")
        for table in tables:
            same(facts, shape_of(table)[0] * self.group, a[-1], "the groups and the inputs")
            same(facts, shape_of(table)[1], outputs, "outputs of the weights and of a table for groups")
        return TensorType((*a[:-1], outputs), float_of(x))

    def coarse(self, *args: TensorType) -> TensorType:
        """The rank of x."""
        return TensorType(dtype=args[0].dtype, rank=args[0].rank)

    def program(
        self, facts: SizeFacts, x: TensorType, weight: TensorType, scale: TensorType, offset: TensorType | None = None
    ) -> Program:
        """Sums that decode bytes on the way for one row; else a stage that decodes, whose results all rows share."""
        b = Builder(self.name)
        dtype = float_of(x)
        X = b.input("X", shape_of(x), dtype)
        Q, S = b.input("Q", shape_of(weight), "uint8"), b.input("S", shape_of(scale), "float32")
        tables = (S,) if offset is None else (S, b.input("O", shape_of(offset), "float32"))
        make = self._summed if all(e == ONE for e in shape_of(x)[:-1]) else self._decoded
        Y = make(b, X, Q, tables)
        if dtype == "float32":
            return b.program(Y)
        return b.program(b.compute("R", Y.shape, named(loop_names(len(Y.shape)), lambda *at: cast(Y[at], dtype))))

    def _summed(self, b: Builder, X: Tensor, Q: Tensor, tables: tuple[Tensor, ...]) -> Tensor:
        """A sum over groups and bytes of a group, each of which is two products."""
        half = self.group // 2
        g, k = b.axis("g", tables[0].shape[0]), b.axis("k", half)

        def body(*at: Var) -> Reduction:
            *row, n = at
            first, second = wide(X[(*row, g * self.group + k)]), wide(X[(*row, g * self.group + half + k)])
            low, high = _nibbles(Q[g * half + k, n])
            value = tables[0][g, n] * (first * low + second * high)
            return total(value if len(tables) == 1 else value + tables[1][g, n] * (first + second), g, k)

        shape = (*X.shape[:-1], Q.shape[1])
        return b.compute("Y", shape, named([*loop_names(len(shape) - 1), "n"], body))

    def _decoded(self, b: Builder, X: Tensor, Q: Tensor, tables: tuple[Tensor, ...]) -> Tensor:
        """The weights as float32, and a product with them."""
        half, r = self.group // 2, b.axis("k", X.shape[-1])

        def decode(c: Var, n: Var) -> Expr:
            low, high = _nibbles(Q[c // self.group * half + c % half, n])
            value = select(c % self.group < half, low, high) * tables[0][c // self.group, n]
            return value if len(tables) == 1 else value + tables[1][c // self.group, n]

        W = b.compute("W", (X.shape[-1], Q.shape[1]), decode)
        shape = (*X.shape[:-1], Q.shape[1])
        names = [*loop_names(len(shape) - 1), "n"]
        return b.compute("Y", shape, named(names, lambda *at: total(wide(X[(*at[:-1], r)]) * W[r, at[-1]], r)))

    def reference(self, *args: Array) -> Array:
        """The weights decoded, and a product of matrices."""
        x, data, scale, *offset = args
        q = unpacked(data, self.group).reshape(-1, self.group, data.shape[1]).astype(np.float64)
        weights = q * scale[:, None] + (offset[0][:, None] if offset else 0)
        found: Array = x @ weights.reshape(-1, data.shape[1])
        return found


def _nibbles(byte: Expr) -> tuple[Expr, Expr]:
    """The two numbers in a byte, in float arithmetic, which is exact here: the IR has no shifts."""
    value = cast(cast(byte, "int8"), "float32")
    high = call("floor", value * (1 / 16))
    return (value + LOW) - high * 16.0, high
