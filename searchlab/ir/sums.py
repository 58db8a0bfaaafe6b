"""Recognition of stores that accumulate into their own element, by any reduction operation."""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.dtype import FLOATS
from searchlab.ir.expr import Binary, Const, Expr, Load
from searchlab.ir.stmt import Store

ASSOCIATIVE = ("add", "mul", "min", "max")


@dataclass(frozen=True, slots=True)
class Sum:
    """The operation and the new term of a store `own = own <op> term`."""

    op: str
    term: Expr


def as_sum(s: Store) -> Sum | None:
    """The store as a sum, if it is one."""
    value = s.value
    if not isinstance(value, Binary) or value.op not in ASSOCIATIVE:
        return None
    own = Load(s.buffer, s.indices, value.dtype)
    if value.a == own:
        return Sum(value.op, value.b)
    return Sum(value.op, value.a) if value.b == own else None


def identity(op: str, dtype: str) -> Const | None:
    """The identity element of a reduction operation, or None if it has none here."""
    if op in ("add", "mul"):
        return Const((0.0 if op == "add" else 1.0) if dtype in FLOATS else (0 if op == "add" else 1), dtype)
    if dtype in FLOATS:
        return Const(float("inf") if op == "min" else float("-inf"), dtype)
    return None
