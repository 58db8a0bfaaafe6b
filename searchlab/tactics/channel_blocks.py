"""Images whose channels lie in blocks of a vector, (n, c / b, h, w, b): register tiles of pixels by blocks."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from searchlab.ir.expr import value_of
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block
from searchlab.ir.walk import variables
from searchlab.schedule import Schedule
from searchlab.tactics.axes import axis_loops, extent, moves_with, operands, reduce_axes, space_axes
from searchlab.targets import Target

_RANK = 5
_MOST_PIXELS = 14
_WAIT = 0.1  # how much longer the last thread may take than if all shared the work evenly
_BANDS = 2  # the fewest bands for each thread, if there are no other iterations to balance them


@dataclass(frozen=True)
class BlockTile:
    """A register tile: pixels of a row by blocks of channels."""

    pixels: int
    blocks: int


def block_tile(program: Program, block: Block, target: Target) -> BlockTile | None:
    """The tile of a stage that convolves blocks of channels with weights laid out alike; None for other stages."""
    space = space_axes(block)
    if not _ends_in_a_vector(program, block, target) or not block.reduces:
        return None
    _, outer, row, column, channel = (it.var for it in space)
    weights = [ld for ld in operands(block) if ld.indices and ld.indices[0] == outer and ld.indices[-1] == channel]
    others = [ld for ld in operands(block) if ld not in weights]
    if len(weights) != 1 or len(others) != 1 or any(moves_with(others[0], v) for v in (outer, channel)):
        return None
    if any(moves_with(weights[0], v) for v in (row, column)):
        return None
    return tile_in_registers(value_of(space[1].extent), value_of(space[3].extent), target)


def tile_in_registers(blocks: int | None, pixels: int | None, target: Target) -> BlockTile:
    """The tile of so many blocks and pixels, as far as known, that fits the registers of a target."""
    counts = (2, 3) if target.vector_registers >= 32 else (2,)
    count = next((n for n in counts if (blocks or 1) % n == 0), 1)
    most = max(1, min(_MOST_PIXELS, (target.vector_registers - count - 2) // count))
    pixels = pixels or _MOST_PIXELS
    return BlockTile(-(-pixels // -(-pixels // most)), count)


def slides_over_blocks(program: Program, block: Block, target: Target) -> bool:
    """Whether a stage combines windows of an image channel by channel, in blocks: pooling, depthwise convolution."""
    if not _ends_in_a_vector(program, block, target) or not block.reduces:
        return False
    column, channel = (it.var for it in space_axes(block)[-2:])
    sums = {it.var for it in reduce_axes(block)}
    images = [ld for ld in operands(block) if len(ld.indices) == _RANK]
    if len(images) != 1 or any(ld.indices[-1:] != (channel,) for ld in operands(block)):
        return False
    place = set(variables(images[0].indices[-2]))
    return column in place and bool(sums & place)


def _ends_in_a_vector(program: Program, block: Block, target: Target) -> bool:
    space = space_axes(block)
    lanes = target.lanes(program.buffers[block.store.buffer].dtype)
    return len(space) == _RANK and value_of(space[-1].extent) in (lanes, lanes // 2)


def rows_of_bands(s: Schedule, block: str, tile: BlockTile, most: int, threads: int) -> int:
    """The rows of a band, at most so many; fewer if some threads would wait for others otherwise."""
    image, blocks, row = (extent(s, loop) for loop in axis_loops(s, block)[0][:3])
    if image is None or blocks is None or row is None:
        return most
    return balanced_rows(row, image * (blocks // tile.blocks), most, threads)


def balanced_rows(rows: int, tiles: int, most: int, threads: int) -> int:
    """The rows of a band where so many tiles are computed in each.

    Threads take one tile of blocks in one band after the other, and a few of equal size do not divide evenly.
    """
    fewest = -(-rows // most)
    waits = {n: _wait(rows, -(-rows // n), tiles, threads) for n in range(fewest, min(rows, fewest + threads) + 1)}
    chosen = next((n for n, wait in waits.items() if wait <= _WAIT), min(waits, key=lambda n: waits[n]))
    return -(-rows // chosen)


def _wait(rows: int, band: int, tiles: int, threads: int) -> float:
    """How much longer the last thread takes than if all shared the rows of so many tiles evenly."""
    ends = [0] * threads
    for start in range(0, rows, band):
        for _ in range(tiles):
            ends[ends.index(min(ends))] += min(band, rows - start)
    return max(ends) * threads / (rows * tiles) - 1


def balance_threads(s: Schedule, bands: list[str], threads: int) -> bool:
    """Whether images and bands of rows alone give all threads the same to do.

    What is padded for a band then stays in the caches of one thread, and no thread waits for the padding of others.
    """
    count = prod(extent(s, loop) or 0 for loop in bands)
    return count >= _BANDS * threads and count % threads == 0


def tile_blocks(s: Schedule, block: str, tile: BlockTile, band: int) -> tuple[list[str], str]:
    """Tiles such a convolution; returns the loops over images, bands of rows and blocks, and the one over tiles inside.

    The weights of the blocks of a tile stay in the cache for a band.
    """
    (image, outer, row, column, channel), reduction = axis_loops(s, block)
    b0, b1 = s.split(outer, [None, tile.blocks])
    h0, h1 = s.split(row, [None, band], tail=True)
    w0, w1 = s.split(column, [None, tile.pixels], tail=True)
    s.reorder(image, h0, b0, h1, w0, *reduction, w1, b1, channel)  # a pixel is needed for one row of the tile only
    s.unroll(b1)
    s.unroll(w1)
    s.vectorize(channel)
    return [image, h0, b0], w0


def tile_windows(s: Schedule, block: str, most: int, taps: int) -> tuple[list[str], str]:
    """Computes up to `most` windows of a row at a time, a vector of channels each, and unrolls up to `taps` elements.

    Returns the loops over images and blocks, and the one over tiles.
    """
    (image, outer, row, column, channel), reduction = axis_loops(s, block)
    pixels = extent(s, column) or most
    w0, w1 = s.split(column, [None, -(-pixels // -(-pixels // most))], tail=True)
    s.reorder(image, outer, row, w0, *reduction, w1, channel)
    if prod(extent(s, lp) or taps + 1 for lp in reduction) <= taps:
        for lp in reduction:
            s.unroll(lp)
    s.unroll(w1)
    s.vectorize(channel)
    return [image, outer], w0
