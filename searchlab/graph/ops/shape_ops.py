"""Operators that move elements without computing: reshape, permute, expand, slice, concat, split, pad and others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from searchlab.graph.annotations import Shape, TensorType, extents
from searchlab.graph.operator import Array, Dim, Dims, GraphOperator, Ints, Number, graph_operator
from searchlab.graph.ops.operand_rules import (
    axes_of,
    axis_of,
    broadcast_indices,
    dtype_of,
    loop_names,
    need,
    same,
    shape_of,
    within,
)
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.algebra import ceildiv, flat_index
from searchlab.ir.bounds import Facts
from searchlab.ir.compute import Builder, Tensor
from searchlab.ir.expr import ONE, Const, Expr, Var, all_of, const, index, select, value_of
from searchlab.ir.program import Program
from searchlab.workloads.building_blocks import named


@dataclass(frozen=True)
class MovementOp(GraphOperator):
    """Base of operators of one operand: every element of the result is one of the operand's."""

    def moved(self, facts: SizeFacts, shape: Shape) -> Shape:
        """The shape of the result."""
        raise NotImplementedError

    def source(self, X: Tensor, out: Shape, at: tuple[Expr, ...]) -> Expr:
        """The element of the operand that the element `at` of the result is."""
        raise NotImplementedError

    def deduce(self, facts: SizeFacts, x: TensorType) -> TensorType:
        """The new shape, and the operand's dtype."""
        return TensorType(self.moved(facts, shape_of(x)), dtype_of(x))

    def program(self, facts: SizeFacts, x: TensorType) -> Program:
        """One stage that copies."""
        b = Builder(self.name)
        X = b.input("X", shape_of(x), dtype_of(x))
        out = self.moved(facts, shape_of(x))
        names = loop_names(len(out))
        loops = Facts({Var(n): e for n, e in zip(names, out, strict=True)})
        return b.program(b.compute("Y", out, named(names, lambda *at: loops.simplify(self.source(X, out, at)))))


def elements(shape: Shape) -> Expr:
    """The number of elements."""
    count: Expr = ONE
    for e in shape:
        count = count * e
    return count


def unflattened(flat: Expr, shape: Shape) -> tuple[Expr, ...]:
    """The indices of the element at a row-major position."""
    found: list[Expr] = []
    below: Expr = ONE
    for axis in reversed(range(len(shape))):
        at = flat // below
        found.append(at % shape[axis] if axis else at)
        below = below * shape[axis]
    return tuple(reversed(found))


@graph_operator("reshape")
@dataclass(frozen=True)
class ReshapeOp(MovementOp):
    """The same elements in the same order with another shape, in which one extent may be -1: whatever is left."""

    is_view: ClassVar[bool] = True
    shape: Dims

    def moved(self, facts: SizeFacts, shape: Shape) -> Shape:
        """The new shape, which has as many elements."""
        open_axes = [a for a, e in enumerate(self.shape) if e == Const(-1)]
        need(len(open_axes) <= 1, f"shape ({', '.join(map(str, self.shape))}) leaves more than one extent open")
        count = elements(shape)
        if open_axes:
            rest = elements(tuple(e for e in self.shape if e != Const(-1)))
            need(not facts.proves((count % rest) > 0), f"{count} elements cannot be divided by {rest}")
            made = tuple(facts.simplify(count // rest) if e == Const(-1) else e for e in self.shape)
            same(facts, elements(made), count, "the number of elements changes")
            return extents(made)
        same(facts, count, elements(self.shape), "the number of elements changes")
        return extents(self.shape)

    def source(self, X: Tensor, out: Shape, at: tuple[Expr, ...]) -> Expr:
        """The element at the same position."""
        flat = _flat(at, out)
        return X[unflattened(flat, X.shape)]

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        return np.reshape(args[0], numbers_of(self.shape))


def _flat(at: tuple[Expr, ...], shape: Shape) -> Expr:
    return at[0] if len(shape) == 1 else flat_index(at, shape)


def numbers_of(dims: Dims) -> tuple[int, ...]:
    """Index expressions that are constants, as integers."""
    return tuple(number_of(e) for e in dims)


def number_of(e: Expr) -> int:
    """An index expression that is a constant, as an integer."""
    found = value_of(e)
    assert found is not None, f"{e} has no value yet"
    return found


@graph_operator("permute")
@dataclass(frozen=True)
class PermuteOp(MovementOp):
    """Axis `axes[a]` of the operand becomes axis a; None reverses all."""

    axes: Ints | None = None

    def _order(self, rank: int) -> tuple[int, ...]:
        if self.axes is None:
            return tuple(reversed(range(rank)))
        order = tuple(axis_of(a, rank) for a in self.axes)
        need(sorted(order) == list(range(rank)), f"axes {self.axes} is not a permutation of {rank} axes")
        return order

    def moved(self, facts: SizeFacts, shape: Shape) -> Shape:
        """The extents in the new order."""
        return tuple(shape[a] for a in self._order(len(shape)))

    def coarse(self, *args: TensorType) -> TensorType:
        """The rank and dtype of the operand."""
        return TensorType(dtype=args[0].dtype, rank=args[0].rank)

    def source(self, X: Tensor, out: Shape, at: tuple[Expr, ...]) -> Expr:
        """The element with its indices in the old order."""
        order = self._order(len(out))
        return X[tuple(at[order.index(a)] for a in range(len(out)))]

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        return np.transpose(args[0], self._order(args[0].ndim))


@graph_operator("expand")
@dataclass(frozen=True)
class ExpandOp(MovementOp):
    """The operand broadcast to a shape; -1 keeps an extent."""

    shape: Dims

    def moved(self, facts: SizeFacts, shape: Shape) -> Shape:
        """The new shape."""
        ahead = len(self.shape) - len(shape)
        need(ahead >= 0, f"a tensor of rank {len(shape)} cannot be broadcast to rank {len(self.shape)}")
        made = list(self.shape)
        for axis, e in enumerate(shape, ahead):
            made[axis] = e if made[axis] == Const(-1) else made[axis]
            if e != ONE:
                same(facts, e, made[axis], f"an extent cannot be broadcast along axis {axis}")
        return extents(made)

    def coarse(self, *args: TensorType) -> TensorType:
        """The rank, which is given."""
        return TensorType(dtype=args[0].dtype, rank=len(self.shape))

    def source(self, X: Tensor, out: Shape, at: tuple[Expr, ...]) -> Expr:
        """The element that is repeated."""
        return X[broadcast_indices(X.shape, out, at)]

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        x = args[0]
        ahead = len(self.shape) - x.ndim
        shape = [x.shape[a - ahead] if n == -1 else n for a, n in enumerate(numbers_of(self.shape))]
        return np.broadcast_to(x, shape)


@graph_operator("squeeze")
@dataclass(frozen=True)
class SqueezeOp(MovementOp):
    """Drops axes whose extent is 1."""

    is_view: ClassVar[bool] = True
    axes: Ints

    def moved(self, facts: SizeFacts, shape: Shape) -> Shape:
        """The shape without the axes."""
        gone = axes_of(self.axes, len(shape))
        for a in gone:
            need(shape[a] == ONE, f"axis {a} has the extent {shape[a]}, not 1")
        return tuple(e for a, e in enumerate(shape) if a not in gone)

    def source(self, X: Tensor, out: Shape, at: tuple[Expr, ...]) -> Expr:
        """The element with zeros in the axes that are gone."""
        gone, left = axes_of(self.axes, len(X.shape)), iter(at)
        return X[tuple(index(0) if a in gone else next(left) for a in range(len(X.shape)))]

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        return np.squeeze(args[0], axes_of(self.axes, args[0].ndim))


@graph_operator("unsqueeze")
@dataclass(frozen=True)
class UnsqueezeOp(MovementOp):
    """New axes of extent 1, which have the positions `axes` in the result."""

    is_view: ClassVar[bool] = True
    axes: Ints

    def moved(self, facts: SizeFacts, shape: Shape) -> Shape:
        """The shape with extents of 1 put in."""
        rank = len(shape) + len(self.axes)
        new, left = axes_of(self.axes, rank), iter(shape)
        return tuple(ONE if a in new else next(left) for a in range(rank))

    def source(self, X: Tensor, out: Shape, at: tuple[Expr, ...]) -> Expr:
        """The element without the indices of new axes."""
        new = axes_of(self.axes, len(out))
        return X[tuple(i for a, i in enumerate(at) if a not in new)]

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        return np.expand_dims(args[0], axes_of(self.axes, args[0].ndim + len(self.axes)))


@graph_operator("slice")
@dataclass(frozen=True)
class SliceOp(MovementOp):
    """Every `step`-th element of an axis from `start`, before `stop` (None: to the end); negative ones count back."""

    axis: int
    start: Dim = Const(0)
    stop: Dim | None = None
    step: int = 1

    def _bounds(self, extent: Expr) -> tuple[Expr, Expr]:
        stop = extent if self.stop is None else self.stop
        start = self.start
        known = value_of(start), value_of(stop)
        return (
            start + extent if known[0] is not None and known[0] < 0 else start,
            stop + extent if known[1] is not None and known[1] < 0 else stop,
        )

    def moved(self, facts: SizeFacts, shape: Shape) -> Shape:
        """The shape with fewer elements along the axis."""
        axis = axis_of(self.axis, len(shape))
        need(self.step >= 1, f"step = {self.step} is not positive")
        start, stop = self._bounds(shape[axis])
        within(facts, start, stop, shape[axis], f"elements {start} to {stop} of axis {axis}")
        count = facts.simplify(ceildiv(stop - start, self.step))
        need(not facts.proves(count <= 0), f"nothing is left of axis {axis} from {start} to {stop}")
        return (*shape[:axis], count, *shape[axis + 1 :])

    def coarse(self, *args: TensorType) -> TensorType:
        """The rank and dtype of the operand."""
        return TensorType(dtype=args[0].dtype, rank=args[0].rank)

    def source(self, X: Tensor, out: Shape, at: tuple[Expr, ...]) -> Expr:
        """The element further along the axis."""
        axis = axis_of(self.axis, len(out))
        start, _ = self._bounds(X.shape[axis])
        return X[(*at[:axis], at[axis] * self.step + start, *at[axis + 1 :])]

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        (x,) = args
        axis = axis_of(self.axis, x.ndim)
        start, stop = self._bounds(index(x.shape[axis]))
        where = [slice(None)] * x.ndim
        where[axis] = slice(number_of(start), number_of(stop), self.step)
        found: Array = x[tuple(where)]
        return found


@graph_operator("select")
@dataclass(frozen=True)
class SelectOp(MovementOp):
    """The element at `index` along an axis, which is dropped; a negative one counts from the end."""

    axis: int
    index: Dim

    def _place(self, extent: Expr) -> Expr:
        known = value_of(self.index)
        return self.index + extent if known is not None and known < 0 else self.index

    def moved(self, facts: SizeFacts, shape: Shape) -> Shape:
        """The shape without the axis."""
        axis = axis_of(self.axis, len(shape))
        place = self._place(shape[axis])
        within(facts, place, place + 1, shape[axis], f"index {self.index} of axis {axis}")
        return (*shape[:axis], *shape[axis + 1 :])

    def coarse(self, *args: TensorType) -> TensorType:
        """One axis less."""
        rank = args[0].rank
        return TensorType(dtype=args[0].dtype, rank=None if rank is None else rank - 1)

    def source(self, X: Tensor, out: Shape, at: tuple[Expr, ...]) -> Expr:
        """The element with the index put in."""
        axis = axis_of(self.axis, len(X.shape))
        return X[(*at[:axis], self._place(X.shape[axis]), *at[axis:])]

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        return np.asarray(np.take(args[0], number_of(self._place(index(args[0].shape[self.axis]))), self.axis))


@graph_operator("pad")
@dataclass(frozen=True)
class PadOp(MovementOp):
    """`before` and `after` elements of `value` around the operand, one number of each per axis."""

    before: Ints
    after: Ints
    value: Number = 0

    def moved(self, facts: SizeFacts, shape: Shape) -> Shape:
        """The larger shape."""
        given = len(self.before), len(self.after)
        need(given == (len(shape),) * 2, f"{given[0]} and {given[1]} numbers for {len(shape)} axes")
        need(min((*self.before, *self.after), default=0) >= 0, "padding is at least 0; slice cuts off")
        return tuple(e + p + q for e, p, q in zip(shape, self.before, self.after, strict=True))

    def coarse(self, *args: TensorType) -> TensorType:
        """The rank and dtype of the operand."""
        return TensorType(dtype=args[0].dtype, rank=len(self.before))

    def source(self, X: Tensor, out: Shape, at: tuple[Expr, ...]) -> Expr:
        """The element if there is one, else the value."""
        places = [i - p for i, p in zip(at, self.before, strict=True)]
        inside = [
            c
            for place, e, p, q in zip(places, X.shape, self.before, self.after, strict=True)
            for c in ([place >= 0] if p else []) + ([place < e] if q else [])
        ]
        return select(all_of(inside), X[tuple(places)], const(self._fill(), X.dtype))

    def _fill(self) -> float | int:
        need(not isinstance(self.value, Expr), "its value is an index expression, not a number")
        return self.value  # type: ignore[return-value]

    def reference(self, *args: Array) -> Array:
        """The same on arrays."""
        around = list(zip(self.before, self.after, strict=True))
        return np.pad(args[0], around, constant_values=self._fill())
