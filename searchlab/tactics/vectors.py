"""Vectors: whether lanes hold neighbouring outputs or partial results of a reduction, and which loops to vectorise."""

from __future__ import annotations

from collections.abc import Sequence

from searchlab.ir.algebra import poly
from searchlab.ir.expr import Binary, Expr, Like, Load, Var, value_of
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block, Iter
from searchlab.ir.walk import variables
from searchlab.schedule import Schedule
from searchlab.tactics.attempts import attempt
from searchlab.tactics.axes import moves_with, operands, reduce_axes, space_axes


def side_by_side(block: Block) -> bool:
    """Whether neighbouring outputs read neighbouring inputs, so that the last spatial axis can be vectorised."""
    space, reduction = space_axes(block), reduce_axes(block)
    read = [ld for ld in operands(block) if ld.indices]
    walked = [ld for ld in read if not reduction or any(moves_with(ld, it.var) for it in reduction)]
    return bool(space) and any(space[-1].var in variables(ld.indices[-1]) for ld in walked)


def reduces_along_rows(block: Block) -> bool:
    """Whether to vectorise the reduction: its axes run along rows in memory, and the last spatial axis does not.

    Unlike `side_by_side` this considers strides and ignores axes of one iteration.
    """
    space, reduction = space_axes(block), reduce_axes(block)
    walked = [
        ld.indices[-1] for ld in operands(block) if ld.indices and any(moves_with(ld, it.var) for it in reduction)
    ]
    last = [it for it in space if value_of(it.extent) != 1][-1:]
    return not _any_walks(last, walked) and _any_walks(reduction, walked)


def _any_walks(axes: Sequence[Iter], rows: Sequence[Expr]) -> bool:
    return any(_walks(it.var, row) for it in axes if value_of(it.extent) != 1 for row in rows)


def _walks(axis: Var, row: Expr) -> bool:
    """Whether an axis has a small stride along a row; the digits of a fused loop count as one index."""
    inner = row.a if isinstance(row, Binary) and row.op == "mod" else row
    terms = [m for m in poly(inner) if any(axis in variables(atom) for atom in m)]
    return terms == [(axis,)]


def contiguous_reduction(block: Block, loops: Sequence[str]) -> str | None:
    """The first reduction loop that runs along the last index of an operand."""
    for it, loop in zip(reduce_axes(block), loops, strict=True):
        if any(ld.indices and it.var in variables(ld.indices[-1]) for ld in operands(block)):
            return loop
    return None


def reduces_as_one(program: Program, block: Block) -> bool:
    """Whether several reduction axes run through memory as one: they are the last indices of every operand, in order.

    All but the first have to be complete.
    """
    axes = reduce_axes(block)
    count, names = len(axes), tuple(it.var for it in axes)
    whole = tuple(it.extent for it in axes[1:])

    def runs(ld: Load) -> bool:
        before = {v for i in ld.indices[:-count] for v in variables(i)}
        return ld.indices[-count:] == names and not before & set(names)

    walked = [ld for ld in operands(block) if any(moves_with(ld, v) for v in names)]
    shapes = [program.buffers[ld.buffer].shape for ld in walked]
    return count > 1 and all(map(runs, walked)) and all(shape[len(shape) - count + 1 :] == whole for shape in shapes)


def vectorize_outputs(s: Schedule, column: str, reduction: Sequence[str], width: Like) -> str:
    """Vectorises the last spatial loop of a stage, innermost where legal; returns the loop around the vectors."""
    outer, inner = s.split(column, [None, width], tail=True)
    if reduction:
        attempt(s.reorder, outer, *reduction, inner)
    s.vectorize(inner)
    return outer


def row_times_matrix(block: Block) -> bool:
    """Whether a stage adds up products of a single row with columns, which several operands may make up."""
    *around, column = space_axes(block)
    if not block.reduces or any(value_of(it.extent) != 1 for it in around):
        return False
    sums = {it.var for it in reduce_axes(block)}
    read = [{v for e in ld.indices for v in variables(e)} for ld in operands(block)]
    return any(column.var in vs for vs in read) and any(column.var not in vs and sums & vs for vs in read)
