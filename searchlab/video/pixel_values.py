"""Values that are computed pixel by pixel of maps, and what programs over lists of pixels share.

A map of features has a row for every pixel, its channels, and a last row that belongs to none.  What is computed of
pixels alone, such as an activation, is part of whatever reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from searchlab.ir import Builder, Expr, ceildiv, size
from searchlab.ir.compute import Indices
from searchlab.ir.expr import Like
from searchlab.schedule import Schedule
from searchlab.targets import CpuTarget
from searchlab.video.product_formats import FLOAT

SHARE = 10  # features expect one in so many pixels to change
PIECE = 64  # pixels that are worth a thread's while
ROWS, PLACES = size("rows"), size("places")
ENTRIES = size("entries")  # of lists, and of what is written one after the other
Read = Callable[[Expr, Expr], Expr]  # an element, by row and channel


@dataclass(frozen=True)
class PixelValue:
    """A value that is computed pixel by pixel from maps and vectors of channels.

    `planar` maps have pixels inside of channels, as frames have; `expr` computes an element from those of the operands,
    in the order of `maps`, which are of `types`, then `vectors`.
    """

    channels: int
    maps: tuple[str, ...]
    types: tuple[str, ...]
    expr: Callable[..., Expr]
    vectors: tuple[str, ...] = ()
    planar: bool = False
    dtype: str = FLOAT


def expected(count: Like) -> Expr:
    """How many of so many are expected to have changed."""
    return ceildiv(count, SHARE)


def read_operands(b: Builder, value: PixelValue) -> Read:
    """How the elements of a value are read from the maps that it is computed from, which are inputs."""
    shape = (value.channels, ROWS) if value.planar else (ROWS, value.channels)
    maps = [b.input(f"map{n}", shape, dtype) for n, dtype in enumerate(value.types)]
    vectors = [b.input(f"vector{n}", (value.channels,)) for n in range(len(value.vectors))]

    def read(row: Expr, channel: Expr) -> Expr:
        at = (channel, row) if value.planar else (row, channel)
        return value.expr(*(m[at] for m in maps), *(v[channel] for v in vectors))

    return read


def pixel_list(b: Builder, name: str, below: Expr) -> tuple[Indices, Expr]:
    """A list of pixels and its length."""
    items = b.indices(name, (ENTRIES,), below)
    count = b.indices(f"{name}_number", (1,), ENTRIES + 1, expected(ENTRIES))
    return items, count[0]


def share_pieces(s: Schedule, block: str, target: CpuTarget, piece: int = PIECE) -> None:
    """Threads take turns with pieces of a stage's outermost loop, which is as long as data say."""
    if target.threads > 1:
        outer, _ = s.split(s.loops(block)[0], [None, piece], tail=True)
        s.parallel(outer)


def rows_inside(s: Schedule, block: str) -> None:
    """Channels in lanes, which are the innermost loop of a stage."""
    s.vectorize(s.loops(block)[-1])
