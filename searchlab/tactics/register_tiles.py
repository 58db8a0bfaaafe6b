"""Register blocking: tiles of rows by vectors of accumulators, sized by the vector registers of the target."""

from __future__ import annotations

from searchlab.ir.expr import Expr, Like, compare, index
from searchlab.targets import Target

_MOST_ROWS = 14


def register_tile(target: Target, dtype: str, rows: int, columns: int, most_vectors: int) -> tuple[int, int]:
    """Rows and columns of a tile: as many accumulators as fit the registers, within the size of the problem."""
    lanes = target.lanes(dtype)
    vectors = max(1, min(most_vectors, -(-columns // lanes)))
    most = max(1, min(_MOST_ROWS, (target.vector_registers - vectors - 2) // vectors))
    tiles = -(-rows // most)
    return -(-rows // tiles), min(columns, vectors * lanes)


def fits_registers(rows: Like, vectors: Like, registers: int) -> Expr:
    """The condition that a tile's accumulators, one row of operands and one broadcast fit the vector registers."""
    across = index(vectors)
    return compare("le", rows * across + across + 1, registers)
