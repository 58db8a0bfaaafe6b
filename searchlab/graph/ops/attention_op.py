"""Attention as one operator, kept whole so that what runs it can choose how."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from searchlab.dtype import BOOL, DTYPES
from searchlab.graph.annotations import Shape, TensorType
from searchlab.graph.operator import Array, GraphOperator, graph_operator
from searchlab.graph.ops.operand_rules import broadcast, broadcast_indices, float_of, need, rounded, same, shape_of
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.compute import Builder, Reduction, Tensor, total
from searchlab.ir.expr import Expr, Var, call, cast, const, select, value_of
from searchlab.ir.program import Program
from searchlab.workloads.building_blocks import named, wide
from searchlab.workloads.normalize import softmax_stages


@graph_operator("attention")
@dataclass(frozen=True)
class AttentionOp(GraphOperator):
    """softmax(q k^T * scale + mask) v over the last two axes; all axes before them are the same for q, k and v.

    A mask is broadcast to (..., queries, keys): numbers are added, truth values say which keys take part.  With
    `causal`, query i sees keys up to i.  With `grouped`, the axis before the last two, the heads, may be shorter for k
    and v: several heads of queries share one.  `scale` is 1 / sqrt(d) by default, d being the last extent of q.
    """

    scale: float | None = None
    causal: bool = False
    grouped: bool = False

    def deduce(
        self, facts: SizeFacts, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None
    ) -> TensorType:
        """The queries with the width of the values."""
        dtype = float_of(q, k, v)
        a, b, c = shape_of(q), shape_of(k), shape_of(v)
        need(2 <= len(a) == len(b) == len(c), f"operands {q}, {k} and {v} must have one rank, at least 2")
        for axis in range(len(a) - 2):
            shared = self._sharing(a, b) if axis == len(a) - 3 else 1
            same(facts, a[axis], b[axis] * shared, f"axis {axis} of queries and keys")
            same(facts, b[axis], c[axis], f"axis {axis} of keys and values")
        same(facts, a[-1], b[-1], "the widths of queries and keys")
        same(facts, b[-2], c[-2], "the numbers of keys and values")
        if mask is not None:
            need(mask.dtype in (dtype, BOOL), f"a mask of {mask.dtype}; it takes {dtype} or bool")
            scores = (*a[:-1], b[-2])
            found = broadcast(facts, [scores, shape_of(mask)])
            need(len(found) == len(scores), f"the mask {mask} has more axes than the scores")
            for e, f in zip(found, scores, strict=True):
                same(facts, e, f, f"the mask {mask} is larger than the scores")
        return TensorType((*a[:-1], c[-1]), dtype)

    def coarse(self, *args: TensorType) -> TensorType:
        """The rank and dtype of the queries."""
        return TensorType(dtype=args[0].dtype, rank=args[0].rank)

    def program(
        self, facts: SizeFacts, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None
    ) -> Program:
        """Scores, the stages of softmax, and sums over the keys; everything between is kept in float32."""
        dtype = float_of(q, k, v)
        a, b, c = shape_of(q), shape_of(k), shape_of(v)
        made = Builder(self.name)
        Q, K, V = (made.input(name, s, dtype) for name, s in zip("QKV", (a, b, c), strict=True))
        mask_input = None if mask is None else made.input("mask", shape_of(mask), str(mask.dtype))
        lead = [f"b{n}" for n in range(len(a) - 2)]
        d, t, shared = made.axis("d", a[-1]), made.axis("t", b[-2]), self._sharing(a, b)
        scores, pairs = (*a[:-1], b[-2]), [*lead, "i", "j"]

        def score(*at: Var) -> Reduction:
            return total(wide(Q[(*at[:-1], d)]) * wide(K[(*_batch(at, shared), at[-1], d)]), d)

        def value(*at: Var) -> Reduction:
            return total(P[(*at[:-1], t)] * wide(V[(*_batch(at, shared), t, at[-1])]), t)

        factor = self._factor(a[-1], DTYPES[dtype].arithmetic)
        T = made.compute("T", scores, named(pairs, score))
        L = made.compute("L", scores, named(pairs, lambda *at: self._masked(T[at] * factor, mask_input, scores, at)))
        P = softmax_stages(made, L, pairs, len(scores) - 1, T.dtype)
        O = made.compute("O", (*a[:-1], c[-1]), named([*lead, "i", "e"], value))
        if T.dtype == dtype:
            return made.program(O)
        return made.program(made.compute("R", O.shape, named([*lead, "i", "e"], lambda *at: rounded(O[at], dtype))))

    def _sharing(self, a: Shape, b: Shape) -> int:
        """How many heads of queries share a head of keys."""
        if not self.grouped:
            return 1
        need(len(a) >= 3, "grouped heads need an axis of heads")
        queries, keys = value_of(a[-3]), value_of(b[-3])
        known = queries is not None and keys is not None and queries % keys == 0
        need(known, f"{a[-3]} heads of queries cannot be divided among {b[-3]} heads of keys")
        return (queries or 1) // (keys or 1)

    def _factor(self, width: Expr, dtype: str) -> Expr:
        if self.scale is not None:
            return const(self.scale, dtype)
        known = value_of(width)
        return call("rsqrt", cast(width, dtype)) if known is None else const(1 / math.sqrt(known), dtype)

    def _masked(self, score: Expr, mask: Tensor | None, scores: Shape, at: tuple[Var, ...]) -> Expr:
        never = const(-math.inf, score.dtype)
        if mask is not None:
            value = mask[broadcast_indices(mask.shape, scores, at)]
            score = select(value, score, never) if mask.dtype == BOOL else score + wide(value)
        return select(at[-1] <= at[-2], score, never) if self.causal else score

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        q, k, v, *mask = args
        if self.grouped:
            k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) for x in (k, v))
        scores = q @ np.swapaxes(k, -1, -2) * (1 / math.sqrt(q.shape[-1]) if self.scale is None else self.scale)
        if mask:
            scores = np.where(mask[0], scores, -np.inf) if mask[0].dtype == bool else scores + mask[0]
        if self.causal:
            scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
        e = np.exp(scores - scores.max(axis=-1, keepdims=True))
        found: Array = (e / e.sum(axis=-1, keepdims=True)) @ v
        return found


def _batch(at: tuple[Var, ...], shared: int) -> tuple[Expr, ...]:
    """Where keys and values are found for the batch and head of a score or output."""
    return at[:-2] if shared == 1 else (*at[:-3], at[-3] // shared)
