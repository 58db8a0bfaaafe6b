"""Operators of ONNX that move elements, look them up, or make tensors from shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from searchlab.graph.annotations import extents
from searchlab.graph.building import GraphValue
from searchlab.graph.calls import Scalar
from searchlab.graph.onnx_import.onnx_conversion import OnnxResults, OnnxStep, from_node, need
from searchlab.graph.onnx_import.onnx_known import KnownTensor, OnnxValue, known_sizes
from searchlab.graph.onnx_import.onnx_model import known_tensor
from searchlab.graph.ops.shape_ops import elements
from searchlab.ir.algebra import ceildiv
from searchlab.ir.expr import ONE, ZERO, Expr, index, maximum, minimum, value_of

FAR = 2**31 - 1  # exporters write positions of this size, and larger, for "to the end"
SMALL = 256  # elements of tensors made of one number that are computed on import, since they may be shapes


# --- shapes as values -------------------------------------------------------------------------------------------------


@from_node("Shape")
def shape(step: OnnxStep, x: OnnxValue, *, start: int = 0, end: int | None = None) -> KnownTensor:
    """Extents as a value."""
    return known_sizes(np.array(step.shape(x), object)[start:end])


@from_node("Size")
def size(step: OnnxStep, x: OnnxValue) -> KnownTensor:
    """The number of elements as a value."""
    return known_sizes(np.array(elements(step.shape(x)), object))


@from_node("ConstantOfShape")
def constant_of_shape(step: OnnxStep, dims: OnnxValue, *, value: Any = None) -> OnnxValue:
    """One number everywhere."""
    number = KnownTensor(np.zeros(1, "float32"), "float32") if value is None else known_tensor(value, "value")
    made = extents(step.sizes(dims, "the shape"))
    count = value_of(elements(made))
    if count is not None and count <= SMALL:
        return KnownTensor(np.full([int(str(e)) for e in made], number.array.item(), number.array.dtype), number.dtype)
    return step.b.full(shape=made, value=number.array.item(), dtype=number.dtype)


@from_node("Range")
def numbers(step: OnnxStep, start: OnnxValue, stop: OnnxValue, stride: OnnxValue) -> GraphValue:
    """Whole numbers, some distance apart."""
    (first,), (last,) = (step.sizes(x, "an end of the range") for x in (start, stop))
    by = step.number(stride, "the step")
    need(by == int(by) and by >= 1, f"a step of {by}; whole numbers from 1 are covered")
    return step.b.arange(stop=last, start=first, step=int(by), dtype=start.dtype)


@from_node("Expand")
def expand(step: OnnxStep, x: OnnxValue, dims: OnnxValue) -> OnnxValue:
    """Both the operand and the shape are broadcast."""
    old, new = list(step.shape(x)), list(step.sizes(dims, "the shape"))
    rank = max(len(old), len(new))
    old, new = ([ONE] * (rank - len(shape)) + shape for shape in (old, new))
    made = tuple(e if wanted == ONE else wanted for e, wanted in zip(old, new, strict=True))
    count = value_of(elements(made))
    if isinstance(x, KnownTensor) and not x.symbolic and count is not None and count <= SMALL:
        return KnownTensor(np.array(np.broadcast_to(x.array, [int(str(e)) for e in made])), x.dtype)
    number = step.operand(x, rank)
    if isinstance(number, Scalar):
        return step.b.full(shape=made, value=number.value, dtype=number.dtype)
    tensor = number
    return tensor if tensor.shape == made else step.b.expand(tensor, shape=made)


# --- the same elements with another shape -----------------------------------------------------------------------------


@from_node("Reshape")
def reshape(step: OnnxStep, x: OnnxValue, dims: OnnxValue, *, allowzero: int = 0) -> GraphValue:
    """A new shape, in which 0 keeps an extent and -1 is whatever is left."""
    tensor = step.tensor(x)
    wanted = step.sizes(dims, "the shape")
    kept = [tensor.shape[a] if e == ZERO and not allowzero else e for a, e in enumerate(wanted)]
    return step.reshaped(tensor, kept) if index(-1) not in kept else step.b.reshape(tensor, shape=kept)


@from_node("Flatten")
def flatten(step: OnnxStep, x: OnnxValue, *, axis: int = 1) -> GraphValue:
    """A matrix: the axes before one, and those from it on."""
    tensor = step.tensor(x)
    at = axis + len(tensor.shape) if axis < 0 else axis
    return step.reshaped(tensor, (elements(tensor.shape[:at]), elements(tensor.shape[at:])))


@from_node("Squeeze")
def squeeze(
    step: OnnxStep, x: OnnxValue, given: OnnxValue | None = None, *, axes: Sequence[int] | None = None
) -> GraphValue:
    """Without axes of extent 1."""
    tensor = step.tensor(x)
    gone = axes if given is None else step.ints(given, "the axes")
    gone = [a for a, e in enumerate(tensor.shape) if e == ONE] if gone is None else gone
    return step.b.squeeze(tensor, axes=gone) if gone else tensor


@from_node("Unsqueeze")
def unsqueeze(step: OnnxStep, x: OnnxValue, given: OnnxValue | None = None, *, axes: Sequence[int] = ()) -> GraphValue:
    """New axes of extent 1."""
    return step.b.unsqueeze(step.tensor(x), axes=axes if given is None else step.ints(given, "the axes"))


@from_node("Transpose")
def transpose(step: OnnxStep, x: OnnxValue, *, perm: Sequence[int] | None = None) -> GraphValue:
    """Axes in another order."""
    return step.b.permute(step.tensor(x), axes=perm)


@from_node("DepthToSpace")
def depth_to_space(step: OnnxStep, x: OnnxValue, *, blocksize: int, mode: str = "DCR") -> GraphValue:
    """Channels as blocks of the image."""
    need(mode in ("DCR", "CRD"), f"mode {mode}")
    tensor, s = step.tensor(x), blocksize
    n, c, h, w = tensor.shape
    split = (n, s, s, c // (s * s), h, w) if mode == "DCR" else (n, c // (s * s), s, s, h, w)
    apart = step.b.reshape(tensor, shape=split)
    order = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    return step.b.reshape(step.b.permute(apart, axes=order), shape=(n, c // (s * s), h * s, w * s))


@from_node("Tile")
def tile(step: OnnxStep, x: OnnxValue, repeats: OnnxValue) -> GraphValue:
    """The whole tensor repeated along axes."""
    tensor, times = step.tensor(x), step.sizes(repeats, "the repeats")
    if all(count == ONE for count in times):
        return tensor
    apart = step.b.reshape(tensor, shape=[n for e in tensor.shape for n in (ONE, e)])
    pairs = [n for e, count in zip(tensor.shape, times, strict=True) for n in (count, e)]
    whole = [e * count for e, count in zip(tensor.shape, times, strict=True)]
    return step.b.reshape(step.b.expand(apart, shape=pairs), shape=whole)


# --- parts ------------------------------------------------------------------------------------------------------------


@from_node("Concat")
def concat(step: OnnxStep, *parts: OnnxValue, axis: int) -> GraphValue:
    """Tensors one after the other; those without elements add nothing."""
    full = [x for x in parts if not (isinstance(x, KnownTensor) and x.array.size == 0)]
    made = [step.tensor(x) for x in full]
    return made[0] if len(made) == 1 else step.b.op("concat", *made, axis=axis)


@from_node("Split")
def split(
    step: OnnxStep,
    x: OnnxValue,
    lengths: OnnxValue | None = None,
    *,
    axis: int = 0,
    split: Sequence[int] | None = None,
    num_outputs: int | None = None,
) -> OnnxResults:
    """Parts of an axis, of given lengths or equal ones."""
    tensor = step.tensor(x)
    extent = tensor.shape[axis]
    if lengths is not None or split is not None:
        parts = extents(split) if lengths is None else step.sizes(lengths, "the lengths")  # type: ignore[arg-type]
    else:
        count = num_outputs or step.outputs
        most = step.facts.simplify(ceildiv(extent, count))
        parts = (*[most] * (count - 1), step.facts.simplify(extent - most * (count - 1)))
    if len(parts) == 1:
        return (tensor,)
    made = step.b.split(tensor, axis=axis, lengths=parts)
    return tuple(step.b.item(made, number) for number in range(len(parts)))


@from_node("Slice")
def slice_axes(
    step: OnnxStep,
    x: OnnxValue,
    first: OnnxValue | None = None,
    last: OnnxValue | None = None,
    along: OnnxValue | None = None,
    by: OnnxValue | None = None,
    *,
    starts: Sequence[int] = (),
    ends: Sequence[int] = (),
    axes: Sequence[int] | None = None,
) -> GraphValue:
    """Parts of axes; positions beyond the ends are cut off, as numpy does."""
    tensor = step.tensor(x)
    begin = extents_or_less(starts) if first is None else step.sizes(first, "the start")
    end = extents_or_less(ends) if last is None else step.sizes(last, "the end")
    where = axes if along is None else step.ints(along, "the axes")
    strides = [1] * len(begin) if by is None else step.ints(by, "the steps")
    for axis, a, b, stride in zip(where or range(len(begin)), begin, end, strides, strict=True):
        tensor = _sliced(step, tensor, axis, (a, b, stride))
    return tensor


def extents_or_less(given: Sequence[int]) -> tuple[Expr, ...]:
    """Positions as index expressions; they may be negative."""
    return tuple(map(index, given))


def _sliced(step: OnnxStep, tensor: GraphValue, axis: int, part: tuple[Expr, Expr, int]) -> GraphValue:
    begin, end, stride = part
    need(stride >= 1, f"a step of {stride}; positive ones are covered")
    extent = tensor.shape[axis]
    first, last = _inside(step, begin, extent), _inside(step, end, extent)
    if first == ZERO and last == extent and stride == 1:
        return tensor
    return step.b.slice(tensor, axis=axis, start=first, stop=last, step=stride)


def _inside(step: OnnxStep, place: Expr, extent: Expr) -> Expr:
    """A position as a number from 0 to the extent; negative ones count from the end."""
    known = value_of(place)
    if known is not None and known >= FAR:
        return extent
    if step.facts.proves(place < 0):
        return step.facts.simplify(maximum(place + extent, ZERO))
    need(step.facts.proves(place >= 0), f"the position {place}, of which it is not known whether it is negative")
    return step.facts.simplify(minimum(place, extent))


@from_node("Gather")
def gather(step: OnnxStep, x: OnnxValue, places: OnnxValue, *, axis: int = 0) -> GraphValue:
    """Positions of an axis; one position that is known drops it."""
    tensor = step.tensor(x)
    if isinstance(places, KnownTensor) and places.array.ndim == 0:
        return step.b.select(tensor, axis=axis, index=places.exprs.item())
    return step.b.take(tensor, step.tensor(places), axis=axis)


@from_node("Trilu")
def triangle(step: OnnxStep, x: OnnxValue, diagonal: OnnxValue | None = None, *, upper: int = 1) -> GraphValue:
    """The triangle above or below a diagonal."""
    (k,) = (ZERO,) if diagonal is None else step.sizes(diagonal, "the diagonal")
    return step.b.op("triu" if upper else "tril", step.tensor(x), diagonal=k)


@from_node("Pad")
def pad(
    step: OnnxStep,
    x: OnnxValue,
    around: OnnxValue | None = None,
    fill: OnnxValue | None = None,
    along: OnnxValue | None = None,
    *,
    mode: str = "constant",
    pads: Sequence[int] = (),
    value: float = 0.0,
) -> GraphValue:
    """A value around the tensor; negative numbers cut off."""
    need(mode == "constant", f"mode {mode}; constant is covered")
    tensor = step.tensor(x)
    given = tuple(pads) if around is None else step.ints(around, "the padding")
    number = value if fill is None else step.number(fill, "the value")
    rank = len(tensor.shape)
    axes = range(rank) if along is None else [a % rank for a in step.ints(along, "the axes")]
    before, after = [0] * rank, [0] * rank
    for place, axis in enumerate(axes):
        before[axis], after[axis] = given[place], given[len(axes) + place]
    for axis, (p, q) in enumerate(zip(before, after, strict=True)):
        if min(p, q) < 0:
            tensor = _sliced(step, tensor, axis, (index(max(-p, 0)), tensor.shape[axis] + min(q, 0), 1))
    return padded(step, tensor, [max(p, 0) for p in before], [max(q, 0) for q in after], number)


def padded(
    step: OnnxStep, tensor: GraphValue, before: Sequence[int], after: Sequence[int], value: Any = 0
) -> GraphValue:
    """A tensor with a value around it; itself if there is nothing to add."""
    if not any((*before, *after)):
        return tensor
    return step.b.pad(tensor, before=before, after=after, value=value)
