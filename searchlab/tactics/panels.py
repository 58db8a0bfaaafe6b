"""Packing operands into panels, so that a vector of outputs reads contiguous elements; results laid out likewise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from searchlab.dtype import HALVES
from searchlab.ir.expr import Expr, Like, Var
from searchlab.ir.program import Program
from searchlab.ir.walk import variables
from searchlab.schedule import Schedule
from searchlab.schedule.primitive import producers
from searchlab.tactics.axes import constant, moves_with, operands, own_loops, space_axes


@dataclass(frozen=True)
class Panel:
    """An operand that can be packed: the output axis along its panels, and the operand's dimension for that axis."""

    buffer: str
    axis: int
    dimension: int


def panel(program: Program, name: str) -> Panel | None:
    """The operand of a contraction to pack so that a vector of outputs reads contiguous elements.

    Its axis indexes no other operand.  The last output axis is preferred, since its results are contiguous; then the
    longest.
    """
    block = program.blocks[name]
    read = operands(block)
    space = space_axes(block)
    if not block.reduces or len(read) < 2:
        return None
    found = {}
    for n, it in enumerate(space):
        mine = [ld for ld in read if moves_with(ld, it.var)]
        if len(mine) != 1 or sum(ld.buffer == mine[0].buffer for ld in read) != 1:
            continue
        plain = [i for i in mine[0].indices if it.var in variables(i)] == [it.var]
        if plain and (extent := constant(it.extent, f"axis '{it.var}'")) > 1:
            found[Panel(mine[0].buffer, n, mine[0].indices.index(it.var))] = extent
    return max(found, key=lambda p: (p.axis == len(space) - 1, found[p]), default=None)


def pack(s: Schedule, block: str, panel: Panel, width: Like, ahead: bool) -> str:
    """Packs an operand of a stage into panels of the given width; returns the name of the packed buffer.

        B[k, j]   =>   B[j // width, k, j % width]

    With `ahead` the operand is a constant input that is packed before the kernel runs; otherwise a packing stage, which
    has the returned name, copies it.
    """
    buffer = panel.buffer if ahead else s.cache_read(block, panel.buffer)
    lay_in_panels(s, buffer, panel.dimension, width)
    return buffer


def widen_halves(s: Schedule, block: str) -> None:
    """Converts operands of 16 bits to float32, in which they are multiplied, by the stages that copy or pack them."""
    b, inputs = s.program.blocks[block], s.program.inputs
    halves = [ld for ld in operands(b) if ld.type in HALVES and b.store.value.dtype not in HALVES]
    for buffer in dict.fromkeys(ld.buffer for ld in halves):
        packed = any(la.buffer == buffer for la in s.program.layouts)
        added = any(maker.reduces for maker in producers(s.program, buffer))
        name = s.cache_read(block, buffer) if (buffer in inputs and not packed) or added else buffer
        s.widen(name, "float32")


def lay_in_panels(s: Schedule, buffer: str, dimension: int, width: Like, leading: Sequence[int] = ()) -> None:
    """Lays a buffer out in panels along one of its dimensions.

    The panel index comes first, after any `leading` dimensions.
    """
    olds = _indices(s, buffer)
    x = olds[dimension]
    front = [olds[n] for n in leading]
    rest = [v for v in olds if v is not x and v not in front]
    s.transform_layout(buffer, (olds, (*front, x // width, *rest, x % width)))


def join_trailing(s: Schedule, buffer: str, count: int) -> None:
    """Merges the last `count` dimensions of a buffer into one; its elements stay in place."""
    olds, shape = _indices(s, buffer), s.program.buffers[buffer].shape
    first = len(olds) - count
    joined: Expr = olds[first]
    for v, size in zip(olds[first + 1 :], shape[first + 1 :], strict=True):
        joined = joined * size + v
    s.transform_layout(buffer, (olds, (*olds[:first], joined)))


def intermediate_results(s: Schedule, block: str) -> str:
    """The buffer that a stage writes; for an output of the program, an intermediate that is copied to it afterwards."""
    if s.program.blocks[block].store.buffer in s.program.outputs:
        s.cache_write(block)
    return s.program.blocks[block].store.buffer


def rows_first(s: Schedule, copy: str, panel: Panel) -> list[str]:
    """The loops of a packing stage, ordered to traverse the operand row by row where possible."""
    own = own_loops(s, copy)
    rank = len(s.program.blocks[copy].iters) - 1
    if panel.dimension != rank - 1 or len(own) != rank + 1:
        return own
    return [*own[1:-1], own[0], own[-1]]


def read_rows_as_they_lie(s: Schedule, copy: str, panel: Panel) -> None:
    """Makes a packing stage traverse the operand row by row and scatter each row over the panels."""
    own = own_loops(s, copy)
    if (order := rows_first(s, copy, panel)) != own:
        s.reorder(*order[:-1])


def spread_rows(s: Schedule, loops: Sequence[str]) -> None:
    """Moves the loop over panels, the outermost of a packing stage's loops around its lanes, inside the others."""
    panel, *rest = loops
    if rest:
        s.reorder(*rest, panel)


def _indices(s: Schedule, buffer: str) -> tuple[Var, ...]:
    return tuple(Var(f"x{n}") for n in range(len(s.program.buffers[buffer].shape)))
