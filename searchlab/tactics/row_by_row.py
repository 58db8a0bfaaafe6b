"""Row by row: schedules of stages that use what they read once, so that the next stage finds results in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from searchlab.ir.stmt import Block
from searchlab.schedule import Schedule
from searchlab.tactics.attempts import attempt
from searchlab.tactics.axes import axis_loops
from searchlab.tactics.fetching import fetch_next_rows
from searchlab.tactics.placing import gather_rows, meets_only_at_elements
from searchlab.tactics.sharing import JOBS, assumed_extent, parallelize
from searchlab.tactics.vectors import contiguous_reduction, reduces_as_one, side_by_side, vectorize_outputs
from searchlab.targets import Target


def schedule_row_by_row(s: Schedule, target: Target) -> None:
    """Computes all stages for one row after the other, or for a vector after the other if there are few rows."""
    *others, last = s.program.blocks
    if meets_only_at_elements(s.program) and _rows(s, last) < JOBS * target.threads:
        _vector_by_vector(s, others, last, target)
        return
    row = gather_rows(s)
    for name in list(s.program.blocks):
        schedule_plainly(s, name, target, inside=name != last and row in s.loops(name))
    if len(s.program.blocks) > 1 and row is not None:
        fetch_next_rows(s)


def _rows(s: Schedule, name: str) -> int:
    """The number of rows of a stage: iterations of all loops but the last long one, along which its vectors run."""
    extents = [assumed_extent(s, lp) for lp in axis_loops(s, name)[0]]
    return prod(extents) // max(1, next((e for e in reversed(extents) if e > 1), 1))


def _vector_by_vector(s: Schedule, others: Sequence[str], last: str, target: Target) -> None:
    """Computes what a vector of the last stage needs just before it: there are too few rows for all threads."""
    space, _ = axis_loops(s, last)
    lanes = target.lanes(s.program.buffers[s.program.blocks[last].store.buffer].dtype)
    long = next((lp for lp in reversed(space) if assumed_extent(s, lp) > 1), space[-1])
    outer, vector = s.split(long, [None, lanes], tail=True)
    space[space.index(long)] = outer
    s.reorder(*space, vector)
    for name in reversed(others):
        attempt(s.compute_at, name, space[-1])
    s.vectorize(vector)
    for name in others:
        schedule_plainly(s, name, target, inside=space[-1] in s.loops(name))
    parallelize(s, space, target)


def schedule_plainly(s: Schedule, name: str, target: Target, inside: bool = False) -> None:
    """Schedules one stage: outer loops parallel, innermost axis vectorised."""
    b = s.program.blocks[name]
    if not b.iters:
        return
    width = target.lanes(s.program.buffers[b.store.buffer].dtype)
    space, reduction = axis_loops(s, name)
    if reduction and not side_by_side(b):
        _sum_in_lanes(s, b, reduction, width)
    elif space:
        columns = assumed_extent(s, space[-1])
        if columns == 1:
            return
        outer = vectorize_outputs(s, space[-1], reduction, min(4 * width, max(width, columns)))
        space = [*space[:-1], outer]
    if not inside:
        parallelize(s, space, target)


def _sum_in_lanes(s: Schedule, b: Block, reduction: list[str], width: int) -> None:
    """Keeps partial results in up to four vectors along the contiguous reduction axis, if it is long enough.

    Short axes that lie one behind the other in memory, such as rows and columns of a small image, become one.
    """
    lane = contiguous_reduction(b, reduction)
    if lane is not None and assumed_extent(s, lane) < width and reduces_as_one(s.program, b):
        lane = s.fuse(*reduction)
        reduction = [lane]
    if lane is None or assumed_extent(s, lane) < width:
        return
    outer, inner = s.split(lane, [None, min(4, -(-assumed_extent(s, lane) // width)) * width], tail=True)
    attempt(s.reorder, *(outer if r == lane else r for r in reduction), inner)
    attempt(s.vectorize, inner)
