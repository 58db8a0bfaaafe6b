"""Reductions of ATen over some axes or all of them."""

from __future__ import annotations

from collections.abc import Sequence

from searchlab.dtype import BOOL
from searchlab.graph.building import GraphValue
from searchlab.graph.torch_import.conversion import AtenStep, Tensors, converts

Axes = int | Sequence[int] | None


def _reduced(step: AtenStep, name: str, x: GraphValue, axes: Axes, keepdims: bool) -> GraphValue:
    axes = (axes,) if isinstance(axes, int) else axes or None  # torch means all axes by an empty list
    return step.b.op(name, x, axes=axes, keepdims=keepdims)


@converts("aten.sum.dim_IntList", "aten.sum.default")
def total(
    step: AtenStep, x: GraphValue, axes: Axes = None, keepdims: bool = False, dtype: str | None = None
) -> GraphValue:
    """A sum; integers are added up in int64."""
    return _reduced(step, "sum", step.cast(x), axes, keepdims)


@converts("aten.mean.dim", "aten.mean.default")
def mean(
    step: AtenStep, x: GraphValue, axes: Axes = None, keepdims: bool = False, dtype: str | None = None
) -> GraphValue:
    """A mean."""
    return _reduced(step, "mean", step.cast(x), axes, keepdims)


@converts("aten.amax.default")
def amax(step: AtenStep, x: GraphValue, axes: Axes = None, keepdims: bool = False) -> GraphValue:
    """The largest element."""
    return _reduced(step, "max", x, axes, keepdims)


@converts("aten.amin.default")
def amin(step: AtenStep, x: GraphValue, axes: Axes = None, keepdims: bool = False) -> GraphValue:
    """The smallest element."""
    return _reduced(step, "min", x, axes, keepdims)


@converts("aten.max.dim", "aten.min.dim")
def extreme(step: AtenStep, x: GraphValue, axis: int, keepdims: bool = False) -> Tensors:
    """The largest or smallest element; where it is, is not covered."""
    return _reduced(step, step.overload.split(".")[1], x, axis, keepdims), None


@converts("aten.any.dim", "aten.any.dims", "aten.any.default")
def any_of(step: AtenStep, x: GraphValue, axes: Axes = None, keepdims: bool = False) -> GraphValue:
    """Whether an element is true, or other than 0."""
    return _reduced(step, "any", step.cast(x, BOOL), axes, keepdims)


@converts("aten.all.dim", "aten.all.dims", "aten.all.default")
def all_of(step: AtenStep, x: GraphValue, axes: Axes = None, keepdims: bool = False) -> GraphValue:
    """Whether all elements are true, or other than 0."""
    return _reduced(step, "all", step.cast(x, BOOL), axes, keepdims)
