"""All stages of a program of rows as one kernel: a block for a row or some rows, whose threads share sums.

for i in rows blockIdx.x:                                     softmax
  for t in 128 threadIdx.x: part[t] = max of X[i, t], X[i, t + 128] ...
  for t in 128 threadIdx.x: M = max(M, part[t])               threads exchange their parts
  for t in 128 threadIdx.x: E[t] = exp(X[i, t] - M) ...       in shared memory
  ...
"""

from __future__ import annotations

from math import prod

from searchlab.dtype import DTYPES
from searchlab.errors import ScheduleError
from searchlab.ir.expr import Like, index, value_of
from searchlab.ir.program import Program
from searchlab.ir.sums import as_sum
from searchlab.schedule import Schedule
from searchlab.tactics.axes import axis_loops, loops_by_kind, loops_inside, reduce_axes, space_axes, stores_plainly

_X, _Y = "threadIdx.x", "threadIdx.y"
_BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")


def row_bytes(program: Program) -> int | None:
    """The bytes that stages of a program of rows pass to each other for one row; None if it is no program of rows.

    In one, the last stage makes rows, others make rows or an element of every row, and there are sums along rows.
    """
    *others, last = program.blocks.values()
    if last.reduces or not any(b.reduces for b in others) or not 2 <= len(last.iters) <= 1 + len(_BLOCKS):
        return None
    *rows, columns = (it.extent for it in last.iters)
    held = 0
    for b in others:
        whole, sums = [it.extent for it in space_axes(b)], [it.extent for it in reduce_axes(b)]
        sides = [value_of(e) for e in whole[len(rows) :]]
        fits = whole[: len(rows)] == rows and None not in sides and stores_plainly(b)
        if not fits or len(sides) > (0 if sums else 1) or sums not in ([], [columns]):
            return None
        if sums and as_sum(b.store) is None:
            return None
        held += prod(side or 1 for side in sides) * DTYPES[program.buffers[b.store.buffer].dtype].bytes
    return held


def rows_in_blocks(s: Schedule, threads: Like, rows: Like = 1) -> None:
    """Computes a program of rows in one kernel, `threads` for every row, and as many `rows` in a block.

    These must divide the rows of the program.  Raises ScheduleError where stages cannot be computed row by row.
    """
    *others, last = s.program.blocks
    parts = {name: _in_parts(s, name, threads) for name in others if s.program.blocks[name].reduces}
    (*outer, column), _ = axis_loops(s, last)
    row, inner = outer[-1], outer[-1]
    if rows != 1:
        row, inner = s.split(row, [None, rows])
    stages = [x for x in s.program.blocks if x != last]
    for name in reversed(stages):
        s.compute_at(name, inner)
    for name in stages:
        _share_row(s, name, inner, threads, parts)
    _, mine = s.split(column, [None, threads], tail=True)
    s.bind(mine, _X)
    if inner != row:
        s.bind(inner, _Y)
    for loop, axis in zip(reversed([*outer[:-1], row]), _BLOCKS, strict=False):
        s.bind(loop, axis)


def _in_parts(s: Schedule, name: str, threads: Like) -> str:
    """Cuts the sums of a stage into a part for every thread; the stage that adds up parts."""
    _, (along,) = axis_loops(s, name)
    _, mine = s.split(along, [None, threads], tail=True)
    return s.rfactor(mine)


def _share_row(s: Schedule, name: str, row: str, threads: Like, parts: dict[str, str]) -> None:
    """Gives what a stage computes of a row to threads: an element after the other, a part of a sum, or all parts."""
    loops = loops_inside(s, name, row)
    space, sums = loops_by_kind(s, name, loops)
    if name in parts:  # adds up the parts
        s.bind(sums[0], _X)
    elif name in parts.values():
        mine = next(lp for lp in space if s.program.loops[lp].extent == index(threads))
        s.reorder(*space, *sums)
        s.bind(mine, _X)
    elif len(space) > 1 or (space and value_of(s.program.loops[space[-1]].extent) != 1):
        _, mine = s.split(space[-1], [None, threads], tail=True)
        s.bind(mine, _X)
    elif sums:
        raise ScheduleError(f"'{name}' has sums that are not along rows")
