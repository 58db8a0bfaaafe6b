"""Operators of ATen that move elements. torch has resolved -1 and negative positions in the shapes of its results."""

from __future__ import annotations

from typing import Any

from searchlab.graph.building import GraphValue
from searchlab.graph.torch_import.conversion import AtenStep, Tensors, converts, need
from searchlab.ir.algebra import ceildiv
from searchlab.ir.expr import Expr, index, value_of


@converts(
    "aten.view.default",
    "aten.reshape.default",
    "aten._unsafe_view.default",
    "aten.flatten.using_ints",
    "aten.unflatten.int",
    "aten.view_as.default",
)
def reshape(step: AtenStep, x: GraphValue, *_: Any) -> GraphValue:
    """The shape that torch has found."""
    return x if x.shape == step.shape else step.b.reshape(x, shape=step.shape)


@converts("aten.permute.default")
def permute(step: AtenStep, x: GraphValue, axes: list[int]) -> GraphValue:
    """Axes in another order."""
    return step.b.permute(x, axes=axes)


@converts("aten.transpose.int")
def transpose(step: AtenStep, x: GraphValue, a: int, b: int) -> GraphValue:
    """Two axes exchanged."""
    rank = len(x.shape)
    axes = list(range(rank))
    axes[a % rank], axes[b % rank] = axes[b % rank], axes[a % rank]
    return step.b.permute(x, axes=axes)


@converts("aten.t.default")
def t(step: AtenStep, x: GraphValue) -> GraphValue:
    """A matrix transposed."""
    return step.b.permute(x) if len(x.shape) == 2 else x


@converts("aten.expand.default", "aten.expand_as.default", "aten.broadcast_to.default")
def expand(step: AtenStep, x: GraphValue, *_: Any, **__: Any) -> GraphValue:
    """The shape that torch has found."""
    return x if x.shape == step.shape else step.b.expand(x, shape=step.shape)


@converts("aten.unsqueeze.default")
def unsqueeze(step: AtenStep, x: GraphValue, axis: int) -> GraphValue:
    """A new axis of extent 1."""
    return step.b.unsqueeze(x, axes=(axis,))


@converts("aten.squeeze.dim", "aten.squeeze.dims", "aten.squeeze.default")
def squeeze(step: AtenStep, x: GraphValue, axes: int | list[int] | None = None) -> GraphValue:
    """Without those of the axes whose extent is 1."""
    rank = len(x.shape)
    given = range(rank) if axes is None else [axes] if isinstance(axes, int) else axes
    gone = tuple(a % rank for a in given if value_of(x.shape[a]) == 1)
    return step.b.squeeze(x, axes=gone) if gone else x


@converts("aten.slice.Tensor")
def slice_axis(
    step: AtenStep, x: GraphValue, axis: int = 0, start: Any = None, stop: Any = None, stride: int = 1
) -> GraphValue:
    """Part of an axis; torch cuts positions beyond its ends off, so the number of elements is taken from its result."""
    extent, count = x.shape[axis], step.shape[axis]
    if extent == count:
        return x
    first = position(start, extent)
    to_the_end = ceildiv(extent - first, stride) == count
    last = None if to_the_end else first + (count - 1) * stride + 1
    return step.b.slice(x, axis=axis, start=first, stop=last, step=stride)


def position(start: Any, extent: Expr) -> Expr:
    """Where a slice begins: None is the front, negative numbers count from the end."""
    first = index(0 if start is None else start)
    known, most = value_of(first), value_of(extent)
    if known is None or known >= 0:
        return first
    return extent + known if most is None else index(max(most + known, 0))


@converts("aten.select.int")
def select(step: AtenStep, x: GraphValue, axis: int, place: Any) -> GraphValue:
    """One position of an axis, which is dropped."""
    return step.b.select(x, axis=axis, index=place)


@converts("aten.cat.default", "aten.concat.default")
def cat(step: AtenStep, parts: list[GraphValue], axis: int = 0) -> GraphValue:
    """Tensors one after the other."""
    made = [step.cast(part) for part in parts]
    return made[0] if len(made) == 1 else step.b.op("concat", *made, axis=axis)


@converts("aten.stack.default")
def stack(step: AtenStep, parts: list[GraphValue], axis: int = 0) -> GraphValue:
    """Tensors beside each other along a new axis."""
    return step.b.op("stack", *(step.cast(part) for part in parts), axis=axis)


@converts("aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default")
def split(step: AtenStep, x: GraphValue, _: Any, axis: int = 0) -> Tensors:
    """Parts of an axis, of the lengths that torch has found."""
    return step.b.split(x, axis=axis, lengths=[shape[axis] for shape in step.shapes])


@converts("aten.unbind.int")
def unbind(step: AtenStep, x: GraphValue, axis: int = 0) -> Tensors:
    """All positions of an axis."""
    return tuple(step.b.select(x, axis=axis, index=place) for place in range(len(step.shapes)))


@converts("aten.constant_pad_nd.default")
def pad(step: AtenStep, x: GraphValue, around: list[Any], value: Any = 0) -> GraphValue:
    """A value around the tensor; torch names the last axis first."""
    need(all(isinstance(n, int) and n >= 0 for n in around), f"padding by {around}; it is covered for numbers >= 0")
    rank = len(x.shape)
    before, after = [0] * rank, [0] * rank
    for number in range(len(around) // 2):
        before[rank - 1 - number], after[rank - 1 - number] = around[2 * number], around[2 * number + 1]
    return step.b.pad(x, before=before, after=after, value=value)
