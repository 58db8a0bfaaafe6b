"""The tiled stages of a derived structure, as its knobs show them, and the tiles that suit them on a machine.

Axes that are split are knobs called after their loops, the one in vectors last among those of the output.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from searchlab.dtype import DTYPES
from searchlab.intrinsics import find_intrinsic
from searchlab.ir.stmt import Block
from searchlab.schedule import Schedule
from searchlab.search import Knob, Sketch, Task
from searchlab.search.wishes import Wished
from searchlab.tactics import IntrinsicView, axis_loops, call_tile, intrinsic_view, moves_with, operands, space_axes
from searchlab.targets import Target, cpu_of

Kind = Literal["panels", "channels", "columns", "pixels", "window"]
Values = dict[str, Wished]

_MOST_ROWS = 14
_WORTH = 0.6  # a register tile is tried if it reuses this much of what the best one does
_JOBS = 2  # blocks of a packed operand for each thread
_CACHE = 0.6  # the share of the second-level cache that such a block may fill
_TAPS = 64  # the most iterations of a sum, beside its longest axis, that one tile takes at once
_STRETCH = 8  # tiles of rows that share a panel, where panels are not packed by the thread that reads them


@dataclass(frozen=True)
class SplitAxis:
    """An axis of a stage with its extent; a collapsed one takes the place of several."""

    name: str
    extent: int
    collapsed: bool = False


@dataclass(frozen=True)
class Tiling:
    """A tiled stage: its output axes (`vector` in lanes, `row` in registers, the `others`) and its sums.

    panels    vectors of neighbouring outputs, which read an operand that is or can be packed
    channels  vectors of outputs that lie apart, as channels do; a consumer restores their order
    columns   vectors of neighbouring outputs, read where the operand lies, which moves with the sum: a convolution
    pixels    the same, of axes that are collapsed into one so that the operand can be packed: a 1x1 convolution
    window    no operand is shared by several rows, as in depthwise convolutions

    Where tiles consist of calls of an intrinsic, extents count these, and `calls` are the rows and vectors to try.
    """

    kind: Kind
    vector: SplitAxis
    row: SplitAxis | None
    others: tuple[SplitAxis, ...]
    sums: tuple[SplitAxis, ...]
    lanes: int
    bytes: int
    calls: tuple[tuple[int, int], ...] = ()


def tilings(task: Task, sketch: Sketch) -> list[Tiling]:
    """The tiled stages of a sketch."""
    s, knobs = Schedule(task.program), {k.name: k for k in sketch.knobs}
    called = [find_intrinsic(name) for name in re.findall(r"calls\((.*?)\)", sketch.name)]
    found = []
    for name, block in task.program.blocks.items():
        space, sums = axis_loops(s, name)
        axes = _axes(space, knobs)
        if (axes or called) and block.reduces:
            dtype = task.program.buffers[block.store.buffer].dtype
            split = tuple(SplitAxis(k, extent(knobs[k])) for k in sums if k in knobs)
            view = next((v for x in called if (v := intrinsic_view(task.program, name, x)) is not None), None)
            if view is not None:
                found.append(_tiling_by_calls(task, view, space, split, knobs))
            elif axes:
                found.append(_tiling(block, axes, split, task.target.lanes(dtype), DTYPES[dtype].bytes))
    return found


def _tiling_by_calls(
    task: Task, view: IntrinsicView, space: Sequence[str], sums: tuple[SplitAxis, ...], knobs: Mapping[str, Knob]
) -> Tiling:
    """Tiles of calls; an axis along which there is one call has no knob, and its wishes go nowhere."""
    axes = [SplitAxis(lp, extent(knobs[lp]) if lp in knobs else 1) for lp in space]
    row, vector = axes[view.row], axes[view.column]
    shape = view.shape
    few = (call_tile(task.target, view, row.extent, vector.extent * shape.columns, most) for most in (2, 4, 1))
    others = tuple(a for a in axes if a not in (row, vector))
    kind: Kind = "panels" if view.column == len(space) - 1 else "channels"
    size = DTYPES[view.weight.type].bytes * shape.columns * shape.depth
    return Tiling(kind, vector, row, others, sums, 1, size, tuple(dict.fromkeys(few)))


def extent(knob: Knob) -> int:
    """The extent that a split knob divides; factors that do not divide it cover more."""
    return int(knob.options.prod(axis=1).min())


def _axes(space: Sequence[str], knobs: Mapping[str, Knob]) -> list[tuple[SplitAxis, int]]:
    """The axes among the knobs, in their order, with the last loop of each; collapsed axes have one knob."""
    count = len(space)
    runs = {"_".join(space[a : b + 1]): (a, b) for a in range(count) for b in range(a, count)}
    split = [(name, extent(k), *runs[name]) for name, k in knobs.items() if name in runs and k.kind == "split"]
    return [(SplitAxis(name, size, a < b), b) for name, size, a, b in split]


def _tiling(
    block: Block, axes: list[tuple[SplitAxis, int]], sums: tuple[SplitAxis, ...], lanes: int, size: int
) -> Tiling:
    *rest, (vector, at) = axes
    space = space_axes(block)
    read = [ld for ld in operands(block) if moves_with(ld, space[at].var)]
    shared = [pair for pair in rest if not any(moves_with(ld, space[pair[1]].var) for ld in read)]
    row = max(shared or rest, key=lambda pair: pair[1], default=None)
    long = [n for n, it in enumerate(space) if it.extent != 1]
    kind: Kind = "panels"
    if long and at != long[-1]:
        kind = "channels"
    elif len(read) != 1 or (rest and not shared):
        kind = "window"
    elif vector.collapsed:
        kind = "pixels"
    elif space[at].var not in read[0].indices:
        kind = "columns"
    others = tuple(axis for axis, n in sorted(rest, key=lambda pair: pair[1]) if row is None or axis != row[0])
    return Tiling(kind, vector, row[0] if row is not None else None, others, sums, lanes, size)


def register_tiles(target: Target, tiling: Tiling) -> list[tuple[int, int]]:
    """Rows and vectors of accumulators that fill the registers, those that reuse most of what they load first."""
    if tiling.calls:
        return list(tiling.calls)
    rows = tiling.row.extent if tiling.row is not None else 1
    reuse: dict[tuple[int, int], float] = {}
    for vectors in range(1, 5):
        most = max(1, min(_MOST_ROWS, (target.vector_registers - vectors - 1) // vectors))
        high = -(-rows // -(-rows // most))  # as many in every tile
        if vectors == 1 or (vectors - 1) * tiling.lanes < tiling.vector.extent:
            reuse[high, vectors] = high * vectors / (high + vectors)
    best = max(reuse.values())
    return sorted((t for t, r in reuse.items() if r >= _WORTH * best), key=lambda t: -reuse[t])


def values(target: Target, tiling: Tiling, packed_here: bool) -> Iterator[Values]:
    """What the knobs of a tiled stage should be, the most promising first; `packed_here` by the thread that reads."""
    if tiling.kind == "window":
        yield from _windows(target, tiling)
    elif tiling.kind == "channels":
        yield from _channels(target, tiling)
    else:
        yield from _columns(target, tiling, packed_here)


def _columns(target: Target, t: Tiling, packed_here: bool) -> Iterator[Values]:
    tiles = register_tiles(target, t)
    plan = [(0, 8, 64), (0, 64, 16), (1, 8, 64), (2, 8, 64), (1, 64, 16)]
    if t.calls:
        plan = [(0, 64, 16), (1, 64, 16), (0, 64, 64), (2, 64, 16)]
    for number, depth, unroll in plan:
        if number < len(tiles):
            rows, vectors = tiles[number]
            width = vectors * t.lanes
            wished = _outer(t.others) | _sums(t.sums, depth) | {"unroll": unroll}
            yield wished | (_blocks(target, t, rows, width) if packed_here else _grid(t, rows, width))


def _blocks(target: Target, t: Tiling, rows: int, width: int) -> Values:
    """Blocks of columns for the threads, each packed into a good part of the cache and met with all rows."""
    depth = math.prod(a.extent for a in t.sums)
    around = math.prod(a.extent for a in t.others)
    fits = max(1, int(_CACHE * cpu_of(target).l2) // (t.bytes * depth))
    wanted = max(-(-_JOBS * target.threads // around), -(-t.vector.extent // fits))
    blocks = min(wanted, -(-t.vector.extent // width))
    wished: Values = {t.vector.name: (blocks, None, 1, width)}
    if t.row is not None:
        wished[t.row.name] = (-(-wanted // blocks) if blocks == 1 else 1, None, 1, rows)
    return wished


def _grid(t: Tiling, rows: int, width: int) -> Values:
    """Blocks of rows and columns for the threads; a few tiles of rows share a panel while it is in cache."""
    wished: Values = {t.vector.name: (None, 1, 1, width)}
    if t.row is not None:
        wished[t.row.name] = (None, min(_STRETCH, -(-t.row.extent // rows)), 1, rows)
    return wished


def _channels(target: Target, t: Tiling) -> Iterator[Values]:
    """Bands of output rows and vectors of channels for the threads, the sum in groups whose weights fit the cache."""
    tiles = register_tiles(target, t)
    tiles.sort(key=lambda tile: (t.row is None or t.row.extent % tile[0] != 0, tile[1] > 2))
    plan = [(0, 16, 7), (1, 16, 7), (0, 64, 7), (0, 16, 4), (1, 64, 4), (2, 16, 7)]
    for number, group, band in plan:
        if number < len(tiles):
            rows, vectors = tiles[number]
            wished = _outer(t.others) | _sums(t.sums, group) | {"unroll": 16}
            wished[t.vector.name] = (None, 1, 1, vectors * t.lanes)
            if t.row is not None:
                wished[t.row.name] = (1, 1, None, rows)
            if t.others:
                wished[t.others[-1].name] = (None, 1, band, 1)
            yield wished


def _windows(target: Target, t: Tiling) -> Iterator[Values]:
    """A few rows at a time, in whole rows or a few vectors of them, with all taps unrolled, or one column of them.

    Neighbouring rows read mostly the same input, which stays in registers if they are a quarter of those.
    """
    even = math.gcd(t.vector.extent, t.lanes)
    one = even if 2 * even >= t.lanes else t.lanes  # rather half a vector than one that ends in a few lanes
    few, lanes = target.vector_registers // 4, t.lanes
    plan = [((1, few), one, 512), ((2, 2), 4 * lanes, 64), ((1, 2), 4 * lanes, 64), ((1, 4), 2 * lanes, 64)]
    for (tiles, rows), width, unroll in [*plan, ((1, 1), 4 * lanes, 16)]:
        wished = _outer(t.others) | _sums(t.sums, 8) | {"unroll": unroll}
        if tiles > 1 and len(t.sums) > 1:
            wished[t.sums[-1].name] = (None, 1)
        wished[t.vector.name] = (1, 1, None, width)
        if t.row is not None:
            wished[t.row.name] = (1, None, tiles, rows)
        yield wished


def _outer(axes: Sequence[SplitAxis]) -> Values:
    return {axis.name: (None, 1, 1, 1) for axis in axes}


def _sums(sums: Sequence[SplitAxis], depth: int) -> Values:
    """The longest axis of a sum in steps, the others, such as the taps of a window, whole while they are few."""
    longest = max(sums, key=lambda a: a.extent, default=None)
    taps, wished = 1, Values()
    for axis in reversed(sums):
        if axis is longest:
            wished[axis.name] = (None, min(depth, axis.extent))
        else:
            taps *= axis.extent
            wished[axis.name] = (1, axis.extent) if taps <= _TAPS else (None, 1)
    return wished
