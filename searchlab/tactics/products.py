"""Stages that are matrix products in disguise: which axis can be vectorised, and which operand it indexes."""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.ir.expr import Load, value_of
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block
from searchlab.tactics.axes import moves_with, operands, space_axes


@dataclass(frozen=True)
class ProductView:
    """A stage seen as a matrix product: the vector axis, the axis of register rows, the operand read by vectors.

    `dimension` is the operand's dimension that is indexed by the vector axis alone, so that the operand can be packed
    into panels along it; it is None if the axis is only part of an index, as in a convolution.
    """

    block: str
    vector: int
    row: int
    operand: Load
    dimension: int | None
    contiguous: bool  # whether the output is contiguous along the vector axis

    @property
    def plain(self) -> bool:
        """Whether the operand can be packed into panels."""
        return self.dimension is not None


def products(program: Program) -> list[Block]:
    """The stages that reduce over several operands and have at least two output axes."""
    blocks = program.blocks.values()
    return [b for b in blocks if b.reduces and len(operands(b)) >= 2 and len(space_axes(b)) >= 2]


def product_views(block: Block) -> list[ProductView]:
    """All ways to see a stage as a matrix product, in the order of its axes.

    The vector axis indexes one operand only; the row axis, the last one with more than one iteration that this operand
    does not depend on, lets several rows reuse a loaded vector.
    """
    space = space_axes(block)
    found = []
    for axis, it in enumerate(space):
        moved = [ld for ld in operands(block) if moves_with(ld, it.var)]
        if len(moved) != 1:
            continue
        (operand,) = moved
        free = [n for n, other in enumerate(space) if n != axis and not moves_with(operand, other.var)]
        if free:
            row = max(free, key=lambda n: (value_of(space[n].extent) != 1, n))
            dimension = operand.indices.index(it.var) if it.var in operand.indices else None
            found.append(ProductView(block.name, axis, row, operand, dimension, it.var == block.store.indices[-1]))
    return found
