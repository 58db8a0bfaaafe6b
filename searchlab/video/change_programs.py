"""Tensor programs over lists of pixels: how long they run depends on what changed.

A map of features has a row for every pixel, its channels, and a last row that belongs to none.  What is
computed of pixels alone, such as an activation, is part of whatever reads it (`PixelValue`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from searchlab.intrinsics import intrinsics
from searchlab.intrinsics.bfloat_dots import DEPTH
from searchlab.ir import (
    Builder,
    Expr,
    Program,
    Var,
    call,
    cast,
    ceildiv,
    const,
    index,
    largest,
    maximum,
    select,
    size,
    total,
)
from searchlab.ir.bfloat16 import to_bits
from searchlab.ir.compute import Indices, Reduction
from searchlab.ir.expr import Like
from searchlab.schedule import Schedule
from searchlab.targets import CpuTarget

Array = npt.NDArray[Any]
FLOAT, HALF = "float32", "bfloat16"
GROUP = 4  # pairs of pixels that share a register tile, at least; more would leave more of a tile empty
SHARE = 10  # features expect one in so many pixels to change
Read = Callable[[Expr, Expr], Expr]  # an element, by row and channel
_ROWS, _PLACES = size("rows"), size("places")


@dataclass(frozen=True)
class PixelValue:
    """A value that is computed pixel by pixel from maps and vectors of channels.

    `planar` maps have pixels inside of channels, as frames have; `expr` computes an element from those of the operands,
    in the order of `maps`, then `vectors`.
    """

    channels: int
    maps: tuple[str, ...]
    expr: Callable[..., Expr]
    vectors: tuple[str, ...] = ()
    planar: bool = False


def _expected(count: Like) -> Expr:
    return ceildiv(count, SHARE)


def _operands(b: Builder, value: PixelValue) -> Read:
    """How the elements of a value are read from the maps that it is computed from, which are inputs."""
    shape = (value.channels, _ROWS) if value.planar else (_ROWS, value.channels)
    maps = [b.input(f"map{n}", shape) for n in range(len(value.maps))]
    vectors = [b.input(f"vector{n}", (value.channels,)) for n in range(len(value.vectors))]

    def read(row: Expr, channel: Expr) -> Expr:
        at = (channel, row) if value.planar else (row, channel)
        return value.expr(*(m[at] for m in maps), *(v[channel] for v in vectors))

    return read


def _list(b: Builder, name: str, below: Expr) -> tuple[Indices, Expr]:
    """A list of pixels and its length."""
    items = b.indices(name, (below,), below)
    count = b.indices(f"{name}_number", (1,), below + 1, _expected(below))
    return items, count[0]


def _rows_inside(s: Schedule, block: str) -> None:
    """Channels in lanes, which are the innermost loop of a stage."""
    s.vectorize(s.loops(block)[-1])


def sizes_program(value: PixelValue) -> Program:
    """The largest change of any channel at each of some pixels, against what was `seen`."""
    b = Builder("sizes")
    pixels, count = _list(b, "pixels", _ROWS)
    read = _operands(b, value)
    seen = b.input("seen", (_ROWS, value.channels))
    c = b.axis("c", value.channels)
    made = b.compute("size", (count,), lambda i: largest(call("abs", read(pixels[i], c) - seen[pixels[i], c]), c))
    s = Schedule(b.program(made))
    _rows_inside(s, "size")
    return s.program


def frame_sizes_program(value: PixelValue, target: CpuTarget) -> Program:
    """The largest change of any channel at every pixel of a planar value."""
    b = Builder("frame_sizes")
    read = _operands(b, value)
    seen = b.input("seen", (value.channels, _ROWS))

    def change(pixel: Expr) -> Expr:
        found = call("abs", read(pixel, index(0)) - seen[0, pixel])
        for c in range(1, value.channels):
            found = maximum(found, call("abs", read(pixel, index(c)) - seen[c, pixel]))
        return found

    s = Schedule(b.program(b.compute("size", (_ROWS,), lambda i: change(i))))
    outer, inner = s.split("i", [None, 64 * target.lanes(FLOAT)], tail=True)
    s.vectorize(inner)
    if target.threads > 1:
        s.parallel(outer)
    return s.program


def pass_program(value: PixelValue, by_element: bool, narrow: bool = False) -> Program:
    """The changes of active pixels one after the other, which count as `seen` from then on, and their number.

    By element, changes of at most a threshold are dropped inside of active pixels as well.  Narrow ones are rounded to
    bfloat16, and what was rounded off counts as not seen: it is part of a later change, and does not add up.
    """
    b = Builder("pass_on")
    pixels, count = _list(b, "pixels", _ROWS)
    limit = b.input("threshold", (1,))
    read = _operands(b, value)
    channels = value.channels
    shape = (channels, _ROWS) if value.planar else (_ROWS, channels)
    seen = b.state("seen", shape)
    change = b.state("change", (_ROWS, channels), HALF if narrow else FLOAT)

    def at(row: Expr, c: Expr) -> tuple[Expr, Expr]:
        return (c, row) if value.planar else (row, c)

    def difference(i: Var, c: Var) -> Expr:
        found = read(pixels[i], c) - seen[at(pixels[i], c)]
        kept = select(call("abs", found) > limit[0], found, const(0, FLOAT)) if by_element else found
        return cast(kept, HALF) if narrow else kept

    def passed(i: Expr, c: Expr) -> Expr:
        return cast(change[i, c], FLOAT) if narrow else change[i, c]

    b.put("differ", change, (count, channels), lambda i, c: ((i, c), difference(i, c)))
    if by_element or narrow:
        b.put("see", seen, (count, channels), lambda i, c: (at(pixels[i], c), seen[at(pixels[i], c)] + passed(i, c)))
    else:
        b.put("see", seen, (count, channels), lambda i, c: (at(pixels[i], c), read(pixels[i], c)))
    k = b.axis("k", count)
    counted = b.compute(
        "changed",
        (channels,),
        lambda c: total(select(passed(k, c).equals(0.0), const(0, FLOAT), const(1, FLOAT)), k),
    )
    s = Schedule(b.program(seen, change, counted))
    for block in ("differ", "see"):
        _rows_inside(s, block)
    c, along = s.loops("changed")
    s.reorder(along, c)
    s.vectorize(c)
    return s.program


def map_program(value: PixelValue) -> Program:
    """A value at some pixels, kept in a map."""
    b = Builder("map_pixels")
    pixels, count = _list(b, "pixels", _ROWS)
    made = b.state("made", (_ROWS, value.channels))
    read = _operands(b, value)
    b.put("write", made, (count, value.channels), lambda i, c: ((pixels[i], c), read(pixels[i], c)))
    s = Schedule(b.program(made))
    _rows_inside(s, "write")
    return s.program


def pool_program(channels: int, taps: int, mean: int) -> Program:
    """Windows of a map at some places, kept in a map: the largest element, or the sum divided by `mean`.

    `window[place, tap]` is a pixel of the map, or its last row, which holds what padding counts as.
    """
    b = Builder("pool_pixels")
    places, count = _list(b, "pixels", _PLACES)
    given = b.input("given", (_ROWS, channels))
    window = b.indices("window", (_PLACES, taps), _ROWS)
    made = b.state("made", (_PLACES, channels))

    def value(i: Expr, c: Expr) -> Expr:
        found = given[window[places[i], 0], c]
        for tap in range(1, taps):
            other = given[window[places[i], tap], c]
            found = found + other if mean else maximum(found, other)
        return found * (1 / mean) if mean else found

    b.put("write", made, (count, channels), lambda i, c: ((places[i], c), value(i, c)))
    s = Schedule(b.program(made))
    _rows_inside(s, "write")
    return s.program


def tile_width(outputs: int, target: CpuTarget) -> int:
    """How many output channels a register tile has: a divisor of all, so that every thread has a tile."""
    vectors = 4 if target.vector_registers >= 32 else 2
    most = min(vectors * target.lanes(FLOAT), -(-outputs // target.threads))
    return max(n for n in range(1, most + 1) if outputs % n == 0)


def tile_pairs(outputs: int, target: CpuTarget) -> int:
    """How many pairs a register tile has: more where it has few output channels, so that products do not wait."""
    few = tile_width(outputs, target) <= 2 * target.lanes(FLOAT)
    return 2 * GROUP if few and target.vector_registers >= 32 else GROUP


def half_dot(width: int, target: CpuTarget) -> tuple[str, int] | None:
    """The instruction that multiplies bfloat16 with the most lanes that divide a width, and these lanes."""
    known = {n: i for n, i in intrinsics().items() if n.startswith("avx512bf16_") and not i.needs.missing(target)}
    found = {int(n.partition("_")[2].partition("x")[0]): n for n in known}
    most = max((lanes for lanes in found if width % lanes == 0), default=0)
    return (found[most], most) if most else None


def packed_weight(weight: Array, target: CpuTarget, narrow: bool) -> Array:
    """Weights (outputs, inputs, taps) in the order in which `pairs_program` reads them."""
    outputs, inputs, taps = weight.shape
    width = tile_width(outputs, target)
    packed = weight.reshape(outputs // width, width, inputs, taps).transpose(0, 3, 2, 1)
    if not narrow:
        return packed
    return to_bits(packed.reshape(outputs // width, taps, inputs // DEPTH, DEPTH, width).transpose(0, 1, 2, 4, 3))


def pairs_program(inputs: int, outputs: int, target: CpuTarget, narrow: bool = False) -> Program:
    """Adds the products of changes with the weights of taps to the sums of the places that they reach.

    Pairs of a position in `change` and a place come in groups, all pairs of which have one tap.  Narrow changes and
    weights are bfloat16, weights with neighbouring inputs side by side.
    """
    b = Builder("convolve_pairs")
    groups, taps = size("groups"), size("taps")
    width, group = tile_width(outputs, target), tile_pairs(outputs, target)
    count = b.indices("number", (1,), groups + 1, _expected(groups))[0]
    source, place = b.indices("source", (groups, group), _ROWS), b.indices("place", (groups, group), _PLACES)
    tap = b.indices("tap", (groups,), taps)
    kind, depth = (HALF, DEPTH) if narrow else (FLOAT, 1)
    change = b.input("change", (_ROWS, inputs), kind)
    tile = (inputs // DEPTH, width, DEPTH) if narrow else (inputs, width)
    weight = b.input("weight", (outputs // width, taps, *tile), kind)
    sums = b.state("sums", (_PLACES, outputs))
    c, e = b.axis("c", inputs // depth), b.axis("e", DEPTH)
    shape = (outputs // width, count, group, width)

    def products(q: Var, g: Var, p: Var, o: Var) -> Reduction:
        if not narrow:
            return total(change[source[g, p], c] * weight[q, tap[g], c, o], c)
        half = change[source[g, p], DEPTH * c + e], weight[q, tap[g], c, o, e]
        return total(cast(half[0], FLOAT) * cast(half[1], FLOAT), c, e)

    product = b.compute("product", shape, products)

    def added(q: Var, g: Var, p: Var, o: Var) -> tuple[Sequence[Like], Expr]:
        at = (place[g, p], q * width + o)
        return at, sums[at] + product[q, g, p, o]

    b.put("add", sums, shape, added)
    s = Schedule(b.program(sums))
    q, g, p, o = s.loops("add")
    s.compute_at("product", g)
    own = s.loops("product")[-4 if narrow else -3 :]
    s.unroll(p)
    s.vectorize(o)
    if target.threads > 1 and outputs > width:
        s.parallel(q)
    dot = half_dot(width, target) if narrow else None
    if dot is not None:
        own_p, own_o, own_c, own_e = own
        outer, inner = s.split(own_o, [None, dot[1]])
        s.reorder(own_c, own_p, outer, inner, own_e)
        s.unroll(own_p, outer)
        s.tensorize(inner, dot[0])
    else:
        own_p, own_o, *sum_loops = own
        s.reorder(*sum_loops, own_p, own_o)
        s.unroll(own_p)
        s.vectorize(own_o)
    return s.program


def depthwise_program(channels: int) -> Program:
    """The same where every channel has weights of its own."""
    b = Builder("convolve_pairs_by_channel")
    groups, taps = size("groups"), size("taps")
    count = b.indices("number", (1,), groups + 1, _expected(groups))[0]
    source, place = b.indices("source", (groups, GROUP), _ROWS), b.indices("place", (groups, GROUP), _PLACES)
    tap = b.indices("tap", (groups,), taps)
    change = b.input("change", (_ROWS, channels))
    weight = b.input("weight", (taps, channels))
    sums = b.state("sums", (_PLACES, channels))

    def added(g: Var, p: Var, c: Var) -> tuple[Sequence[Like], Expr]:
        at = (place[g, p], c)
        return at, sums[at] + change[source[g, p], c] * weight[tap[g], c]

    b.put("add", sums, (count, GROUP, channels), added)
    s = Schedule(b.program(sums))
    _rows_inside(s, "add")
    return s.program
