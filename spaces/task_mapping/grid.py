"""Task mappings on GPUs: products by the hardware's shapes, and a worker for every element or sum of all else.

    rows = block * (warps, repeat(warp_outer), lanes, repeat(4), lanes inside)      columns the same, the sum in steps

Tiles need not divide the input: operands are filled up with zeros as they are copied to shared memory, and results are
cut off as they are stored.  So the space of a product is the same for every size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from searchlab.errors import ScheduleError
from searchlab.ir.expr import Like, knob
from searchlab.schedule import Schedule
from searchlab.search import Knob, Sketch, Space, Task, menu
from searchlab.search.wishes import Wish, Wished
from searchlab.tactics import (
    IntrinsicView,
    ProductView,
    attempt,
    axis_loops,
    inline_cheap,
    operands,
    product_views,
)
from searchlab.tactics.block_tiling import AxisSplit, Digit, stage_for_block, tile_for_blocks
from searchlab.targets import CudaTarget
from searchlab.targets.cuda import STATIC_SHARED
from spaces.common import (
    Intrinsics,
    bind_rest,
    can_share_rows,
    can_share_sums,
    loops_compete,
    searched_views,
    share_rows,
    share_sums,
)
from spaces.task_mapping.anchor import anchor, views
from spaces.task_mapping.menus import Menus
from spaces.task_mapping.parallel_k import cut_sum, cut_view, parts_by_rule, parts_to_try, sizes
from spaces.task_mapping.pixels import as_columns
from spaces.task_mapping.simt import WARP_INNER, MultiprocessorLimits, simt_conditions, simt_knobs
from spaces.task_mapping.warps import warp_sketch

_MULTIPROCESSORS = 108  # of the largest sm_80 device, for the rule of parallel-k

# warps of a block, tiles of a warp, and the depth of a step, of what is tried first
_FIRST = (((2, 4), (2, 2), 8), ((2, 2), (2, 2), 8), ((2, 2), (1, 2), 8), ((1, 2), (2, 1), 4))
_FIRST_CALLS = (((2, 2), (4, 4), 2), ((2, 2), (2, 4), 2), ((2, 4), (4, 4), 1), ((1, 2), (2, 2), 2))


def grid_sketches(task: Task, target: CudaTarget, parallel_k: str, intrinsics: Intrinsics) -> Iterator[Sketch]:
    """Products in tiles of warps, or else a thread for every element, and a block for every sum."""
    start = Schedule(task.program)
    inline_cheap(start)
    b = anchor(start.program)
    found = [v for v in views(b, 0) if v.contiguous] if b is not None else []
    if found:
        yield from _GridProducts(task, target, parallel_k, intrinsics).sketches(start, found[0])
        return
    if can_share_rows(start.program, target):
        yield from _rows_in_blocks(start, target)
    yield _elements(start)
    shared = [n for n in start.program.blocks if can_share_sums(start.program, n)]
    if shared:
        yield _shared_sums(start, shared)


def grid_wishes(space: Space) -> Iterator[Wish]:
    """What a person would try first: tiles of 128 x 128 and 64 x 64, and blocks of 128 and 256 threads."""
    for sketch in space.sketches:
        threads = [k.name for k in sketch.knobs if k.name.endswith("_threads")]
        if sketch.name.startswith("simt"):
            for warps, outer, depth in _FIRST:
                tile: dict[str, Wished] = {"block_warps": warps, "warp_outer": outer, "depth": (depth, 1), "parts": 2}
                yield Wish(sketch.name, tile | dict.fromkeys(threads, 128))
        elif sketch.name.startswith("warps"):
            for warps, tiles, calls in _FIRST_CALLS:
                tile = {"block_warps": warps, "warp_tiles": tiles, "calls": calls, "parts": 2}
                yield Wish(sketch.name, tile | dict.fromkeys(threads, 128))
        else:
            for count in (128, 256, 64):
                yield Wish(sketch.name, dict.fromkeys(threads, count))


# --- products ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _GridProducts:
    """The sketches of products: by calls of an instruction of warps where there is one, else by plain loops."""

    task: Task
    target: CudaTarget
    parallel_k: str
    intrinsics: Intrinsics

    def sketches(self, start: Schedule, view: ProductView) -> Iterator[Sketch]:
        """All sketches of a product, at least one."""
        if not view.plain:
            # the trace would not lead from the task's program to this one: the columns were written, not scheduled
            made = [replace(x, program=replace(x.program, trace=())) for x in self._pixels(start, view) if x.program]
            yield from made or [_elements(start)]
            return
        calls = self.calls(start, view)
        yield from list(self.tiled(start, view, calls, "")) or [_elements(start)]
        batch, m, n, k = sizes(start, view)
        by_rule = parts_by_rule(batch, m, n, k, _MULTIPROCESSORS)
        parts = {"off": [], "rule": [by_rule] if by_rule > 1 else [], "search": parts_to_try(k)}[self.parallel_k]
        if parts and loops_compete(calls):
            s = Schedule(start.program)
            partial = cut_sum(s, view, knob("parts"))
            cut = cut_view(s, view, partial)
            for name in dict.fromkeys(ld.buffer for ld in operands(s.program.blocks[partial])):
                s.reindex(partial, name)  # operands in parts can be filled up like whole ones
            yield from self.tiled(s, cut, (), "-parallel-k", [menu("parts", parts)])

    def _pixels(self, start: Schedule, view: ProductView) -> Iterator[Sketch]:
        """A convolution as a product with columns of pixels, which are made as they are copied."""
        s = Schedule(start.program)
        if s.program.blocks[view.block].store.buffer in s.program.outputs:
            s.cache_write(view.block, s.program.blocks[view.block].store.buffer, "global")  # results in rows of pixels
            block = next(n for n, b in s.program.blocks.items() if b.reduces)
            found = product_views(s.program.blocks[block])
            view = next(v for v in found if (v.row, v.vector) == (view.row, view.vector))
        columns = as_columns(s.program, view)
        if columns is not None:
            made = Schedule(columns[0])
            yield from self.tiled(made, columns[1], self.calls(made, columns[1]), "-columns")

    def calls(self, s: Schedule, view: ProductView) -> tuple[IntrinsicView, ...]:
        """The product as calls of instructions of warps."""
        return searched_views(s.program, view.block, self.task, self.intrinsics)

    def tiled(
        self,
        s: Schedule,
        view: ProductView,
        calls: tuple[IntrinsicView, ...],
        suffix: str,
        more: Sequence[Knob] = (),
    ) -> Iterator[Sketch]:
        """A product in tiles of calls, and in tiles of threads unless these are hopeless beside calls."""
        made = [warp_sketch(Schedule(s.program), v, _limits(self.target), f"warps{suffix}", more) for v in calls]
        found = [x for x in made if x is not None]
        if not found or loops_compete(calls):
            plain = _tiled(Schedule(s.program), view, self.target, f"simt{suffix}", more)
            found += [plain] if plain is not None else []
        yield from found


def _limits(target: CudaTarget) -> MultiprocessorLimits:
    """What a block may use."""
    shared = min(STATIC_SHARED, target.shared_per_block)
    return MultiprocessorLimits(shared, target.registers_per_sm, target.registers_per_thread)


def _tiled(s: Schedule, view: ProductView, target: CudaTarget, name: str, more: Sequence[Knob] = ()) -> Sketch | None:
    """The product in tiles of warps; None if operands cannot be filled up with zeros."""
    b = s.program.blocks[view.block]
    count = sum(it.kind == "space" for it in b.iters)
    row, column = view.row, view.vector
    rows, columns = _rows_of_block(), _columns_of_block()
    named = {b.iters[row].var.name: _size(rows), b.iters[column].var.name: _size(columns)}
    named[b.iters[count].var.name] = knob("block_k")
    try:
        staged = stage_for_block(s, view.block, named)
    except ScheduleError:
        return None
    space, sums = axis_loops(s, staged.block)
    splits = []
    for n, loop in enumerate(space):
        if n == row:
            splits.append(_split(loop, "y", rows, 0))
        elif n == column:
            splits.append(_split(loop, "x", columns, 1))
        else:
            splits.append(AxisSplit(loop, [None], (Digit("block", "z", n),)))
    for n, loop in enumerate(sums):
        tiled = AxisSplit(loop, [None, knob("block_k")], (Digit("step", "", n), Digit("own")))
        splits.append(tiled if n == 0 else AxisSplit(loop, [None], (Digit("step", "", n),)))
    tile_for_blocks(s, staged, splits, double_buffer=True).get_along(s, target)
    menus = Menus()
    bind_rest(s, menus)
    return Sketch(name, (*simt_knobs(), *more, *menus.knobs), simt_conditions(_limits(target)), s.program)


_Part = tuple[str, str, Like, int]  # role, axis of the grid, size and rank among those of its kind


def _rows_of_block() -> list[_Part]:
    return [
        ("thread", "y", knob("block_m"), 0),
        ("own", "", knob("warp_m"), 10),
        ("thread", "x", knob("atom_o"), 0),
        ("thread", "x", knob("atom_i"), 2),
        ("own", "", WARP_INNER[0], 30),
    ]


def _columns_of_block() -> list[_Part]:
    return [
        ("thread", "y", knob("block_n"), 1),
        ("own", "", knob("warp_n"), 20),
        ("thread", "x", knob("atom_n"), 1),
        ("own", "", WARP_INNER[1], 40),
    ]


def _size(parts: Sequence[_Part]) -> Like:
    size: Like = 1
    for _, _, factor, _ in parts:
        size = factor * size
    return size


def _split(loop: str, axis: str, parts: Sequence[_Part], rank: int) -> AxisSplit:
    digits = tuple(Digit(role, along, at) for role, along, _, at in parts)  # type: ignore[arg-type]
    return AxisSplit(loop, [None, *(size for _, _, size, _ in parts)], (Digit("block", axis, rank), *digits))


# --- everything else --------------------------------------------------------------------------------------------------


def _elements(start: Schedule) -> Sketch:
    s, menus = Schedule(start.program), Menus()
    bind_rest(s, menus)
    return Sketch("elements", tuple(menus.knobs), (), s.program)


def _rows_in_blocks(start: Schedule, target: CudaTarget) -> Iterator[Sketch]:
    s, menus = Schedule(start.program), Menus()
    try:
        limits = share_rows(s, menus, target)
    except ScheduleError:
        return
    yield Sketch("rows", tuple(menus.knobs), tuple(limits), s.program)


def _shared_sums(start: Schedule, stages: Sequence[str]) -> Sketch:
    s, menus = Schedule(start.program), Menus()
    for name in stages:
        attempt(share_sums, s, name, menus)
    bind_rest(s, menus)
    return Sketch("shared-sums", tuple(menus.knobs), (), s.program)
