"""Collapsing: trailing axes of a stage that are contiguous in memory become one, as in 1x1 convolutions."""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.ir.expr import ZERO, Expr, Load, Var, value_of
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block
from searchlab.ir.walk import Substitution, variables
from searchlab.schedule import Schedule
from searchlab.schedule.primitive import consumers
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
    copy, panel = joined_copy(s, name, found)
    collapse_loops(s, name, found)
    return copy, panel


def joined_copy(s: Schedule, name: str, found: Trailing) -> tuple[str, Panel]:
    """A copy of the operand that has one dimension for the trailing axes, and the panel along which it is packed."""
    copy = s.cache_read(name, found.buffer)
    rank = len(s.program.buffers[copy].shape)
    join_trailing(s, copy, found.count)
    return copy, Panel(found.buffer, len(space_axes(s.program.blocks[name])) - found.count, rank - found.count)


def collapse_loops(s: Schedule, name: str, found: Trailing) -> int:
    """Fuses the loops of the trailing axes; returns the position of the fused loop among those of space."""
    count = len(space_axes(s.program.blocks[name]))
    s.fuse(*s.loops(name)[count - found.count : count])
    return count - found.count


def epilogues(program: Program, name: str) -> list[str] | None:
    """The stages after a stage, if each reads the one before it element by element and is its only reader.

    None if what follows is anything else.
    """
    found: list[str] = []
    block = program.blocks[name]
    while readers := consumers(program, block.store.buffer):
        reader, axes = readers[0], tuple(it.var for it in space_axes(readers[0]))
        read = {ld.indices for ld in operands(reader) if ld.buffer == block.store.buffer}
        same = [it.extent for it in space_axes(reader)] == [it.extent for it in space_axes(block)]
        if len(readers) > 1 or reader.reduces or not stores_plainly(reader) or read != {axes} or not same:
            return None
        found.append(reader.name)
        block = reader
    return found


def collapse_stages(s: Schedule, name: str, found: Trailing) -> None:
    """Collapses the trailing axes of a stage and of its `epilogues`, and those of the results between them."""
    count = found.count
    stages = [name, *(epilogues(s.program, name) or ())]
    first = len(space_axes(s.program.blocks[name])) - count
    for stage in stages:
        axes = s.program.blocks[stage].iters
        olds = tuple(Var(f"x{n}") for n in range(len(axes)))
        joined: Expr = olds[first]
        for n in range(first + 1, first + count):
            joined = joined * axes[n].extent + olds[n]
        s.transform_block_layout(stage, (olds, (*olds[:first], joined, *olds[first + count :])))
    for stage in stages[:-1]:
        join_trailing(s, s.program.blocks[stage].store.buffer, count)
