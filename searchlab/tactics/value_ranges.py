"""The values that integers of a program can have, by ranges that are declared for its inputs."""

from __future__ import annotations

from collections.abc import Mapping

from searchlab.dtype import DTYPES
from searchlab.ir.expr import TRUE, Cast, Const, Expr, Load, Select
from searchlab.ir.program import Program
from searchlab.schedule.primitive import producers

Span = tuple[int, int]


def values_of(program: Program, buffer: str, ranges: Mapping[str, Span]) -> Span | None:
    """The smallest and the largest value in a buffer; None if the declared ranges do not say.

    An input has its declared range, and zeros where its layout rounds sizes up; copies and padding follow from it.
    """
    if buffer in program.inputs:
        padded = any(la.buffer == buffer and la.predicate != TRUE for la in program.layouts)
        known = ranges.get(buffer)
        return _joined(known, (0, 0)) if padded else known
    makers = producers(program, buffer)
    if len(makers) != 1 or makers[0].init is not None:
        return None
    return _values(program, makers[0].store.value, ranges)


def _values(program: Program, e: Expr, ranges: Mapping[str, Span]) -> Span | None:
    if isinstance(e, Const) and isinstance(e.value, int):
        return e.value, e.value
    if isinstance(e, Load):
        return values_of(program, e.buffer, ranges)
    if isinstance(e, Select):
        return _joined(_values(program, e.a, ranges), _values(program, e.b, ranges))
    if isinstance(e, Cast) and (DTYPES[e.type].sort in ("int", "uint")):
        found, (low, high) = _values(program, e.a, ranges), DTYPES[e.type].limits
        return found if found is not None and low <= found[0] and found[1] <= high else None
    return None


def _joined(a: Span | None, b: Span | None) -> Span | None:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))
