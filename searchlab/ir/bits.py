"""Functions of the bits of integers."""

from __future__ import annotations

from searchlab.errors import IRError
from searchlab.ir.expr import Call, Expr


def differing(a: Expr, b: Expr) -> Expr:
    """The number of bits in which two integers of 32 bits differ: products of signs that are packed into words."""
    if not a.dtype == b.dtype == "int32":
        raise IRError(f"differing takes two values of dtype int32, got '{a}' ({a.dtype}), '{b}' ({b.dtype})")
    return Call("differing", (a, b))
