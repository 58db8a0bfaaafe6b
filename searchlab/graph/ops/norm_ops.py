"""Normalisations: softmax, layer_norm, rms_norm, group_norm, batch_norm with fixed statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from searchlab.dtype import DTYPES
from searchlab.graph.annotations import Shape, TensorType
from searchlab.graph.operator import Array, GraphOperator, graph_operator
from searchlab.graph.ops.operand_rules import axis_of, float_of, loop_names, need, rank_of, rounded, same, shape_of
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.compute import Builder, total
from searchlab.ir.expr import Expr, Var, call, cast, value_of
from searchlab.ir.program import Program
from searchlab.workloads.building_blocks import named, wide
from searchlab.workloads.normalize import layer_norm_stages, softmax_stages


@dataclass(frozen=True)
class NormalisationOp(GraphOperator):
    """Base of operators whose result has the shape and the dtype of the first operand."""

    def coarse(self, *args: TensorType) -> TensorType:
        """The rank and dtype of the first operand."""
        return TensorType(dtype=args[0].dtype, rank=args[0].rank)


@graph_operator("softmax")
@dataclass(frozen=True)
class SoftmaxOp(NormalisationOp):
    """exp(x) divided by its sum along an axis."""

    axis: int = -1

    def deduce(self, facts: SizeFacts, x: TensorType) -> TensorType:
        """The shape of the operand."""
        axis_of(self.axis, len(shape_of(x)))
        return TensorType(shape_of(x), float_of(x))

    def program(self, facts: SizeFacts, x: TensorType) -> Program:
        """The stages of the workload `softmax`, for any rank and axis."""
        b = Builder(self.name)
        shape, dtype = shape_of(x), float_of(x)
        X = b.input("X", shape, dtype)
        return b.program(softmax_stages(b, X, loop_names(len(shape)), axis_of(self.axis, len(shape)), dtype))

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        (x,) = args
        e = np.exp(x - x.max(axis=self.axis, keepdims=True))
        found: Array = e / e.sum(axis=self.axis, keepdims=True)
        return found


def _same_tail(facts: SizeFacts, shape: Shape, weight: TensorType) -> int:
    """The number of leading axes of a shape that weights do not have; the others must agree."""
    tail = shape_of(weight)
    lead = len(shape) - len(tail)
    need(1 <= len(tail) <= len(shape), f"weights {weight} for an operand of rank {len(shape)}")
    for e, f in zip(shape[lead:], tail, strict=True):
        same(facts, e, f, "the last axes of the operand and the weights")
    return lead


@graph_operator("layer_norm")
@dataclass(frozen=True)
class LayerNormOp(NormalisationOp):
    """Shifted to mean 0 and scaled to variance 1 over the last axes, as many as gamma has, then gamma and beta."""

    eps: float = 1e-5

    def deduce(self, facts: SizeFacts, x: TensorType, gamma: TensorType, beta: TensorType | None = None) -> TensorType:
        """The shape of the operand."""
        weights = [gamma] if beta is None else [gamma, beta]
        for weight in weights:
            _same_tail(facts, shape_of(x), weight)
        need(len({w.rank for w in weights}) == 1, f"gamma is {gamma}, beta is {beta}")
        return TensorType(shape_of(x), float_of(x, *weights))

    def program(self, facts: SizeFacts, x: TensorType, gamma: TensorType, beta: TensorType | None = None) -> Program:
        """The stages of the workload `layer_norm`, for any rank."""
        b = Builder(self.name)
        shape, dtype = shape_of(x), float_of(x)
        X = b.input("X", shape, dtype)
        given = {"gamma": gamma} if beta is None else {"gamma": gamma, "beta": beta}
        weights = tuple(b.input(name, shape_of(w), dtype) for name, w in given.items())
        lead = len(shape) - len(shape_of(gamma))
        return b.program(layer_norm_stages(b, X, loop_names(len(shape)), lead, weights, self.eps, dtype))

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        x, gamma, *beta = args
        axes = tuple(range(x.ndim - gamma.ndim, x.ndim))
        mean, variance = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
        found: Array = (x - mean) / np.sqrt(variance + self.eps) * gamma
        return found + beta[0] if beta else found


@graph_operator("rms_norm")
@dataclass(frozen=True)
class RmsNormOp(NormalisationOp):
    """Divided by the root of the mean square over the last axis, then gamma."""

    eps: float = 1e-6

    def deduce(self, facts: SizeFacts, x: TensorType, gamma: TensorType) -> TensorType:
        """The shape of the operand."""
        rank_of(gamma, 1)
        _same_tail(facts, shape_of(x), gamma)
        return TensorType(shape_of(x), float_of(x, gamma))

    def program(self, facts: SizeFacts, x: TensorType, gamma: TensorType) -> Program:
        """A sum of squares per row, its root, and a product per element."""
        b = Builder(self.name)
        shape, dtype = shape_of(x), float_of(x)
        X, G = b.input("X", shape, dtype), b.input("gamma", shape_of(gamma), dtype)
        r, count = b.axis("r", shape[-1]), cast(shape[-1], DTYPES[dtype].arithmetic)
        names = loop_names(len(shape))
        rows, lead = names[:-1], shape[:-1]
        S = b.compute("S", lead, named(rows, lambda *at: total(wide(X[(*at, r)]) * wide(X[(*at, r)]), r)))
        D = b.compute("D", lead, named(rows, lambda *at: call("rsqrt", S[at] / count + self.eps)))
        scaled = named(names, lambda *at: rounded(wide(X[at]) * D[at[:-1]] * wide(G[at[-1]]), dtype))
        return b.program(b.compute("Y", shape, scaled))

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        x, gamma = args
        found: Array = x / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + self.eps) * gamma
        return found


def _channels(facts: SizeFacts, x: TensorType, weights: Sequence[TensorType]) -> TensorType:
    """The annotation of a result that has weights for every channel, the second axis."""
    shape = shape_of(x)
    need(len(shape) >= 2, f"an operand {x}; it needs at least 2 axes, of which the second has the channels")
    for weight in weights:
        rank_of(weight, 1)
        same(facts, shape[1], shape_of(weight)[0], "the channels of the operand and the weights")
    return TensorType(shape, float_of(x, *weights))


@graph_operator("batch_norm")
@dataclass(frozen=True)
class BatchNormOp(NormalisationOp):
    """(x - mean) / sqrt(variance + eps) * gamma + beta per channel, the second axis, with statistics that are given."""

    eps: float = 1e-5

    def deduce(
        self,
        facts: SizeFacts,
        x: TensorType,
        gamma: TensorType,
        beta: TensorType,
        mean: TensorType,
        variance: TensorType,
    ) -> TensorType:
        """The shape of the operand."""
        return _channels(facts, x, (gamma, beta, mean, variance))

    def program(self, facts: SizeFacts, x: TensorType, *weights: TensorType) -> Program:
        """One stage; the root is the same for a whole channel, so lowering computes it once."""
        b = Builder(self.name)
        shape, dtype = shape_of(x), float_of(x)
        X = b.input("X", shape, dtype)
        given = zip(("gamma", "beta", "mean", "variance"), weights, strict=True)
        gamma, beta, mean, variance = (b.input(name, shape_of(w), dtype) for name, w in given)

        def scaled(*at: Var) -> Expr:
            c = at[1]
            deviation = call("rsqrt", wide(variance[c]) + self.eps)
            return rounded((wide(X[at]) - wide(mean[c])) * deviation * wide(gamma[c]) + wide(beta[c]), dtype)

        return b.program(b.compute("Y", shape, named(loop_names(len(shape)), scaled)))

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        x, *weights = args
        gamma, beta, mean, variance = (w.reshape(-1, *[1] * (x.ndim - 2)) for w in weights)
        found: Array = (x - mean) / np.sqrt(variance + self.eps) * gamma + beta
        return found


@graph_operator("group_norm")
@dataclass(frozen=True)
class GroupNormOp(NormalisationOp):
    """Normalised over groups of channels, the second axis, and all axes after it; then gamma and beta per channel."""

    groups: int
    eps: float = 1e-5

    def deduce(self, facts: SizeFacts, x: TensorType, gamma: TensorType, beta: TensorType) -> TensorType:
        """The shape of the operand."""
        found = _channels(facts, x, (gamma, beta))
        channels = value_of(shape_of(x)[1])
        need(channels is not None and self.groups >= 1, f"{shape_of(x)[1]} channels in {self.groups} groups")
        need(channels is None or channels % self.groups == 0, f"{self.groups} groups do not divide {channels} channels")
        return found

    def program(self, facts: SizeFacts, x: TensorType, gamma: TensorType, beta: TensorType) -> Program:
        """Sums per group, then a product per element."""
        b = Builder(self.name)
        shape, dtype = shape_of(x), float_of(x)
        X, (G, B) = b.input("X", shape, dtype), (b.input(n, (shape[1],), dtype) for n in ("gamma", "beta"))
        width = (value_of(shape[1]) or 1) // self.groups
        axes = [b.axis("rc", width), *(b.axis(f"r{n}", e) for n, e in enumerate(shape[2:]))]
        count: Expr = cast(width, DTYPES[dtype].arithmetic)
        for e in shape[2:]:
            count = count * cast(e, DTYPES[dtype].arithmetic)

        def value(n: Var, g: Var) -> Expr:
            return wide(X[(n, g * width + axes[0], *axes[1:])])

        lead = (shape[0], self.groups)
        S = b.compute("S", lead, lambda n, g: total(value(n, g), *axes))
        M = b.compute("M", lead, lambda n, g: S[n, g] / count)
        V = b.compute("V", lead, lambda n, g: total((value(n, g) - M[n, g]) * (value(n, g) - M[n, g]), *axes))
        D = b.compute("D", lead, lambda n, g: call("rsqrt", V[n, g] / count + self.eps))

        def scaled(*at: Var) -> Expr:
            n, c, group = at[0], at[1], at[1] // width
            return rounded((wide(X[at]) - M[n, group]) * D[n, group] * wide(G[c]) + wide(B[c]), dtype)

        return b.program(b.compute("Y", shape, named(loop_names(len(shape)), scaled)))

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        x, *weights = args
        parts = x.reshape(x.shape[0], self.groups, -1)
        mean, variance = parts.mean(axis=2, keepdims=True), parts.var(axis=2, keepdims=True)
        scaled = ((parts - mean) / np.sqrt(variance + self.eps)).reshape(x.shape)
        gamma, beta = (w.reshape(-1, *[1] * (x.ndim - 2)) for w in weights)
        found: Array = scaled * gamma + beta
        return found
