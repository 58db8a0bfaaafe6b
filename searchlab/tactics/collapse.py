"""Collapsing: trailing axes of a stage that are contiguous in memory become one, as in 1x1 convolutions."""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.ir.expr import ZERO, Expr, Load, Var, value_of
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block
from searchlab.ir.walk import Substitution, variables
from searchlab.schedule import Schedule
from searchlab.tactics.axes import moves_with, operands, reduce_axes, space_axes, stores_plainly
from searchlab.tactics.panels import Panel, join_trailing


@dataclass(frozen=True)
class Trailing:
    """The last `count` axes of a stage, which are jointly contiguous in its output and in the operand `buffer`."""

    buffer: str
    count: int


def trailing(program: Program, name: str) -> Trailing | None:
    """The longest run of trailing axes that can be collapsed, provided that they index only one operand."""
    block = program.blocks[name]
    if not block.reduces or not stores_plainly(block):
        return None
    axes = [it.var for it in space_axes(block)]
    for count in range(len(axes) - 1, 1, -1):
        run = axes[-count:]
        moved = [ld for ld in operands(block) if any(moves_with(ld, v) for v in run)]
        if len(moved) == 1 and _is_one_row(program, block, moved[0], run):
            return Trailing(moved[0].buffer, count)
    return None


def _is_one_row(program: Program, block: Block, load: Load, run: list[Var]) -> bool:
    """Whether an operand is read contiguously along a run of axes, completely in all but the first of them."""
    once: dict[Expr, Expr] = {it.var: ZERO for it in reduce_axes(block) if value_of(it.extent) == 1}
    indices = [Substitution(once)(i) for i in load.indices]
    extents = {it.var: it.extent for it in block.iters}
    shape = program.buffers[load.buffer].shape[-len(run) :]
    moved = {v for i in indices[: -len(run)] for v in variables(i)}
    plain = indices[-len(run) :] == run and not moved & set(run)
    return plain and all(extents[v] == e for v, e in zip(run, shape, strict=True))


def collapse(s: Schedule, name: str, found: Trailing) -> tuple[str, Panel]:
    """Fuses the loops of the trailing axes; a copy of their operand has one dimension for them, ready to be packed.

    Returns the copy, and the panel along which it is packed.
    """
    copy = s.cache_read(name, found.buffer)
    rank = len(s.program.buffers[copy].shape)
    join_trailing(s, copy, found.count)
    return copy, Panel(found.buffer, collapse_loops(s, name, found), rank - found.count)


def collapse_loops(s: Schedule, name: str, found: Trailing) -> int:
    """Fuses the loops of the trailing axes; returns the position of the fused loop among those of space."""
    count = len(space_axes(s.program.blocks[name]))
    s.fuse(*s.loops(name)[count - found.count : count])
    return count - found.count
