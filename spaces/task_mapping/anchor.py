"""The anchor of a program, the stage that sums up products, and the ways to lay lanes on it."""

from __future__ import annotations

import math

from searchlab.ir.program import Program
from searchlab.ir.stmt import Block
from searchlab.tactics import ProductView, constant, product_views, products, reduce_axes, work


def extent_of(b: Block, axis: int) -> int:
    """The extent of an axis of a stage, by its number."""
    return constant(b.iters[axis].extent, f"axis '{b.iters[axis].var}' of stage '{b.name}'")


def terms(b: Block) -> int:
    """How many values a stage sums up for each element that it writes."""
    return math.prod(constant(it.extent, f"axis '{it.var}' of stage '{b.name}'") for it in reduce_axes(b))


def anchor(program: Program) -> Block | None:
    """The largest stage that sums up products of several operands over at least two axes.

    A sum of one term does not count: there is nothing to keep in registers, and no loop to pack panels for.
    """
    return max((b for b in products(program) if terms(b) > 1), key=work, default=None)


def views(b: Block, lanes: int) -> list[ProductView]:
    """The ways to see a stage as a matrix product, the last axis (whose outputs lie side by side) first.

    An axis shorter than half a vector is left out, unless all are.
    """
    found = list(reversed(product_views(b)))
    wide = [v for v in found if extent_of(b, v.vector) >= lanes // 2]
    narrow = all(extent_of(b, n) < lanes // 2 for n, it in enumerate(b.iters) if it.kind == "space")
    return sorted(found if narrow else wide, key=lambda v: not v.contiguous)
