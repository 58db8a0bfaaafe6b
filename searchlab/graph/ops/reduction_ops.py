"""Reductions over axes: sum, mean, max, min, any, all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from searchlab.dtype import BOOL, DTYPES, FLOATS
from searchlab.graph.annotations import Shape, TensorType
from searchlab.graph.operator import Array, GraphOperator, Ints, graph_operator
from searchlab.graph.ops.operand_rules import axes_of, computed, dtype_of, loop_names, need, rounded, shape_of
from searchlab.graph.ops.pointwise_op import NUMBERS
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.compute import Builder, Reduction, Tensor, largest, smallest, total
from searchlab.ir.expr import FALSE, ONE, TRUE, Expr, Var, all_of, cast, select
from searchlab.ir.program import Program
from searchlab.workloads.building_blocks import named

Combine = Callable[..., Reduction]


@dataclass(frozen=True)
class ReductionOp(GraphOperator):
    """Base of reductions over `axes` (None: all), which stay as extents of 1 with `keepdims`."""

    accepts: ClassVar[tuple[str, ...]] = NUMBERS
    combine: ClassVar[Combine]
    array: ClassVar[Callable[..., Any]]
    axes: Ints | None = None
    keepdims: bool = False

    def deduce(self, facts: SizeFacts, x: TensorType) -> TensorType:
        """The shape without the axes, or with extents of 1 in their place."""
        dtype = dtype_of(x)
        need(dtype in self.accepts, f"an operand of {dtype}; it takes {', '.join(self.accepts)}")
        return TensorType(self._kept(shape_of(x)), dtype)

    def coarse(self, *args: TensorType) -> TensorType:
        """The dtype, and the rank if it can be told."""
        (x,) = args
        gone = 0 if self.keepdims or x.rank is None else len(axes_of(self.axes, x.rank))
        return TensorType(dtype=x.dtype, rank=None if x.rank is None else x.rank - gone)

    def reference(self, *args: Array) -> Array:
        """The reduction on arrays."""
        (x,) = args
        found: Array = np.asarray(type(self).array(x, axis=axes_of(self.axes, x.ndim), keepdims=self.keepdims))
        return found

    def program(self, facts: SizeFacts, x: TensorType) -> Program:
        """One stage that combines elements, and one that finishes where there is something left to do."""
        shape, dtype = shape_of(x), dtype_of(x)
        axes, out = axes_of(self.axes, len(shape)), self._kept(shape)
        names = loop_names(len(out))
        b = Builder(self.name)
        X = b.input("X", shape, dtype)
        reduced = {a: b.axis(f"r{a}", shape[a]) for a in axes}

        def body(*at: Var) -> Expr | Reduction:
            left = iter([i for a, i in enumerate(at) if not (self.keepdims and a in reduced)])
            value = X[tuple(reduced[a] if a in reduced else next(left) for a in range(len(shape)))]
            return type(self).combine(computed(value), *reduced.values()) if reduced else computed(value)

        held = DTYPES[dtype].arithmetic
        count: Expr = ONE
        for a in axes:
            count = count * shape[a]
        if held == dtype and not self.is_finished:
            return b.program(b.compute("Y", out, named(names, body)))
        S = b.compute("S", out, named(names, body))
        return b.program(b.compute("Y", out, named(names, lambda *at: self._finish(S, at, count, dtype))))

    is_finished: ClassVar[bool] = False  # whether what is combined is divided by the number of elements

    def _finish(self, S: Tensor, at: tuple[Var, ...], count: Expr, dtype: str) -> Expr:
        value = S[at] / cast(count, S.dtype) if self.is_finished else S[at]
        return rounded(value, dtype)

    def _kept(self, shape: Shape) -> Shape:
        gone = axes_of(self.axes, len(shape))
        if self.keepdims:
            return tuple(ONE if a in gone else e for a, e in enumerate(shape))
        return tuple(e for a, e in enumerate(shape) if a not in gone)


def _any(value: Expr, *axes: Var) -> Reduction:
    return Reduction(value, axes, lambda a, b: select(a, TRUE, b), FALSE)


def _all(value: Expr, *axes: Var) -> Reduction:
    return Reduction(value, axes, lambda a, b: all_of((a, b)), TRUE)


_TABLE: dict[str, tuple[Combine, Callable[..., Any], tuple[str, ...], bool]] = {
    "sum": (total, np.sum, NUMBERS, False),
    "mean": (total, np.mean, FLOATS, True),
    "max": (largest, np.max, NUMBERS, False),
    "min": (smallest, np.min, NUMBERS, False),
    "any": (_any, np.any, (BOOL,), False),
    "all": (_all, np.all, (BOOL,), False),
}
for _name, (_combine, _array, _accepts, _finished) in _TABLE.items():
    _members = {
        "combine": staticmethod(_combine), "array": staticmethod(_array), "accepts": _accepts,
        "is_finished": _finished, "__module__": __name__,
    }  # fmt: skip
    graph_operator(_name)(type(f"{_name.title()}Op", (ReductionOp,), _members))
