"""Convolution as implicit matrix product: lanes hold output channels, a register tile some pixels x channels.

    cores over (images, bands of rows, channels) * groups of input channels * rows of the band * stretches
        * the sum * pixels (unrolled) * lanes

The input is read where it lies by index arithmetic; weights are packed so that the channels of a vector lie side by
side; the finished tile is brought back into the output's order while it is in cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from searchlab.ir.algebra import ceildiv
from searchlab.ir.expr import Like, knob
from searchlab.schedule import Schedule
from searchlab.search import Sketch, menu
from searchlab.tactics import attempt, intermediate_results, join_epilogues, lay_in_panels, phases, unroll_up_to
from spaces.task_mapping.anchor import extent_of
from spaces.task_mapping.finish import finish_rest
from spaces.task_mapping.gemm import DEPTH, ROWS, MappedProduct
from spaces.task_mapping.mapping import repeat, spatial
from spaces.task_mapping.place import extents, place, shape, share

BAND = knob("band")
DEPTHS = (4, 16, 64)  # input channels of a group
MOST_COPIES = 128  # of the stage, rows x taps


def channel_sketches(p: MappedProduct, unroll_taps: bool) -> Iterator[Sketch]:
    """The sketches of a view whose lanes lie apart in the output."""
    if p.view.plain:
        yield _channels(p)
        if unroll_taps and _taps(p) > 1:
            yield _channels(p, unrolled=True)


def _channels(p: MappedProduct, unrolled: bool = False) -> Sketch:
    """The sketch; with `unrolled` the taps of the window are written out, as far as that is not too much code."""
    s = p.copy()
    i, j = p.view.row, p.view.vector
    around, sums = p.axes()
    apart = [d for d in phases(s.program, s.program.blocks[p.view.block]) if d in around]
    around = [d for d in around if d not in apart]
    whole, rank = shape(s, p.view.block), len(shape(s, p.view.block))
    panels = p.pack(s, p.view.operand.buffer in p.weights)
    band = around[-1] if around and extent_of(s.program.blocks[p.view.block], around[-1]) > 1 else None
    outer = {**{d: whole[d] for d in around}, j: ceildiv(whole[j], p.width)}
    middle = {i: ceildiv(whole[i], ROWS)}
    if band is not None:
        outer[band], middle[band] = ceildiv(whole[band], BAND), BAND
    ranks = [d for d in range(rank) if d not in (band, i)]
    order = [*ranks, *([band] if band is not None else []), i]
    inner: dict[int, Like] = {**{d: whole[d] for d in sums}, sums[0]: DEPTH}
    mapping = spatial(*extents(rank, outer), ranks=_last(rank, j))
    mapping = mapping * repeat(
        *extents(rank, {**{d: whole[d] for d in apart}, sums[0]: ceildiv(whole[sums[0]], DEPTH)})
    )
    mapping = mapping * repeat(*extents(rank, middle), ranks=[order.index(d) for d in range(rank)])
    loops = place(s, p.view.block, mapping * p.core(s, inner))
    _write_back(s, p, loops[0][-1])
    if unrolled:
        unroll_up_to(s, p.view.block, MOST_COPIES)
    share(s, loops[0], p.task.target.threads)
    p.pack_before(s, panels)
    finish_rest(s, p.task.target, whole_rows=unrolled)
    knobs, limits = p.machine.tile()
    knobs += [menu("depth", DEPTHS[1:] if unrolled else DEPTHS)] + (
        [menu("band", [1, 2, 4, 7])] if band is not None else []
    )
    limits.append((DEPTH - 4) * p.width * _taps(p) * p.machine.bytes <= p.machine.l2)
    return Sketch("channels-unrolled" if unrolled else "channels", tuple(knobs), tuple(limits), s.program)


def _taps(p: MappedProduct) -> int:
    """Steps of the sum for every input channel."""
    return prod(extent_of(p.start.program.blocks[p.view.block], d) for d in p.axes()[1][1:])


def _last(rank: int, d: int) -> list[int]:
    """Ranks that make one dimension the fastest."""
    order = [*(n for n in range(rank) if n != d), d]
    return [order.index(n) for n in range(rank)]


def _write_back(s: Schedule, p: MappedProduct, home: str) -> None:
    """The tile lies with its lanes side by side; what reads it brings the elements back into order."""
    results = intermediate_results(s, p.view.block)
    join_epilogues(s, p.view.block, home, unroll=False)
    attempt(lay_in_panels, s, results, p.view.vector, p.width)
