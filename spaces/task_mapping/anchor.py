"""What a program is about: its anchor (the one stage that sums products), and the ways to lay lanes on it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from searchlab.errors import SpaceError
from searchlab.ir.expr import Load, Var, loads, value_of, variables
from searchlab.ir.program import Block, Program


@dataclass(frozen=True)
class ProductView:
    """A stage seen as a matrix product: the axis in lanes, the axis of register rows, the operand that lanes read.

    `plain` says that the lane axis is an index of the operand by itself, so that it can be packed into panels.
    """

    block: str
    vector: int
    row: int
    operand: Load
    plain: bool
    contiguous: bool


def space_of(b: Block) -> list[Var]:
    return [it.var for it in b.iters if it.kind == "space"]


def operands(b: Block) -> list[Load]:
    """What a stage reads, without its own output."""
    return [ld for ld in dict.fromkeys(loads(b.store.value)) if ld.buffer != b.store.buffer]


def moves(ld: Load, v: Var) -> bool:
    return any(v in variables(i) for i in ld.indices)


def extent_of(b: Block, axis: int) -> int:
    known = value_of(b.iters[axis].extent)
    if known is None:
        raise SpaceError(
            f"stage '{b.name}' has the run-time size '{b.iters[axis].extent}', which this space cannot tile"
        )
    return known


def work(b: Block) -> int:
    return math.prod(extent_of(b, n) for n in range(len(b.iters)))


def terms(b: Block) -> int:
    """How many values a stage sums up for each element that it writes."""
    return math.prod(extent_of(b, n) for n, it in enumerate(b.iters) if it.kind == "reduce")


def anchor(program: Program) -> Block | None:
    """The largest stage that sums up products of several operands over at least two axes.

    A sum of one term is none: there is nothing to keep in registers, and no loop that panels could be packed for.
    """
    found = [b for b in program.blocks.values() if b.reduces and len(operands(b)) >= 2 and len(space_of(b)) >= 2]
    return max((b for b in found if terms(b) > 1), key=work, default=None)


def views(b: Block, lanes: int) -> list[ProductView]:
    """All ways to see a stage as a matrix product, the last axis (whose outputs lie side by side) first."""
    space = space_of(b)
    found = []
    for axis in reversed(range(len(space))):
        v = space[axis]
        mine = [ld for ld in operands(b) if moves(ld, v)]
        free = [n for n, x in enumerate(space) if n != axis and mine and not moves(mine[0], x)]
        wide = extent_of(b, axis) >= lanes // 2 or all(extent_of(b, n) < lanes // 2 for n in range(len(space)))
        if len(mine) == 1 and free and wide:
            row = max(free, key=lambda n: (extent_of(b, n) > 1, n))
            found.append(ProductView(b.name, axis, row, mine[0], v in mine[0].indices, v == b.store.indices[-1]))
    return sorted(found, key=lambda x: not x.contiguous)
