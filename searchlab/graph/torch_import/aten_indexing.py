"""Operators of ATen that make tensors from numbers, look elements up, or replace some of them."""

from __future__ import annotations

from typing import Any

from searchlab.dtype import BOOL
from searchlab.graph.building import GraphValue
from searchlab.graph.torch_import.aten_shapes import position
from searchlab.graph.torch_import.conversion import AtenStep, converts, need
from searchlab.ir.expr import Expr

# --- from numbers -----------------------------------------------------------------------------------------------------


@converts("aten.full.default", "aten.full_like.default", "aten.fill.Scalar")
def full(step: AtenStep, _: Any, value: Any, **__: Any) -> GraphValue:
    """One number everywhere."""
    return step.b.full(shape=step.shape, value=bool(value) if step.dtype == BOOL else value, dtype=step.dtype)


@converts("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default")
def zeros(step: AtenStep, *_: Any, **__: Any) -> GraphValue:
    """Zeros."""
    return full(step, None, 0)


@converts("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(step: AtenStep, *_: Any, **__: Any) -> GraphValue:
    """Ones."""
    return full(step, None, 1)


@converts("aten.scalar_tensor.default")
def scalar_tensor(step: AtenStep, value: Any, **_: Any) -> GraphValue:
    """A number as a tensor of rank 0."""
    return full(step, None, value)


@converts("aten.arange.default")
def arange(step: AtenStep, stop: Any, **_: Any) -> GraphValue:
    """Whole numbers from 0."""
    return arange_step(step, 0, stop)


@converts("aten.arange.start", "aten.arange.start_step")
def arange_step(step: AtenStep, start: Any, stop: Any, stride: Any = 1, **_: Any) -> GraphValue:
    """Whole numbers, some distance apart."""
    whole = all(isinstance(n, Expr) or int(n) == n for n in (start, stop, stride))
    need(
        whole and not isinstance(stride, Expr), f"numbers from {start} to {stop} by {stride}; whole numbers are covered"
    )
    start, stop = (n if isinstance(n, Expr) else int(n) for n in (start, stop))
    return step.b.arange(stop=stop, start=start, step=int(stride), dtype=step.dtype)


@converts("aten.triu.default")
def triu(step: AtenStep, x: GraphValue, diagonal: int = 0) -> GraphValue:
    """The upper triangle."""
    return step.b.triu(x, diagonal=diagonal)


@converts("aten.tril.default")
def tril(step: AtenStep, x: GraphValue, diagonal: int = 0) -> GraphValue:
    """The lower triangle."""
    return step.b.tril(x, diagonal=diagonal)


# --- elements by indices ----------------------------------------------------------------------------------------------


@converts("aten.index_select.default")
def index_select(step: AtenStep, x: GraphValue, axis: int, places: GraphValue) -> GraphValue:
    """Positions of an axis."""
    return step.b.take(x, places, axis=axis)


@converts("aten.index.Tensor")
def index(step: AtenStep, x: GraphValue, places: list[GraphValue | None]) -> GraphValue:
    """Positions of one axis, as many as the indices have."""
    axis, found = _only(places)
    return step.b.take(x, found, axis=axis)


@converts("aten.index_put.default")
def index_put(
    step: AtenStep, x: GraphValue, places: list[GraphValue | None], values: GraphValue, accumulate: bool = False
) -> GraphValue:
    """Other values at positions of one axis."""
    need(not accumulate, "adding to elements is not covered")
    axis, found = _only(places)
    need(len(found.shape) == 1, f"indices of rank {len(found.shape)}; rank 1 is covered")
    shape = (*x.shape[:axis], *found.shape, *x.shape[axis + 1 :])
    return step.b.index_put(x, found, _expanded(step, values, shape), axis=axis)


def _only(places: list[GraphValue | None]) -> tuple[int, GraphValue]:
    """The axis that is indexed, and the indices."""
    given = [(axis, value) for axis, value in enumerate(places) if value is not None]
    need(len(given) == 1, f"indices for {len(given)} axes at once; one is covered")
    axis, found = given[0]
    need(found.dtype != BOOL, "indices that are truth values are not covered: the shape would depend on data")
    return axis, found


# --- elements replaced ------------------------------------------------------------------------------------------------


def _expanded(step: AtenStep, values: GraphValue, shape: tuple[Expr, ...]) -> GraphValue:
    values = step.cast(values)
    return values if values.shape == shape else step.b.expand(values, shape=shape)


@converts("aten.copy.default")
def copy(step: AtenStep, x: GraphValue, values: GraphValue, *_: Any) -> GraphValue:
    """Other values everywhere."""
    return _expanded(step, values, x.shape)


@converts("aten.slice_scatter.default")
def slice_scatter(
    step: AtenStep,
    x: GraphValue,
    values: GraphValue,
    axis: int = 0,
    start: Any = None,
    stop: Any = None,
    stride: int = 1,
) -> GraphValue:
    """Other values in part of an axis."""
    need(stride == 1, f"every {stride}th element; neighbours are covered")
    if values.shape == x.shape:
        return step.cast(values)
    return step.b.update_slice(x, step.cast(values), axis=axis, start=position(start, x.shape[axis]))


@converts("aten.select_scatter.default")
def select_scatter(step: AtenStep, x: GraphValue, values: GraphValue, axis: int, place: Any) -> GraphValue:
    """Other values at one position of an axis."""
    return slice_scatter(step, x, step.b.unsqueeze(values, axes=(axis % len(x.shape),)), axis, place)


@converts("aten.repeat.default")
def repeat(step: AtenStep, x: GraphValue, times: list[Any]) -> GraphValue:
    """The whole tensor repeated along axes, of which there may be new ones in front."""
    shape = (*[1] * (len(times) - len(x.shape)), *x.shape)
    apart = step.b.reshape(x, shape=[n for e in shape for n in (1, e)])
    every = step.b.expand(apart, shape=[n for e, count in zip(shape, times, strict=True) for n in (count, e)])
    return step.b.reshape(every, shape=step.shape)
