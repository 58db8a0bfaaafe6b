"""Products by tensor cores: blocks of warps, each with tiles of 16 x 8 results, operands in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

from searchlab.dtype import DTYPES
from searchlab.intrinsics import find_intrinsic
from searchlab.ir.expr import value_of
from searchlab.ir.walk import loads, variables
from searchlab.schedule import Schedule

_WARP, _ROWS, _COLUMNS = 32, 16, 8
_PIECE = 16  # bytes that a thread copies at once


@dataclass(frozen=True)
class WarpTiles:
    """How a product is cut: warps of a block, tiles of 16 x 8 of each warp, and calls along the sum in a step."""

    warps: int = 2
    tiles: tuple[int, int] = (1, 2)
    steps: int = 1
    double_buffer: bool = False


def tile_for_warps(s: Schedule, block: str, intrinsic: str, tiles: WarpTiles | None = None) -> None:
    """Computes a product of rows with rows, C[i, j] += A[i, k] * B[j, k], by calls of an intrinsic of warps.

    Sizes must be multiples of what a block computes.
    """
    cut = tiles or WarpTiles()
    depth = value_of(find_intrinsic(intrinsic).nest.loops[-1].extent) or 1
    b = s.program.blocks[block]
    operands = dict.fromkeys(ld.buffer for ld in loads(b.store.value) if ld.buffer != b.store.buffer)
    copies = [s.cache_read(block, name, "shared") for name in operands]
    store = s.cache_write(block, b.store.buffer, "local")
    block = next(n for n, x in s.program.blocks.items() if x.reduces)
    i, j, k = (_loop(s, block, n) for n in range(3))
    by, w, ti, mi = s.split(i, [None, cut.warps, cut.tiles[0], _ROWS])
    bx, tj, mj = s.split(j, [None, cut.tiles[1], _COLUMNS])
    ko, ks, mk = s.split(k, [None, cut.steps, depth])
    s.reorder(by, bx, ko, w, ks, ti, tj, mi, mj, mk)
    for loop, axis in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (w, "threadIdx.y")):
        s.bind(loop, axis)
    s.unroll(ks, ti, tj)
    for copy in copies:
        s.compute_at(copy, ko)
        _copy(s, copy, ko, cut.warps)
    s.reverse_compute_at(store, bx, rounded=True)
    _store(s, store, cut)
    s.tensorize(mi, intrinsic)
    if cut.double_buffer:
        s.annotate(ko, "double_buffer", True)


def _loop(s: Schedule, block: str, number: int) -> str:
    b = s.program.blocks[block]
    (var,) = variables(b.bindings[number])
    return var.name


def _copy(s: Schedule, copy: str, at: str, warps: int) -> None:
    """All threads copy, each as many neighbours as one access moves."""
    loops = s.loops(copy)[s.loops(copy).index(at) + 1 :]
    extents = [value_of(s.program.loops[lp].extent) or 1 for lp in loops]
    size = DTYPES[s.program.buffers[s.program.blocks[copy].store.buffer].dtype].bytes
    fused = s.fuse(*loops) if len(loops) > 1 else loops[0]
    lanes = gcd(extents[-1], _PIECE // size)
    columns = gcd(prod(extents) // lanes, _WARP)
    rows = gcd(prod(extents) // lanes // columns, warps)
    _, ty, tx, lane = s.split(fused, [None, rows, columns, lanes])
    s.bind(ty, "threadIdx.y")
    s.bind(tx, "threadIdx.x")
    s.vectorize(lane)


def _store(s: Schedule, store: str, cut: WarpTiles) -> None:
    """Every lane stores what it holds: rows g and g + 8, columns 2*q and 2*q + 1."""
    rows, columns = s.loops(store)[-2:]
    w, ti, r, g = s.split(rows, [None, cut.tiles[0], 2, 8])
    tj, q, c = s.split(columns, [None, 4, 2])
    s.reorder(w, g, q, ti, tj, r, c)
    s.bind(w, "threadIdx.y")
    s.bind(s.fuse(g, q), "threadIdx.x")
    s.unroll(ti, tj, r)
    s.vectorize(c)
