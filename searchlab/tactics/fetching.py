"""Fetching ahead: a program that goes row by row prefetches the next row of its inputs while it works on this one."""

from __future__ import annotations

from searchlab.ir.expr import value_of
from searchlab.ir.stmt import Block
from searchlab.ir.walk import walk
from searchlab.schedule import Schedule
from searchlab.schedule.primitive import consumers
from searchlab.tactics.axes import moves_with, operands

_LONG_ROW = 256  # elements; the hardware prefetcher already covers shorter rows


def next_rows(s: Schedule) -> dict[str, str]:
    """The inputs worth fetching ahead, and the stage to do it in: that with the most arithmetic, which hides latency.

    There are none unless several stages are computed inside one loop, the loop over rows.
    """
    row = _row(s)
    if len(s.program.blocks) < 2 or row is None:
        return {}
    found = {}
    for name in s.program.inputs:
        readers = [b for b in consumers(s.program, name) if row in s.loops(b.name) and _moves_by_rows(b, name)]
        columns = value_of(s.program.buffers[name].shape[-1])
        if readers and (columns is None or columns >= _LONG_ROW):
            found[name] = max(readers, key=lambda b: sum(1 for _ in walk(b.store.value))).name
    return found


def fetch_next_rows(s: Schedule) -> None:
    """Prefetches the next row of every input that is worth it; the loops have their final structure by then."""
    row = _row(s)
    for name, stage in next_rows(s).items():
        assert row is not None
        s.prefetch(stage, name, row, 1)


def goes_row_by_row(s: Schedule) -> bool:
    """Whether all stages are computed inside the loop over rows, and inputs are worth fetching ahead."""
    nests = [s.loops(n) for n in s.program.blocks]
    return all(nest[:1] == nests[-1][:1] for nest in nests) and bool(next_rows(s))


def _row(s: Schedule) -> str | None:
    """The innermost loop around all the stages that are in the outermost loop of the last one."""
    nests = [s.loops(n) for n in s.program.blocks]
    together = [nest for nest in nests if nest[:1] == nests[-1][:1]]
    shared = [lp for lp in nests[-1] if all(lp in nest for nest in together)]
    return shared[-1] if shared and len(together) > 1 else None


def _moves_by_rows(b: Block, buffer: str) -> bool:
    """Whether a stage reads different elements of a buffer in each iteration of its first axis."""
    read = [ld for ld in operands(b) if ld.buffer == buffer]
    return any(moves_with(ld, it.var) for it in b.iters[:1] for ld in read)
