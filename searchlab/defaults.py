"""A reasonable schedule for any program, without search: `searchlab bench` runs it, and searches have to beat it.

Contractions (matmul, convolutions) get a register tile, packed operands and a parallel outer loop; everything else is
computed row by row, so that the result of one stage is still in cache when the next one reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from searchlab import tactics
from searchlab.dtype import DTYPES, HALVES
from searchlab.ir.expr import Var, value_of
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block, Iter
from searchlab.ir.walk import variables
from searchlab.schedule import Schedule
from searchlab.schedule.primitive import consumers, producers
from searchlab.tactics import BlockTile, IntrinsicView, Panel, ProductView, Trailing, attempt
from searchlab.tactics.product_chains import by_rows_of_products
from searchlab.tactics.row_by_row import schedule_plainly, schedule_row_by_row
from searchlab.tactics.sharing import JOBS, LARGE, assumed_extent, parallelize, shared_loops
from searchlab.tactics.winograd_tiles import suitable_tiles, tile_winograd, winograd_stages
from searchlab.targets import CpuTarget, CudaTarget, Target

_BAND, _GROUP = 7, 16  # rows of output, and input channels, that a convolution tile is blocked by
_TAPS = 32  # the most taps of a window that are unrolled
_STEPS = 2  # of a sum by calls that are unrolled: so short a loop is mostly its calls, but not only
_BLOCK = 0.4  # of the second-level cache, for rows of data that meet one panel after the other
_REUSE = 8  # rows that read a packed operand, from which on floats of 16 bits are converted as they are packed
_ROUNDED = 1.1  # the most that vectors of pixels may have for every pixel


def default_schedule(
    program: Program,
    target: Target,
    weights: Sequence[str] = (),
    ranges: Mapping[str, tuple[int, int]] | None = None,
) -> Program:
    """Schedules the program by rules; inputs named in `weights` are constant and may be packed ahead of time.

    `ranges` are the smallest and largest values of inputs, which some instructions for bytes depend on.
    """
    s = Schedule(program)
    tactics.inline_cheap(s)
    if isinstance(target, CudaTarget):
        tactics.schedule_for_threads(s, target, ranges)
        return s.program
    if by_rows_of_products(s, target):
        return s.program
    if (stages := winograd_stages(s.program)) is not None:
        tile_winograd(s, stages, suitable_tiles(s.program, stages, target), target)
        return s.program
    made = s.program.blocks.values()
    slides = [b.name for b in made if tactics.slides_over_blocks(s.program, b, target)]
    block = max(filter(_is_tiled, made), key=tactics.work, default=None)
    if slides:
        _by_blocks(s, slides[0], None, target)
    elif block is None:
        schedule_row_by_row(s, target)
    elif (blocks := tactics.block_tile(s.program, block, target)) is not None:
        _by_blocks(s, block.name, blocks, target)
    elif (calls := tactics.exact_view(s.program, block.name, target, ranges)) is not None:
        _by_calls(s, calls, target, weights)
    elif (pixels := _as_pixels(s.program, block, target)) is not None:
        _by_pixels(s, block.name, pixels, target)
    elif (view := _best_view(s.program, block, target)) is not None:
        _tile(s, view, target, weights)
    elif tactics.row_times_matrix(block):
        _one_row(s, block.name, target, weights)
    else:
        _stencil(s, block.name, target)
    return s.program


def _is_tiled(block: Block) -> bool:
    """Whether a stage uses what it reads several times: a matrix product, or windows that overlap along rows.

    Others combine their operands element by element as they add up, such as a variance with its mean.
    """
    space, sums = tactics.space_axes(block), {it.var for it in tactics.reduce_axes(block)}
    if len(space) < 2 or not block.reduces:
        return False
    read = tactics.operands(block)
    rows = [variables(ld.indices[-1]) for ld in read if ld.indices]
    overlap = any(space[-1].var in row and sums & row for row in rows)
    return overlap or (len(read) >= 2 and bool(tactics.product_views(block))) or tactics.row_times_matrix(block)


# --- contractions -----------------------------------------------------------------------------------------------------


def _best_view(program: Program, block: Block, target: Target) -> ProductView | None:
    """The view of a stage as a product with a packed operand: vectors along the last axis, else the longest one."""
    space = tactics.space_axes(block)
    extents = [_axis_extent(it) for it in space]
    enough = target.lanes(program.buffers[block.store.buffer].dtype) // 2
    found = [v for v in tactics.product_views(block) if v.plain and extents[v.vector] > 1]

    def rank(v: ProductView) -> tuple[bool, int]:
        short = v.vector != len(space) - 1 or extents[v.vector] < enough
        return short, -extents[v.vector]

    return min(found, key=rank, default=None)


def _axis_extent(axis: Iter) -> int:
    known = value_of(axis.extent)
    return LARGE if known is None else known


@dataclass(frozen=True)
class _RegisterTile:
    """The loops of a contraction: around the tile, over phases and tiles, over the reduction, inside the tile.

    `call` are the loops inside a call of an intrinsic, of which `vector` are several; without any it is a vector.
    """

    around: list[str]
    columns: str
    phases: list[str]
    rows: str
    reduction: list[str]
    row: str
    vector: str
    call: tuple[str, ...] = ()

    def write_out(self, s: Schedule) -> None:
        """Unrolls the rows of the tile, and runs its columns in lanes or as calls of their own."""
        s.unroll(self.row)
        if self.call:
            s.unroll(self.vector)
        else:
            s.vectorize(self.vector)


def _tile(s: Schedule, view: ProductView, target: Target, weights: Sequence[str]) -> None:
    """Tiles the two axes of a product for registers and packs its operand into panels as wide as the tile."""
    space, reduction = tactics.axis_loops(s, view.block)
    contiguous = view.vector == len(space) - 1
    apart = tactics.phases(s.program, s.program.blocks[view.block])
    phases = [space[n] for n in apart if n not in (view.row, view.vector)]
    dtype = s.program.buffers[s.program.blocks[view.block].store.buffer].dtype
    most = 4 if contiguous and target.vector_registers >= 32 else 2
    rows, columns = assumed_extent(s, space[view.row]), assumed_extent(s, space[view.vector])
    height, width = tactics.register_tile(target, dtype, rows, columns, most)
    assert view.dimension is not None
    panel = Panel(view.operand.buffer, view.vector, view.dimension)
    panels = _panels(s, view.block, panel, width, weights)
    if rows >= _REUSE:
        tactics.widen_halves(s, view.block)
    i0, i1 = s.split(space[view.row], [None, height], tail=True)
    j0, j1 = s.split(space[view.vector], [None, width], tail=True)
    around = [x for n, x in enumerate(space) if n not in (view.row, view.vector) and x not in phases]
    loops = _RegisterTile(around, j0, phases, i0, reduction, i1, j1)
    if contiguous:
        outer = _by_columns(s, view.block, loops, panels)
    else:
        outer = _by_channels(s, view.block, loops, panels, (view.vector, width), target)
        _pad_by_bands(s, outer, shared_loops(s, outer, target))
    parallelize(s, outer, target)
    _finish_others(s, target)


def _panels(s: Schedule, block: str, panel: Panel, width: int, weights: Sequence[str]) -> str:
    """Packs an operand into panels; one that a stage computes for this product alone is computed in panels at once.

    So weights that are decoded are decoded a panel at a time; what is constant among their operands is packed ahead.
    """
    makers = producers(s.program, panel.buffer)
    alone = [b.name for b in consumers(s.program, panel.buffer)] == [block] and panel.buffer not in s.program.outputs
    if len(makers) != 1 or makers[0].reduces or not alone or not tactics.stores_plainly(makers[0]):
        return tactics.pack(s, block, panel, width, ahead=panel.buffer in weights)
    _lay_constants(s, makers[0], tactics.space_axes(makers[0])[panel.dimension].var, width, weights)
    tactics.lay_in_panels(s, panel.buffer, panel.dimension, width)
    return panel.buffer


def _lay_constants(s: Schedule, block: Block, axis: Var, width: int, weights: Sequence[str]) -> None:
    """Packs the constant operands of a stage that are read along an axis into panels, ahead of time."""
    for load in tactics.operands(block):
        if load.buffer in weights and axis in load.indices:
            if not any(layout.buffer == load.buffer for layout in s.program.layouts):
                tactics.lay_in_panels(s, load.buffer, load.indices.index(axis), width)


def _pad_by_bands(s: Schedule, outer: list[str], shared: list[str], only: Sequence[str] | None = None) -> None:
    """Computes padding, and what else a product reads, for a band of rows at a time, if threads share bands only.

    Where they share channels too, each of them would pad the same band.
    """
    for name in tactics.fresh_stages(s) if shared != outer else ():
        if (only is None or name in only) and attempt(s.compute_at, name, shared[-1]):
            tactics.vectorize_last(s, name)


def _by_columns(s: Schedule, block: str, loops: _RegisterTile, panels: str) -> list[str]:
    """Packs each panel where its columns are computed and applies it to all rows; returns the loops for threads."""
    inner = (*loops.reduction, loops.row, loops.vector, *loops.call)
    s.reorder(*loops.around, loops.columns, loops.rows, *loops.phases, *inner)
    loops.write_out(s)
    if panels in s.program.blocks:
        s.compute_at(panels, loops.columns)
        s.vectorize(s.loops(panels)[-1])
    tactics.join_epilogues(s, block, loops.rows)
    return [*loops.around, loops.columns]


def _by_channels(
    s: Schedule, block: str, loops: _RegisterTile, panels: str, across: tuple[int, int], target: Target
) -> list[str]:
    """Vectors along a strided output axis, such as channels: the stage that reads the tile restores the order.

    `across` are that axis and the columns that are to lie side by side.
    """
    outer = _order_by_channels(s, loops)
    loops.write_out(s)
    if panels in s.program.blocks:
        *packing, lanes = s.loops(panels)
        s.vectorize(lanes)
        parallelize(s, packing, target)
    results = tactics.intermediate_results(s, block)
    tactics.join_epilogues(s, block, loops.columns, unroll=False)
    attempt(tactics.lay_in_panels, s, results, *across)
    return outer


def _order_by_channels(s: Schedule, loops: _RegisterTile) -> list[str]:
    """Orders the loops: bands of output rows, channels, groups of input channels whose weights fit the L1 cache."""
    around, band, inner = loops.around, [], []
    if loops.phases and around and assumed_extent(s, around[-1]) <= _BAND + 1:
        around, inner = around[:-1], around[-1:]
    elif around and assumed_extent(s, around[-1]) > _BAND + 1:
        outer_row, inner_row = s.split(around[-1], [None, _BAND], tail=True)
        around, band, inner = around[:-1], [outer_row], [inner_row]
    group, rest = [], loops.reduction
    if len(rest) > 1 and assumed_extent(s, rest[0]) > _GROUP:
        outer_group, inner_group = s.split(rest[0], [None, _GROUP], tail=True)
        group, rest = [outer_group], [inner_group, *rest[1:]]
    if loops.call:
        first, *steps = _in_steps(s, rest[0])
        rest = [first, *rest[1:], *steps]
    outer = [*around, *band, loops.columns]
    s.reorder(*outer, *loops.phases, *group, *inner, loops.rows, *rest, loops.row, loops.vector, *loops.call)
    return outer


def _by_blocks(s: Schedule, block: str, tile: BlockTile | None, target: Target) -> None:
    """Tiles of pixels by blocks of channels; without a tile, windows of one block, which read an image as it lies."""
    if tile is not None:
        every, tiles = tactics.tile_blocks(s, block, tile, tactics.rows_of_bands(s, block, tile, _BAND, target.threads))
        balanced = tactics.balance_threads(s, every[:-1], target.threads)
        outer = every[:-1] if balanced else shared_loops(s, every, target)
        _pad_by_bands(s, every, outer)
    else:
        tactics.inline_padding(s, block)
        outer, tiles = tactics.tile_windows(s, block, target.vector_registers // 4, _TAPS)
        tactics.gather_inputs(s, outer[-1])
    tactics.join_epilogues(s, block, tiles)
    parallelize(s, outer, target)
    _finish_others(s, target)


def _in_steps(s: Schedule, loop: str) -> list[str]:
    """A loop over calls as one over several at a time, which are unrolled, if they divide it."""
    if assumed_extent(s, loop) % _STEPS:
        return [loop]
    outer, steps = s.split(loop, [None, _STEPS])
    s.unroll(steps)
    return [outer, steps]


def _by_calls(s: Schedule, view: IntrinsicView, target: Target, weights: Sequence[str]) -> None:
    """Tiles of calls of an intrinsic, with the operands laid out for it."""
    space, terms = tactics.axis_loops(s, view.block)
    row = DTYPES[view.types[0]].bytes * prod(assumed_extent(s, lp) for lp in terms)
    height, vectors = tactics.call_tile(
        target, view, assumed_extent(s, space[view.row]), assumed_extent(s, space[view.column])
    )
    laid = tactics.lay_for_calls(s, view, ahead=view.weight.buffer in weights)
    made = tactics.split_for_calls(s, view, height, vectors)
    across, sums, around = view.column == len(space) - 1, list(made.sums), list(made.around)
    rows = made.rows
    if across and len(sums) == 1:
        sums = _in_steps(s, sums[0])
    if across and laid.weight not in s.program.blocks:  # panels that are packed here meet all rows at once
        blocks, rows = _in_cache(s, rows, height * row, target)
        around += blocks
    loops = _RegisterTile(around, made.columns, [], rows, sums, made.row, made.vector, made.call)
    if across:
        outer = _by_columns(s, view.block, loops, laid.weight)
    else:
        outer = _by_channels(s, view.block, loops, laid.weight, (view.column, view.shape.columns), target)
        _pad_by_bands(s, outer, shared_loops(s, outer, target), [laid.data])
    parallelize(s, outer, target)
    tactics.insert_calls(s, view, made)
    tactics.run_copies(s, laid, target)
    _finish_others(s, target)


def _in_cache(s: Schedule, tiles: str, size: int, target: Target) -> tuple[list[str], str]:
    """Blocks of tiles of rows, each of `size` bytes, that stay in the second-level cache while they meet all columns.

    Returns the loop over blocks and the one inside; all tiles are one block if they fit.
    """
    count = assumed_extent(s, tiles)
    if not isinstance(target, CpuTarget) or count == LARGE or count * size <= target.l2 // 2:
        return [], tiles
    blocks = min(count, -(-count * size // int(_BLOCK * target.l2)))
    outer, inner = s.split(tiles, [None, -(-count // blocks)], tail=True)
    return [outer], inner


@dataclass(frozen=True)
class _Pixels:
    """A 1x1 convolution as a product of channels and pixels: the axes that become one, and the register tile."""

    axes: Trailing
    rows: int
    columns: int
    panels: int  # packed at once; 0 if pixels are read as they lie
    few: bool  # pixels, so that threads share channels instead


def _as_pixels(program: Program, block: Block, target: Target) -> _Pixels | None:
    """How to multiply channels with pixels; None if threads could not share them, or not only epilogues follow.

    A narrow tile would take one cache line from each of many pages, so the pixels of large images are packed.
    """
    found = tactics.trailing(program, block.name)
    halves = any(ld.type in HALVES for ld in tactics.operands(block))
    if found is None or halves or tactics.epilogues(program, block.name) is None:
        return None
    *around, channels = (_axis_extent(it) for it in tactics.space_axes(block)[: -found.count])
    pixels = prod(_axis_extent(it) for it in tactics.space_axes(block)[-found.count :])
    vectors, panels = (3, 0) if target.vector_registers >= 32 else (2, 4)
    dtype = program.buffers[block.store.buffer].dtype
    rows, columns = tactics.register_tile(target, dtype, channels, pixels, vectors)
    jobs, lanes = JOBS * target.threads, target.lanes(dtype)
    if prod(around) * pixels >= jobs * columns * max(panels, 1):
        return _Pixels(found, rows, columns, panels, few=False)
    whole = -(-pixels // lanes) * lanes <= _ROUNDED * pixels
    return _Pixels(found, rows, columns, 0, few=True) if whole and prod(around) * channels >= jobs * rows else None


def _by_pixels(s: Schedule, block: str, view: _Pixels, target: Target) -> None:
    """Vectors of pixels, each applied to several output channels."""
    copy: str | None = None
    if view.panels:
        copy, panel = tactics.joined_copy(s, block, view.axes)
    if tactics.epilogues(s.program, block):
        tactics.collapse_stages(s, block, view.axes)
    else:
        tactics.collapse_loops(s, block, view.axes)
    if copy is not None:
        tactics.lay_in_panels(s, copy, panel.dimension, view.columns)
    (*around, rows, pixels), reduction = tactics.loops_by_kind(s, block, s.loops(block))
    i0, i1 = s.split(rows, [None, view.rows], tail=True)
    j0, j1, j2 = s.split(pixels, [None, max(view.panels, 1), view.columns], tail=True)
    outer = [*around, i0, j0] if view.few else [*around, j0, i0]
    s.reorder(*outer, j1, *reduction, i1, j2)
    s.unroll(i1)
    s.vectorize(j2)
    if copy is not None:
        s.compute_at(copy, j0)
        tactics.read_rows_as_they_lie(s, copy, panel)
        s.vectorize(s.loops(copy)[-1])
    tactics.join_epilogues(s, block, j1)
    parallelize(s, outer[:-1], target)
    _finish_others(s, target)


def _one_row(s: Schedule, name: str, target: Target, weights: Sequence[str]) -> None:
    """Vectors of outputs of a single row, whose sums read several operands side by side, such as packed weights.

    Nothing is read twice, so there is no tile to reuse; constant operands are laid out as the vectors read them.
    """
    b = s.program.blocks[name]
    *around, column = tactics.axis_loops(s, name)[0]
    width = 4 * target.lanes(s.program.buffers[b.store.buffer].dtype)
    if assumed_extent(s, column) > width:
        _lay_constants(s, b, tactics.space_axes(b)[-1].var, width, weights)
    outer = tactics.vectorize_outputs(s, column, tactics.axis_loops(s, name)[1], width)
    tactics.join_epilogues(s, name, outer)
    parallelize(s, [*around, outer], target)
    _finish_others(s, target)


def _stencil(s: Schedule, block: str, target: Target) -> None:
    """Schedules a stencil: a few rows at a time, all taps unrolled, padding computed per channel.

    With a small window, long rows are taken a vector at a time, but more of them: they read mostly the same input,
    which stays in registers.
    """
    (*around, row, column), reduction = tactics.axis_loops(s, block)
    lanes = target.lanes(s.program.buffers[s.program.blocks[block].store.buffer].dtype)
    tall = assumed_extent(s, column) >= 3 * lanes and prod(assumed_extent(s, r) for r in reduction) <= _TAPS // 2
    rows, most = assumed_extent(s, row), max(2, target.vector_registers // 4) if tall else 2
    i0, i1 = s.split(row, [None, -(-rows // -(-rows // most))], tail=True)
    *j0, vector = s.split(column, [None, lanes], tail=True) if tall else [column]
    s.reorder(*around, i0, *j0, *reduction, i1, vector)
    taps = 1
    for lp in reversed(reduction):
        taps *= assumed_extent(s, lp)
        if taps <= _TAPS:
            s.unroll(lp)
    s.unroll(i1)
    s.vectorize(vector)
    tactics.join_epilogues(s, block, [i0, *j0][-1])
    tactics.gather_inputs(s, around[-1] if around else i0)
    parallelize(s, around or [i0], target)
    _finish_others(s, target)


def _finish_others(s: Schedule, target: Target) -> None:
    """Schedules the stages that are still untouched."""
    for name in tactics.fresh_stages(s):
        schedule_plainly(s, name, target)
