"""The common part of templates: the loops of a stage, register tiles, packing, epilogues and parallel loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from searchlab.errors import ScheduleError
from searchlab.ir.algebra import ceildiv
from searchlab.ir.expr import Expr, Load, Var
from searchlab.ir.walk import variables
from searchlab.schedule import Schedule
from searchlab.schedule.primitive import consumers
from searchlab.search.task import Task
from searchlab.tactics import (
    attempt,
    axis_loops,
    extent,
    fits_registers,
    fuse_parallel,
    join_trailing,
    lay_in_panels,
    loops_inside,
    operands,
    products,
    space_axes,
    spread_rows,
)
from spaces.template.config import Config


@dataclass(frozen=True)
class TemplateNest:
    """A stage that reduces: its loops before anything is scheduled, and how many of its values fill a register."""

    block: str
    space: tuple[str, ...]
    reduce: tuple[str, ...]
    lanes: int


def reduction(s: Schedule, task: Task) -> TemplateNest:
    """The first stage that sums products, or else the first that reduces."""
    found = products(s.program) or [b for b in s.program.blocks.values() if b.reduces]
    b = found[0]
    space, reduce = axis_loops(s, b.name)
    lanes = task.target.lanes(s.program.buffers[b.store.buffer].dtype)
    return TemplateNest(b.name, tuple(space), tuple(reduce), lanes)


def extents(s: Schedule, loops: Sequence[str]) -> int:
    """How often loops of known extents run together."""
    return math.prod(extent(s, x) or 1 for x in loops)


def longer(s: Schedule, loops: Sequence[str]) -> list[str]:
    """Loops of more than one iteration."""
    return [x for x in loops if extent(s, x) != 1]


# --- tiles ------------------------------------------------------------------------------------------------------------


def vectors(lanes: int, length: int | None, most: int = 4) -> list[int]:
    """Lengths of a vectorised loop: half a register, then one to `most` of them, none longer than what there is."""
    found = [max(1, lanes // 2), *(lanes * n for n in range(1, most + 1))]
    return found if length is None else sorted({min(v, length) for v in found})


def fit_registers(cfg: Config, task: Task, lanes: int, rows: Expr, columns: Expr) -> None:
    """A tile of accumulators, with a row of operands beside it, fits the vector registers."""
    cfg.require(fits_registers(rows, ceildiv(columns, lanes), task.target.vector_registers))


@dataclass(frozen=True)
class Operand:
    """An input of a product and which of its dimensions, neighbours, run along the vectors."""

    block: str
    read: Load
    along: tuple[int, ...]

    @property
    def contiguous(self) -> bool:
        """Whether what one vector holds lies side by side as it is."""
        return self.along[-1] == len(self.read.indices) - 1


def axis_of(s: Schedule, block: str, loop: str) -> Var:
    """The iteration variable that a loop of an unscheduled stage runs through."""
    b = s.program.blocks[block]
    return next(it.var for it, e in zip(b.iters, b.bindings, strict=True) if e == Var(loop))


def operand(s: Schedule, block: str, loops: Sequence[str]) -> Operand:
    """The operand that a product reads along loops of the result."""
    axes = [axis_of(s, block, x) for x in loops]
    for ld in operands(s.program.blocks[block]):
        along = tuple(n for n, i in enumerate(ld.indices) if variables(i) & set(axes))
        if len(along) == len(axes):
            return Operand(block, ld, along)
    raise ScheduleError(f"no operand of '{block}' moves with {', '.join(loops)}")


def panels(s: Schedule, operand: Operand, width: Expr, ahead: bool) -> str:
    """Stores an operand in panels of `width`, what one vector holds side by side; returns the name of its buffer.

    Ahead of time for a weight; else in a stage of its own, which may be moved.
    """
    read, (first, *_) = operand.read, operand.along
    name = read.buffer if ahead else s.cache_read(operand.block, read.buffer)
    if len(operand.along) > 1:
        join_trailing(s, name, len(operand.along))
    space = {it.var for it in space_axes(s.program.blocks[operand.block])}
    rank = len(s.program.buffers[name].shape)
    batch = [n for n in range(rank) if n != first and read.indices[n] in space]
    lay_in_panels(s, name, first, width, leading=batch)
    return name


def pack_inside(s: Schedule, stage: str, loop: str, along_rows: bool) -> None:
    """Packs, inside a loop, the panels that its body reads; row by row if the source's rows run along the panels."""
    s.compute_at(stage, loop)
    *around, lanes = loops_inside(s, stage, loop)
    if along_rows:
        spread_rows(s, longer(s, around) or around)
    s.vectorize(lanes)


# --- stages around the main one ---------------------------------------------------------------------------------------


def is_for_one(s: Schedule, stage: str) -> bool:
    """Whether one stage alone reads a stage, so that it can be computed in that one's loops."""
    return len(consumers(s.program, s.program.blocks[stage].store.buffer)) == 1


def fill(s: Schedule, task: Task, stage: str) -> None:
    """A stage that moves data, in a nest of its own: its last loop in vectors, the others shared among threads."""
    *outer, last = s.loops(stage)
    s.vectorize(last)
    share(s, task, outer)


def finish(s: Schedule, task: Task, block: str, loop: str, width: Expr | None = None, unroll: bool = False) -> None:
    """Runs the stages that follow a stage inside a loop, on what one iteration has made, in vectors of `width`.

    Where one iteration makes no tile of its own, as with fused loops, they follow in nests of their own.
    """
    for reader in consumers(s.program, s.program.blocks[block].store.buffer):
        if not attempt(s.reverse_compute_at, reader.name, loop):
            fill(s, task, reader.name)
            continue
        *rows, last = loops_inside(s, reader.name, loop)
        if width is not None:
            _, last = s.split(last, [None, width], tail=True)
        s.vectorize(last)
        if unroll:
            s.unroll(*longer(s, rows))
        finish(s, task, reader.name, loop, width, unroll)


def share(s: Schedule, task: Task, loops: Sequence[str], tiled: str | None = None) -> None:
    """Shares loops that are nested in one another among threads, and with them, if they are few, the next one inside.

    `tiled` is that next one, the outer part of a split that may have a tail.  It is best alone: a tail is cut off from
    a loop, but not from one that was fused with others.
    """
    if task.target.threads == 1:
        return
    long = longer(s, loops)
    enough = any(extent(s, x) is None for x in long) or extents(s, long) >= 4 * task.target.threads
    chosen = long if len(long) < 2 else list(loops)
    if tiled is not None and not enough:
        chosen = [*loops, tiled] if long else [tiled]
    if chosen:
        fuse_parallel(s, chosen)
