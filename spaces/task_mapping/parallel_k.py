"""Parallel-k: the sum of a matrix product cut into parts that run as one more batch axis, then added up.

It pays where there are fewer tiles of the output than cores can share.
"""

from __future__ import annotations

import math
from dataclasses import replace

from searchlab.ir.expr import Like
from searchlab.schedule import Schedule
from searchlab.tactics import ProductView, axis_loops, operands
from spaces.task_mapping.anchor import extent_of

_SHORTEST = 384  # sums below this are not worth the extra pass
_TILE = 64  # the output of one block, for the estimate of their number
_MOST = 16


def parts_by_rule(batch: int, m: int, n: int, k: int, cores: int) -> int:
    """Into how many parts the rule cuts a sum of length k."""
    if k < _SHORTEST:
        return 1
    if m == 1 or n == 1:
        return math.gcd(_MOST, k)
    blocks = batch * -(-m // _TILE) * -(-n // _TILE)
    return math.gcd(next((p for p in (8, 4, 2) if blocks * p <= 5 * cores), 1), k)


def parts_to_try(k: int) -> list[int]:
    """The numbers of equal parts that a search tries: all up to 16."""
    return [p for p in range(2, _MOST + 1) if k % p == 0]


def sizes(s: Schedule, view: ProductView) -> tuple[int, int, int, int]:
    """Batch, rows, columns and the length of the first axis of the sum."""
    b = s.program.blocks[view.block]
    space = [n for n, it in enumerate(b.iters) if it.kind == "space"]
    around = math.prod(extent_of(b, n) for n in space if n not in (view.row, view.vector))
    return around, extent_of(b, view.row), extent_of(b, view.vector), extent_of(b, len(space))


def cut_sum(s: Schedule, view: ProductView, parts: Like) -> str:
    """Cuts the first axis of the sum; the name of the stage of partial sums, whose first axis counts the parts."""
    _, sums = axis_loops(s, view.block)
    outer, _ = s.split(sums[0], [parts, None])
    return s.rfactor(outer, axis=0)


def cut_view(s: Schedule, view: ProductView, partial: str) -> ProductView:
    """The view of the stage of partial sums, whose other axes are those of the product."""
    (operand,) = (ld for ld in operands(s.program.blocks[partial]) if ld.buffer == view.operand.buffer)
    return replace(view, block=partial, operand=operand)
