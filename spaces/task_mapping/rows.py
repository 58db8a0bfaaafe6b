"""Everything that is not a sum of products: windows, reductions, normalisations, elementwise chains.

Stages run row by row, so that what one writes is in cache when the next one reads it, or each by itself; lanes hold
neighbouring outputs, or partial results of a sum along the last axis.
"""

from __future__ import annotations

from collections.abc import Iterator

from searchlab.ir.expr import Expr, knob
from searchlab.ir.stmt import Block
from searchlab.schedule import Schedule
from searchlab.search import Knob, Sketch, Task, menu
from searchlab.tactics import (
    axis_loops,
    contiguous_reduction,
    fetch_next_rows,
    gather_rows,
    goes_row_by_row,
    side_by_side,
    space_axes,
    vectorize_outputs,
)
from spaces.task_mapping.place import share

VECTORS, CHUNK, UNROLL, PARTS = knob("vectors"), knob("chunk"), knob("unroll"), knob("parts")


def row_sketches(task: Task, start: Schedule) -> Iterator[Sketch]:
    """Row by row, also with the next row fetched ahead; each stage by itself; and with the cores sharing a sum."""
    yield _rows(task, start, together=True)
    if (ahead := _ahead(task, start)) is not None:
        yield ahead
    if len(start.program.blocks) > 1:
        yield _rows(task, start, together=False)
    sums = [b for b in start.program.blocks.values() if b.reduces and not side_by_side(b)]
    if len(sums) == 1 and task.target.threads > 1:
        yield _shared(task, start, sums[0])


def _rows(task: Task, start: Schedule, together: bool) -> Sketch:
    s = Schedule(start.program)
    last = list(s.program.blocks)[-1]
    if together:
        gather_rows(s)
    for name in list(s.program.blocks):
        _stage(s, task, name, inside=together and name != last and _is_inside(s, name, last))
    for name in s.program.blocks:
        s.annotate(name, "unroll_up_to", UNROLL)
    knobs = [menu("vectors", [1, 2, 4, 8]), menu("chunk", [1, 4, 16]), menu("unroll", [1, 16, 64])]
    return Sketch("rows" if together else "stages", _used(s, knobs), (), s.program)


def _ahead(task: Task, start: Schedule) -> Sketch | None:
    """The rows, with the next row of the inputs fetched while this one is worked on, if that is worth it."""
    made = _rows(task, start, together=True)
    assert made.program is not None
    s = Schedule(made.program)
    if not goes_row_by_row(s):
        return None
    fetch_next_rows(s)
    return Sketch("rows-ahead", made.knobs, made.constraints, s.program)


def _shared(task: Task, start: Schedule, b: Block) -> Sketch:
    """The sum is cut into parts that the cores share, for outputs that are fewer than the cores."""
    s = Schedule(start.program)
    count = len(space_axes(b))
    outer, _ = s.split(s.loops(b.name)[count], [PARTS, None], tail=True)
    partial = s.rfactor(outer, axis=0)
    made = s.program.blocks[partial]
    loops = s.loops(partial)
    _sum_in_lanes(s, made, loops[count + 1 :], VECTORS * task.target.lanes(s.program.buffers[partial].dtype))
    share(s, loops[: count + 1], task.target.threads)
    for name in list(s.program.blocks):
        if name != partial:
            _stage(s, task, name, inside=False)
    knobs = [menu("vectors", [1, 2, 4, 8]), menu("parts", [2, 4, 16]), menu("chunk", [1, 16])]
    return Sketch("shared-sum", _used(s, knobs), (), s.program)


def _used(s: Schedule, knobs: list[Knob]) -> tuple[Knob, ...]:
    names = {v.name for v in s.program.symbols}
    return tuple(k for k in knobs if k.name in names)


def _is_inside(s: Schedule, name: str, last: str) -> bool:
    return s.loops(name)[:1] == s.loops(last)[:1]


def _stage(s: Schedule, task: Task, name: str, inside: bool) -> None:
    """One stage: rows for the cores, in chunks; outputs, or parts of the sum, in lanes."""
    b = s.program.blocks[name]
    width = VECTORS * task.target.lanes(s.program.buffers[b.store.buffer].dtype)
    space, reduce = axis_loops(s, name)
    if reduce and not side_by_side(b):
        _sum_in_lanes(s, b, reduce, width)
    elif space:
        space = [*space[:-1], vectorize_outputs(s, space[-1], reduce, width)]
    if not inside and space:
        _divide(s, space, task.target.threads)


def _sum_in_lanes(s: Schedule, b: Block, reduce: list[str], width: Expr) -> None:
    """One partial result per lane, along the axis that lies side by side."""
    lane = contiguous_reduction(b, reduce)
    if lane is None:
        return
    outer, inner = s.split(lane, [None, width], tail=True)
    rest = [r for r in reduce if r != lane]
    if rest:
        s.reorder(*rest, outer, inner)
    s.vectorize(inner)


def _divide(s: Schedule, loops: list[str], threads: int) -> None:
    """Chunks of rows for the cores."""
    if threads < 2:
        return
    rows = loops[:-1] or loops
    outer, _ = s.split(s.fuse(*rows) if len(rows) > 1 else rows[0], [None, CHUNK], tail=True)
    s.parallel(outer)
