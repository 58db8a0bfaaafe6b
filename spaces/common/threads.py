"""Stages that are not tiled, on GPUs: a thread for every element, or a block for every sum or row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from searchlab.ir.expr import Expr, Like, compare, index
from searchlab.ir.loopkind import BLOCKS
from searchlab.ir.program import Program
from searchlab.schedule import Schedule
from searchlab.tactics import (
    bind_elements,
    reduce_axes,
    row_bytes,
    rows_in_blocks,
    space_axes,
    stores_plainly,
    sum_with_threads,
)
from searchlab.tactics.block_tiling import MOST_OWN, ThreadBlockTile
from searchlab.targets import CudaTarget
from searchlab.targets.cuda import STATIC_SHARED
from spaces.common.predicates import is_associative, points

Menu = Callable[[str, Sequence[int]], Like]
"""(name, values) -> a symbol for one of them."""

BLOCK_SIZES = (32, 64, 128, 256, 512)
ROWS = (1, 2, 4, 8)  # that a block has
LANES = (1, 2, 4)  # elements that one access copies
CALL_LANES = (2, 4, 8)  # the same, of operands of calls, which are shorter
_WARP = 32
_LONG = 64  # terms, from which on threads may share a sum


def block_sizes(count: int) -> tuple[int, ...]:
    """Numbers of threads for so many elements: none that leaves whole warps idle, and at least one."""
    warps = -(-count // _WARP) * _WARP
    return tuple(n for n in BLOCK_SIZES if n <= warps)


def unbound(program: Program) -> list[str]:
    """The stages that no block runs yet."""
    schedule = Schedule(program)
    kinds = {lp.name: lp.kind for lp in program.loops.values()}
    return [n for n in program.blocks if not any(kinds[lp] in BLOCKS for lp in schedule.loops(n))]


def can_share_sums(program: Program, name: str) -> bool:
    """Whether threads can add up the sums of a stage together, which are long enough for that."""
    b = program.blocks[name]
    if not b.reduces or not is_associative(b) or not space_axes(b) or not stores_plainly(b):
        return False
    return points(reduce_axes(b)) >= _LONG


def share_sums(s: Schedule, name: str, menu: Menu) -> None:
    """A block for every sum of a stage."""
    sum_with_threads(s, name, menu(f"{name}_threads", block_sizes(points(reduce_axes(s.program.blocks[name])))))


def can_share_rows(program: Program, target: CudaTarget) -> bool:
    """Whether stages follow each other row by row, so that one kernel can do for a row what they do."""
    held = row_bytes(program) if target.shuffles else None
    return held is not None and held <= _most_shared(target)


def share_rows(s: Schedule, menu: Menu, target: CudaTarget) -> list[Expr]:
    """A block for a row or some rows, with all stages; the conditions under which it fits."""
    held = row_bytes(s.program) or 0
    *_, rows, columns = (it for it in list(s.program.blocks.values())[-1].iters)
    threads = menu("row_threads", block_sizes(points((columns,))))
    together = menu("rows_together", [n for n in ROWS if points((rows,)) % n == 0])
    rows_in_blocks(s, threads, together)
    return [
        compare("le", index(threads) * together, target.threads_per_block),
        compare("le", index(together) * held, _most_shared(target)),
    ]


def _most_shared(target: CudaTarget) -> int:
    return min(STATIC_SHARED, target.shared_per_block)


def bind_rest(s: Schedule, menu: Menu) -> None:
    """A thread for every element of all stages that no block runs yet, each stage a kernel."""
    for name in unbound(s.program):
        if name in s.program.blocks and space_axes(s.program.blocks[name]):
            bind_elements(s, name, menu(f"{name}_threads", block_sizes(points(space_axes(s.program.blocks[name])))))


def tile_limits(program: Program, name: str, tile: ThreadBlockTile, target: CudaTarget) -> list[Expr]:
    """The conditions of a tiled stage: what the target demands, and at least a warp where there is work for some."""
    least = _WARP if points(space_axes(program.blocks[name])) >= _WARP * _WARP else 1
    return [*tile.limits(target), compare("le", least, tile.threads), compare("le", tile.steps, MOST_OWN)]
