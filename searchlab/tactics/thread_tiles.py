"""Schedules for GPUs: elements, tiles of products and sums given to the threads of blocks.

Loops of threads follow each other inside the loops of blocks, one for each stage: a tile of an operand is copied to
shared memory by all threads, then each computes a small tile of the result, which it keeps in registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from searchlab.ir.expr import Like, index, value_of
from searchlab.ir.loopkind import BLOCKS
from searchlab.ir.stmt import Block
from searchlab.ir.walk import loads, variables
from searchlab.schedule import Schedule
from searchlab.tactics.attempts import attempt
from searchlab.tactics.axes import space_axes
from searchlab.tactics.block_tiling import AxisSplit, Digit, stage_for_block, tile_for_blocks
from searchlab.tactics.intrinsic_views import call_views
from searchlab.tactics.row_blocks import row_bytes, rows_in_blocks
from searchlab.tactics.value_ranges import Span
from searchlab.tactics.warp_tiles import WarpTiles, tile_view_for_warps
from searchlab.targets import CudaTarget, Target
from searchlab.targets.cuda import STATIC_SHARED, WARP

_X = "threadIdx.x"
_KINDS = ("space", "reduce")
_MANY = 256  # elements, from which on a block is worth a tile, and threads need not share sums
_LONG = 64  # terms of a sum that threads share
_WIDE = 64  # rows and columns of a block of many calls
_SHORT = 128  # elements of a row that one warp goes through


@dataclass(frozen=True)
class ThreadTiles:
    """How a product is cut: threads of a block, rows and columns of each thread, and the depth of a step.

    `lanes` values are copied by one access where rows of operands allow it.
    """

    threads: tuple[int, int] = (8, 8)
    each: tuple[int, int] = (4, 4)
    depth: int = 8
    lanes: int = 4

    @property
    def rows(self) -> int:
        """Rows of the result that a block computes."""
        return self.threads[0] * self.each[0]

    @property
    def columns(self) -> int:
        """Columns of the result that a block computes."""
        return self.threads[1] * self.each[1]


def bind_elements(s: Schedule, block: str, threads: Like = 128) -> None:
    """Gives every element of a stage to a thread of its own, which adds up its sum, if it is one."""
    space = _loops(s, block, "space")
    if not space:
        return
    long = [lp for lp in space if value_of(s.program.loops[lp].extent) != 1] or space[:1]
    if len(s.loops(block)) > 1:
        s.reorder(*long, *(lp for lp in space if lp not in long), *_loops(s, block, "reduce"))
    fused = s.fuse(*long) if len(long) > 1 else long[0]
    elements = value_of(s.program.loops[fused].extent)
    if isinstance(threads, int) and elements is not None:
        threads = min(threads, elements)
    outer, inner = s.split(fused, [None, threads], tail=True)
    s.bind(outer, "blockIdx.x")
    s.bind(inner, _X)


def is_plain_product(block: Block) -> bool:
    """Whether a stage is a product of two matrices: rows, columns and one sum, each in two of the three arrays."""
    kinds = [it.kind for it in block.iters]
    if sorted(kinds) != ["reduce", "space", "space"] or block.init is None:
        return False
    i, j, k = (*(it.var for it in block.iters if it.kind == "space"), _summed(block))
    read = [ld for ld in loads(block.store.value) if ld.buffer != block.store.buffer]
    pairs = [{v for e in ld.indices for v in variables(e)} for ld in read]
    return len(read) == 2 and sorted(map(len, pairs)) == [2, 2] and {i, k} in pairs and {j, k} in pairs


def _summed(block: Block) -> object:
    return next(it.var for it in block.iters if it.kind == "reduce")


def tile_for_threads(s: Schedule, block: str, tiles: ThreadTiles) -> None:
    """Computes a product of two matrices in tiles of blocks and threads, with operands in shared memory.

    Sizes that tiles do not divide are padded with zeros as operands are copied, and cropped as results are stored.
    """
    b = s.program.blocks[block]
    i, j = (it.var.name for it in b.iters if it.kind == "space")
    staged = stage_for_block(s, block, {i: tiles.rows, j: tiles.columns, str(_summed(b)): tiles.depth})
    (rows, columns), (k,) = _loops(s, staged.block, "space"), _loops(s, staged.block, "reduce")
    splits = [
        AxisSplit(
            loop,
            [None, tiles.threads[n], tiles.each[n]],
            (Digit("block", axis), Digit("thread", axis), Digit("own", rank=1 + n)),
        )
        for n, (loop, axis) in enumerate(((rows, "y"), (columns, "x")))
    ]
    splits.append(AxisSplit(k, [None, tiles.depth], (Digit("step"), Digit("own"))))
    even = all(side * tiles.depth % tiles.lanes == 0 for side in (tiles.rows, tiles.columns))
    tile_for_blocks(s, staged, splits, tiles.lanes if even else 1)


def sum_with_threads(s: Schedule, block: str, threads: Like = 64) -> None:
    """Gives each sum of a stage to a block: its threads add up parts of the sum, and exchange these."""
    reduction = _loops(s, block, "reduce")
    k = s.fuse(*reduction) if len(reduction) > 1 else reduction[0]
    _, mine = s.split(k, [None, threads], tail=True)
    part = s.rfactor(mine)
    space = _loops(s, block, "space")
    outer = s.fuse(*space) if len(space) > 1 else space[0]
    s.compute_at(part, outer)
    own, carried = (_own(s, part, outer, kind) for kind in _KINDS)
    s.reorder(*own, *carried)  # threads outside of what each adds up
    s.bind(next(lp for lp in own if s.program.loops[lp].extent == index(threads)), _X)
    s.bind(_loops(s, block, "reduce")[0], _X)
    s.bind(outer, "blockIdx.x")


def schedule_for_threads(s: Schedule, target: CudaTarget, ranges: Mapping[str, Span] | None = None) -> None:
    """A schedule for any program: tiles of products, blocks for rows and long sums, threads for all other elements.

    Products of short numbers are calls of tensor cores, where the target has them.
    """
    held = row_bytes(s.program) if target.shuffles else None
    if held is not None and held <= STATIC_SHARED and _by_rows(s):
        return
    for name in list(s.program.blocks):
        if name not in s.program.blocks or _is_bound(s, name):  # it follows a product, and is part of its tiles
            continue
        b = s.program.blocks[name]
        space, sums = (prod(value_of(it.extent) or 1 for it in b.iters if it.kind == kind) for kind in _KINDS)
        if _by_calls(s, name, target, ranges):
            continue
        if is_plain_product(b) and space >= _MANY:
            tile_for_threads(s, name, ThreadTiles())
        elif target.shuffles and _shares_sums(s, name) and sums >= _LONG and space < _MANY:
            sum_with_threads(s, name)
        else:
            bind_elements(s, name)


def _shares_sums(s: Schedule, name: str) -> bool:
    return len(_loops(s, name, "reduce")) == 1 and bool(_loops(s, name, "space"))


def _by_rows(s: Schedule) -> bool:
    """A warp for each short row, some of them in a block, or a block for each long one; whether that was possible."""
    *rows, columns = (value_of(it.extent) or 1 for it in list(s.program.blocks.values())[-1].iters)
    trial = Schedule(s.program)
    threads = WARP if columns <= _SHORT else _MANY // 2 if columns <= 8 * _SHORT else _MANY
    together = next(n for n in (4, 2, 1) if rows[-1] % n == 0) if threads == WARP else 1
    if not attempt(rows_in_blocks, trial, threads, together):
        return False
    s.program = trial.program
    return True


def _by_calls(s: Schedule, name: str, target: Target, ranges: Mapping[str, Span] | None) -> bool:
    """Tiles of calls of tensor cores, larger ones for a large product; whether there are such calls."""
    b = s.program.blocks[name]
    views = call_views(s.program, name, target, ranges) if b.reduces else ()
    if not views:
        return False
    (view, *_), trial = views, Schedule(s.program)
    sides = [value_of(space_axes(b)[n].extent) or 1 for n in (view.row, view.column)]
    cut = WarpTiles((2, 2), (2, 4), 2, double_buffer=True) if min(sides) >= _WIDE else WarpTiles((2, 1), (1, 2))
    if not attempt(tile_view_for_warps, trial, view, cut):
        return False
    s.program = trial.program
    return True


def _is_bound(s: Schedule, block: str) -> bool:
    return any(s.program.loops[lp].kind in BLOCKS for lp in s.loops(block))


def _own(s: Schedule, block: str, outer: str, kind: str) -> list[str]:
    inside = s.loops(block)
    inside = inside[inside.index(outer) + 1 :]
    return [lp for lp in _loops(s, block, kind) if lp in inside]


def _loops(s: Schedule, block: str, kind: str) -> list[str]:
    """The loops of a stage that run over its elements, or over its sums."""
    b = s.program.blocks[block]
    names = {v for it, e in zip(b.iters, b.bindings, strict=True) if it.kind == kind for v in variables(e)}
    return [lp for lp in s.loops(block) if s.program.loops[lp].var in names]
