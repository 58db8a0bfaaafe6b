"""Sums over windows (depthwise and grouped convolutions, pools, sums of columns): neighbouring outputs share lanes.

    cores over channels * tiles * the sum * taps (unrolled) * rows (unrolled) * lanes

A padded input is computed channel by channel, where it stays in cache, or taken apart where it is read.
"""

from __future__ import annotations

from collections.abc import Iterator

from searchlab.ir.algebra import ceildiv
from searchlab.ir.expr import Expr, compare, index, knob, value_of
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block
from searchlab.schedule import Schedule
from searchlab.search import Sketch, Task, menu
from searchlab.tactics import gather_inputs, join_epilogues, operands, side_by_side, space_axes, work
from spaces.task_mapping.anchor import extent_of
from spaces.task_mapping.finish import finish_rest
from spaces.task_mapping.fusion import fuse_prologue
from spaces.task_mapping.mapping import product, repeat, spatial
from spaces.task_mapping.place import extents, place, shape, share

ROWS, VECTORS = knob("rows"), knob("vectors")
_TAPS = 64  # taps that are written out at most


def window(program: Program) -> Block | None:
    """The largest stage that sums over windows, neighbouring outputs from neighbouring inputs.

    Where rows of the output have one element, there are no neighbours.
    """
    found = [b for b in program.blocks.values() if b.reduces and len(space_axes(b)) >= 2 and side_by_side(b)]
    return max((b for b in found if extent_of(b, len(space_axes(b)) - 1) > 1), key=work, default=None)


def window_sketches(task: Task, start: Schedule, b: Block) -> Iterator[Sketch]:
    """With padded inputs in cache, and with padding taken apart where it is read."""
    yield _sketch(task, start, b, "windows")
    feeding = [x.name for x in start.program.blocks.values() if x.store.buffer in {ld.buffer for ld in operands(b)}]
    for name in feeding:
        fused = Schedule(fuse_prologue(start.program, name))
        yield _sketch(task, fused, fused.program.blocks[b.name], f"windows-with-{name}")


def _sketch(task: Task, start: Schedule, b: Block, name: str) -> Sketch:
    s = Schedule(start.program)
    count, rank = len(space_axes(b)), len(b.iters)
    row, vector, around = count - 2, count - 1, list(range(count - 2))
    whole = shape(s, b.name)
    lanes = task.target.lanes(s.program.buffers[b.store.buffer].dtype)
    taps = _taps(b)
    tiles = {row: ceildiv(whole[row], ROWS), vector: ceildiv(whole[vector], VECTORS * lanes)}
    outer = {d: whole[d] for d in around} if around else {row: tiles.pop(row)}
    mapping = (
        spatial(*extents(rank, outer))
        * repeat(*extents(rank, tiles))
        * repeat(*extents(rank, {d: whole[d] for d in range(count, rank) if d not in taps}))
        * repeat(*extents(rank, {d: whole[d] for d in taps}), kind="unrolled")
        * repeat(*extents(rank, {row: ROWS}), kind="unrolled")
        * repeat(*extents(rank, {vector: VECTORS * lanes}), kind="vectorized")
    )
    loops = place(s, b.name, mapping)
    if around:
        gather_inputs(s, loops[0][-1])
    join_epilogues(s, b.name, loops[1][-1])
    share(s, loops[0], task.target.threads)
    finish_rest(s, task.target)
    knobs = (menu("rows", [1, 2, 4, 8]), menu("vectors", [1, 2, 4, 8]))
    return Sketch(name, knobs, (_fits(task, taps, whole),), s.program)


def _taps(b: Block) -> list[int]:
    """The last axes of the sum that are short enough to be written out."""
    found: list[int] = []
    total = 1
    for d in reversed(range(len(space_axes(b)), len(b.iters))):
        total *= extent_of(b, d)
        if total > _TAPS:
            break
        found.append(d)
    return sorted(found)


def _fits(task: Task, taps: list[int], whole: list[Expr]) -> Expr:
    """Accumulators leave two registers for operands, and the unrolled taps do not grow without bounds."""
    written = value_of(product(whole[d] for d in taps)) or 1
    most = min(task.target.vector_registers - 2, max(4, 1024 // written))
    return compare("le", ROWS * VECTORS, index(most))
