"""Convolution as implicit matrix product: lanes hold output channels, a register tile some pixels x channels.

    cores over (images, bands of rows, channels) * groups of input channels * rows of the band * stretches
        * the sum * pixels (unrolled) * lanes

The input is read where it lies by index arithmetic; weights are packed so that the channels of a vector lie side by
side; the finished tile is brought back into the output's order while it is in cache.
"""

from __future__ import annotations

from collections.abc import Iterator

from searchlab.ir.algebra import ceildiv
from searchlab.ir.expr import Like, knob
from searchlab.schedule import Schedule
from searchlab.search import Sketch, menu
from searchlab.tactics import attempt, intermediate_results, join_epilogues, lay_in_panels, phases
from spaces.task_mapping.anchor import extent_of
from spaces.task_mapping.finish import finish_rest
from spaces.task_mapping.gemm import DEPTH, ROWS, MappedProduct
from spaces.task_mapping.mapping import repeat, spatial
from spaces.task_mapping.place import extents, place, shape, share

BAND = knob("band")


def channel_sketches(p: MappedProduct) -> Iterator[Sketch]:
    """The sketches of a view whose lanes lie apart in the output."""
    if p.view.plain:
        yield _channels(p, ahead=p.view.operand.buffer in p.weights)


def _channels(p: MappedProduct, ahead: bool) -> Sketch:
    s = p.copy()
    i, j = p.view.row, p.view.vector
    around, sums = p.axes()
    apart = [d for d in phases(s.program, s.program.blocks[p.view.block]) if d in around]
    around = [d for d in around if d not in apart]
    whole, rank = shape(s, p.view.block), len(shape(s, p.view.block))
    panels = p.pack(s, ahead)
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
    share(s, loops[0], p.task.target.threads)
    p.pack_before(s, panels)
    finish_rest(s, p.task.target)
    knobs, limits = p.machine.tile()
    knobs += [menu("depth", [4, 16, 64])] + ([menu("band", [1, 2, 4, 7])] if band is not None else [])
    taps = 1
    for d in sums[1:]:
        taps *= extent_of(p.start.program.blocks[p.view.block], d)
    limits.append((DEPTH - 4) * p.width * taps * p.machine.bytes <= p.machine.l2)
    return Sketch("channels", tuple(knobs), tuple(limits), s.program)


def _last(rank: int, d: int) -> list[int]:
    """Ranks that make one dimension the fastest."""
    order = [*(n for n in range(rank) if n != d), d]
    return [order.index(n) for n in range(rank)]


def _write_back(s: Schedule, p: MappedProduct, home: str) -> None:
    """The tile lies with its lanes side by side; what reads it brings the elements back into order."""
    results = intermediate_results(s, p.view.block)
    join_epilogues(s, p.view.block, home, unroll=False)
    attempt(lay_in_panels, s, results, p.view.vector, p.width)
