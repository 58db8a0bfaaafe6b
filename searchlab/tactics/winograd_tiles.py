"""Winograd's convolution: transformed patches, products of these by places of a patch, and tiles of outputs.

Each thread computes the products of a band of tiles for a few blocks of channels, which stay in its caches, and then
the outputs of these.
"""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.ir.expr import Like, value_of
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block
from searchlab.schedule import Schedule
from searchlab.schedule.primitive import consumers, producers
from searchlab.tactics.axes import operands, space_axes
from searchlab.tactics.channel_blocks import balanced_rows, tile_in_registers
from searchlab.tactics.row_by_row import schedule_plainly
from searchlab.tactics.sharing import fuse_parallel, parallelize
from searchlab.targets import Target

_PATCH, _TILE = 4, 2  # pixels of a side
_BAND = 7  # the most rows of tiles whose products are computed before their outputs
_PRODUCT_RANK, _OUTPUT_RANK = 7, 5


@dataclass(frozen=True)
class WinogradStages:
    """The stages by name: what pads, if anything does, patches, products and outputs."""

    before: tuple[str, ...]
    patches: str
    products: str
    outputs: str


def winograd_stages(program: Program) -> WinogradStages | None:
    """The stages of a program that is Winograd's convolution; None for others."""
    sums = [b for b in program.blocks.values() if b.reduces]
    if len(sums) != 1 or not _multiplies_patches(sums[0]):
        return None
    made = [p for ld in operands(sums[0]) for p in producers(program, ld.buffer)]
    read = consumers(program, sums[0].store.buffer)
    if len(made) != 1 or len(made[0].iters) != _PRODUCT_RANK or len(read) != 1 or len(read[0].iters) != _OUTPUT_RANK:
        return None
    names = list(program.blocks)
    if names[-3:] != [made[0].name, sums[0].name, read[0].name]:
        return None
    return WinogradStages(tuple(names[:-3]), *names[-3:])


def _multiplies_patches(block: Block) -> bool:
    space = space_axes(block)
    return len(space) == _PRODUCT_RANK and all(value_of(it.extent) == _PATCH for it in space[1:3])


@dataclass(frozen=True)
class WinogradTiles:
    """Numbers or knobs: rows of tiles in a band, and pixels and blocks of channels whose products are in registers.

    Threads go from band to band, or with `channels_first` from channels to channels, whose weights then stay in the
    cache.  Patches are transformed before all else, or `by_bands`, all channels of which then belong to one thread.
    """

    band: Like
    pixels: Like
    blocks: Like
    channels_first: bool = False
    by_bands: bool = False


def suitable_tiles(program: Program, stages: WinogradStages, target: Target) -> WinogradTiles:
    """Tiles that fit the registers, in bands that give all threads the same to do."""
    space = space_axes(program.blocks[stages.products])
    images, _, _, rows, columns, channels, _ = (value_of(it.extent) for it in space)
    tile = tile_in_registers(channels, columns, target)
    jobs = (images or 1) * ((channels or 1) // tile.blocks)
    return WinogradTiles(balanced_rows(rows or _BAND, jobs, _BAND, target.threads), tile.pixels, tile.blocks)


def tile_winograd(s: Schedule, stages: WinogradStages, tiles: WinogradTiles, target: Target) -> None:
    """Schedules all stages."""
    outer = _tile_outputs(s, stages.outputs, tiles)
    _tile_products(s, stages.products, outer[-1], tiles.pixels)
    if tiles.by_bands:
        outer = outer[:-1]
        s.compute_at(stages.patches, outer[-1])
        _unroll_patches(s, stages.patches)
    else:
        parallelize(s, _unroll_patches(s, stages.patches), target)
    if target.threads > 1:
        fuse_parallel(s, outer)
    for name in stages.before:
        schedule_plainly(s, name, target)


def _tile_outputs(s: Schedule, block: str, tiles: WinogradTiles) -> list[str]:
    """Outputs tile by tile; returns the loops over images, bands and groups of blocks."""
    n, o, h, w, channel = s.loops(block)
    h0, h1, y = s.split(h, [None, tiles.band, _TILE], tail=True)
    w0, x = s.split(w, [None, _TILE], tail=True)
    o0, o1 = s.split(o, [None, tiles.blocks])
    outer = [n, o0, h0] if tiles.channels_first else [n, h0, o0]
    s.reorder(*outer, h1, w0, o1, y, x, channel)
    s.unroll(y)
    s.unroll(x)
    s.vectorize(channel)
    return outer


def _tile_products(s: Schedule, block: str, at: str, pixels: Like) -> None:
    """Products of a band, in registers."""
    s.compute_at(block, at)
    *space, cb, ci = s.loops(block)
    n, i, j, t, u, o, channel = space[-_PRODUCT_RANK:]
    u0, u1 = s.split(u, [None, pixels], tail=True)
    s.reorder(n, i, j, t, u0, cb, ci, u1, o, channel)
    s.unroll(u1)
    s.unroll(o)
    s.vectorize(channel)


def _unroll_patches(s: Schedule, block: str) -> list[str]:
    """All sums of a patch side by side, as they share what they add; returns the loops outside."""
    n, t, i, j, c, u, channel = s.loops(block)[-_PRODUCT_RANK:]
    s.reorder(n, t, c, u, i, j, channel)
    s.unroll(i)
    s.unroll(j)
    s.vectorize(channel)
    return [n, t, c]
