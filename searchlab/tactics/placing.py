"""Placing the stages around a main stage: inlined, computed inside its loops, or in loop nests of their own."""

from __future__ import annotations

from collections.abc import Iterator

from searchlab.ir.expr import Call, Expr, Select, value_of
from searchlab.ir.program import Program
from searchlab.ir.walk import variables, walk
from searchlab.schedule import Schedule
from searchlab.schedule.primitive import consumers, producers
from searchlab.tactics.attempts import attempt
from searchlab.tactics.axes import extent, loops_inside, operands, own_loops, space_axes
from searchlab.tactics.vectors import side_by_side

_UNROLLED = 16  # the most rows of an epilogue's tile that are unrolled


def inline_cheap(s: Schedule) -> None:
    """Inlines elementwise stages without calls or branches into their only consumer, if it has the same rank."""
    for name, b in s.program.blocks.items():
        buffer = b.store.buffer
        if b.reduces or buffer in s.program.outputs:
            continue
        readers = consumers(s.program, buffer)
        costly = any(isinstance(e, (Call, Select)) for e in walk(b.store.value))
        same_rank = all(len(space_axes(r)) == len(b.iters) for r in readers)
        if len(readers) == 1 and not readers[0].reduces and not costly and same_rank:
            attempt(s.compute_inline, name)


def gather_rows(s: Schedule) -> str | None:
    """Computes every possible stage inside the row loop of the last one, a row at a time; returns that loop.

    Returns None if the last stage has only the vectorised axis.
    """
    *others, last = s.program.blocks
    b = s.program.blocks[last]
    keep = len(space_axes(b)) - (0 if b.reduces and not side_by_side(b) else 1)
    if keep < 1:
        return None
    row = s.loops(last)[keep - 1]
    for name in reversed(others):
        attempt(s.compute_at, name, row)
    return row


def meets_only_at_elements(program: Program) -> bool:
    """Whether stages read each other only at their own elements, as where a mean divides what a sum has added up.

    The last of several stages does not reduce, and the others reduce along rows of their operands.
    """
    *others, last = program.blocks.values()
    made = {b.store.buffer for b in others}
    plain = all(
        ld.indices == tuple(it.var for it in space_axes(b))
        for b in program.blocks.values()
        for ld in operands(b)
        if ld.buffer in made
    )
    along_rows = all(b.reduces and not side_by_side(b) for b in others)
    return bool(others) and bool(last.iters) and not last.reduces and along_rows and plain


def gather_inputs(s: Schedule, loop: str) -> None:
    """Computes every possible stage, such as padding, inside a loop of its consumer, with its last axis vectorised."""
    for name in list(s.program.blocks):
        if attempt(s.compute_at, name, loop):
            vectorize_last(s, name)


def inline_padding(s: Schedule, block: str) -> None:
    """Inlines what a stage reads, if it only selects elements: loops are cut at the edges of images, not copied from.

    A window that reads an element a few times costs less than a copy, which would be as large as the image.
    """
    for load in operands(s.program.blocks[block]):
        for maker in producers(s.program, load.buffer):
            if not maker.reduces and isinstance(maker.store.value, Select):
                attempt(s.compute_inline, maker.name)


def vectorize_last(s: Schedule, block: str) -> None:
    """Vectorises the last loop of a stage that has more than one iteration, inside those that have one."""
    own = own_loops(s, block)
    lane = next((lp for lp in reversed(own) if extent(s, lp) != 1), own[-1])
    if lane != own[-1]:
        s.reorder(*own[own.index(lane) + 1 :], lane)
    s.vectorize(lane)


def join_epilogues(s: Schedule, block: str, loop: str, unroll: bool = True) -> None:
    """Computes elementwise consumers of a stage tile by tile, inside `loop`, while the tile is in registers or cache.

    Their last axis is vectorised; with `unroll`, the others are unrolled.
    """
    for reader in consumers(s.program, s.program.blocks[block].store.buffer):
        if reader.reduces or not attempt(s.reverse_compute_at, reader.name, loop):
            continue
        inner = loops_inside(s, reader.name, loop)
        if inner:
            s.vectorize(inner[-1])
        for lp in inner[:-1] if unroll else ():
            if _is_short(s.program.loops[lp].extent):
                s.unroll(lp)
        join_epilogues(s, reader.name, loop, unroll)


def _is_short(extent: Expr) -> bool:
    """Whether a loop is short enough to unroll; an extent given by a knob is a tile size, which is short."""
    known = value_of(extent)
    return known <= _UNROLLED if known is not None else all(v.role == "knob" for v in variables(extent))


def fresh_stages(s: Schedule) -> Iterator[str]:
    """The stages whose loops are still unscheduled; the caller may schedule each before it requests the next."""
    for name in list(s.program.blocks):
        loops = [s.program.loops[lp] for lp in s.loops(name)]
        plain = tuple(lp.var for lp in loops) == s.program.blocks[name].bindings
        if plain and loops and all(lp.kinds == ("serial",) for lp in loops):
            yield name
