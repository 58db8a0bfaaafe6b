"""Tiling along the panels of a packed operand, with the elementwise consumer of a stage fused into each tile."""

from __future__ import annotations

from searchlab.schedule import Schedule
from searchlab.tactics.axes import space_axes
from searchlab.tactics.collapse import Trailing, collapse, collapse_loops
from searchlab.tactics.panels import Panel, lay_in_panels, pack
from searchlab.tactics.tiling import Factors, Tiles, parallel_outer, tile, transpose_results, vector_width


def fuse_reader(s: Schedule, reader: str, tiles: Tiles, level: int) -> None:
    """Computes the consumer of a tiled stage at the end of a level of its spatial loops, counted from 1."""
    s.reverse_compute_at(reader, tiles.end(tiles.space_level(level)))


def lies_side_by_side(s: Schedule, block: str, panel: Panel) -> bool:
    """Whether the results along the panels of an operand are contiguous in the output."""
    return panel.axis == len(space_axes(s.program.blocks[block])) - 1


def tile_along_panels(
    s: Schedule,
    block: str,
    structure: str,
    factors: Factors,
    panel: Panel,
    ahead: bool,
    fused: tuple[str, int] | None = None,
) -> tuple[Tiles, str]:
    """Tiles a stage, with vectors along the panels of an operand packed to the same width; outer tiles are parallel.

    `fused` is the consumer of the stage and the level at which it is computed.  Results that are not contiguous need
    a consumer, which restores their order.  Returns the loops, and the packed buffer.
    """
    tiles = parallel_outer(s, tile(s, block, structure, factors, panel.axis))
    packed = pack(s, block, panel, vector_width(s, tiles), ahead)
    if fused is not None:
        reader, level = fused
        fuse_reader(s, reader, tiles, level)
    if not lies_side_by_side(s, block, panel):
        transpose_results(s, tiles)
    return tiles, packed


def tile_collapsed(
    s: Schedule, block: str, structure: str, factors: Factors, found: Trailing
) -> tuple[Tiles, str, Panel]:
    """Tiles a stage whose trailing axes are collapsed into one, along the panels of a copy of their operand.

    Returns the loops, the copy, and the panel along which it is packed.
    """
    copy, panel = collapse(s, block, found)
    tiles = parallel_outer(s, tile(s, block, structure, factors, panel.axis))
    lay_in_panels(s, copy, panel.dimension, vector_width(s, tiles))
    return tiles, copy, panel


def tile_in_place(s: Schedule, block: str, structure: str, factors: Factors, found: Trailing) -> Tiles:
    """Tiles a stage whose trailing axes are collapsed into one; their operand is read as it lies, in whole vectors."""
    axis = collapse_loops(s, block, found)
    return parallel_outer(s, tile(s, block, structure, factors, axis))
