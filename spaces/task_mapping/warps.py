"""The matrix product of a GPU with matrix units, as rules: tiles of calls of an instruction that a warp runs together.

    rows = block * (block_m warps, tile_m calls, rows of a call)      columns the same, the sum in steps of some calls

Which shapes are valid follows from the limits of a multiprocessor alone, so the space is the same for every size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from searchlab.dtype import DTYPES
from searchlab.errors import ScheduleError
from searchlab.intrinsics.warp_products import room_between_rows
from searchlab.ir.expr import Expr, compare, knob
from searchlab.schedule import Schedule
from searchlab.search import Knob, Sketch, menu
from searchlab.tactics import IntrinsicView, WarpTiles, tile_view_for_warps
from searchlab.targets.cuda import WARP
from spaces.common import bind_rest
from spaces.task_mapping.menus import Menus
from spaces.task_mapping.simt import BLOCK_WARPS, MultiprocessorLimits

TILES = ((1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (2, 4), (4, 2), (4, 4), (2, 8), (4, 8))  # calls of a warp in a step
CALLS = (1, 2, 4)  # along the sum in a step
_STAGES = 2  # double buffering
_OTHER_REGISTERS = 48  # addresses, counters, and what is on its way to shared memory
_REGISTER_STEP = 8


def warp_sketch(
    s: Schedule, view: IntrinsicView, limits: MultiprocessorLimits, name: str, more: Sequence[Knob] = ()
) -> Sketch | None:
    """The product in tiles of calls; None if operands cannot be filled up with zeros."""
    warps, tiles = (knob("block_m"), knob("block_n")), (knob("tile_m"), knob("tile_n"))
    try:
        tile_view_for_warps(s, view, WarpTiles(warps, tiles, knob("calls"), double_buffer=True))
    except ScheduleError:
        return None
    menus = Menus()
    bind_rest(s, menus)
    knobs = (
        Knob("warp_tiles", "category", ("tile_m", "tile_n"), np.array(TILES)),
        menu("calls", CALLS),
        Knob("block_warps", "category", ("block_m", "block_n"), np.array(BLOCK_WARPS)),
    )
    named = f"{name}/{view.intrinsic.name}"
    return Sketch(named, (*knobs, *more, *menus.knobs), warp_conditions(view, limits), s.program)


def warp_conditions(view: IntrinsicView, limits: MultiprocessorLimits) -> tuple[Expr, ...]:
    """What the limits demand of the knobs: registers of results and operands, and shared memory of two steps."""
    shape = view.shape
    tile_m, tile_n, calls, block_m, block_n = map(knob, ("tile_m", "tile_n", "calls", "block_m", "block_n"))
    words = [
        DTYPES[t].bytes * side * shape.depth // (4 * WARP) for t, side in zip(view.types, _sides(view), strict=True)
    ]
    results = tile_m * tile_n * (shape.rows * shape.columns // WARP)
    registers = results + tile_m * words[0] + tile_n * words[1] + _OTHER_REGISTERS
    rounded = -(-registers // _REGISTER_STEP) * _REGISTER_STEP
    sides = (block_m * tile_m * shape.rows, block_n * tile_n * shape.columns)
    row = calls * shape.depth * DTYPES[view.types[0]].bytes
    shared = (sides[0] + sides[1]) * (row + room_between_rows(row)) * _STAGES
    return (
        compare("le", rounded, limits.thread_registers),
        compare("le", rounded * block_m * block_n * WARP, limits.registers),
        compare("le", shared, limits.shared_memory),
    )


def _sides(view: IntrinsicView) -> tuple[int, int]:
    return view.shape.rows, view.shape.columns
