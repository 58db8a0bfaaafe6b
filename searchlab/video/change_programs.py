"""Programs over lists of pixels that changed: how large changes are, what is passed on, and the products of those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.ir import (
    Builder,
    Expr,
    Program,
    Var,
    call,
    cast,
    const,
    index,
    largest,
    maximum,
    select,
    size,
    total,
)
from searchlab.ir.compute import Reduction
from searchlab.ir.expr import Like
from searchlab.schedule import Schedule
from searchlab.targets import CpuTarget
from searchlab.video.pixel_values import (
    ENTRIES,
    PLACES,
    ROWS,
    PixelValue,
    expected,
    pixel_list,
    read_operands,
    rows_inside,
    share_pieces,
)
from searchlab.video.product_formats import FLOAT, FLOATS, STEPS, ProductFormat

Array = npt.NDArray[Any]
GROUP = 4  # pairs of pixels that share a register tile, at least; more would leave more of a tile empty
NO_STEP = 1e-30  # of a pixel without changes


def _size(now: Expr, seen: Expr) -> Expr:
    """The size of a change, which a float holds exactly if it is one of bytes."""
    return call("abs", cast(now, FLOAT) - cast(seen, FLOAT))


def sizes_program(value: PixelValue, target: CpuTarget) -> Program:
    """The largest change of any channel at each of some pixels, against what was `seen`."""
    b = Builder("sizes")
    pixels, count = pixel_list(b, "pixels", ROWS)
    read = read_operands(b, value)
    seen = b.input("seen", (ROWS, value.channels), value.dtype)
    c = b.axis("c", value.channels)
    made = b.compute("size", (count,), lambda i: largest(_size(read(pixels[i], c), seen[pixels[i], c]), c))
    s = Schedule(b.program(made))
    rows_inside(s, "size")
    share_pieces(s, "size", target)
    return s.program


def frame_sizes_program(value: PixelValue, target: CpuTarget) -> Program:
    """The largest change of any channel at every pixel of a planar value."""
    b = Builder("frame_sizes")
    read = read_operands(b, value)
    seen = b.input("seen", (value.channels, ROWS), value.dtype)

    def change(pixel: Expr) -> Expr:
        found = _size(read(pixel, index(0)), seen[0, pixel])
        for c in range(1, value.channels):
            found = maximum(found, _size(read(pixel, index(c)), seen[c, pixel]))
        return found

    s = Schedule(b.program(b.compute("size", (ROWS,), lambda i: change(i))))
    outer, inner = s.split("i", [None, 64 * target.lanes(FLOAT)], tail=True)
    s.vectorize(inner)
    if target.threads > 1:
        s.parallel(outer)
    return s.program


def pass_program(value: PixelValue, by_element: bool, format: ProductFormat = FLOATS) -> Program:
    """The changes of active pixels one after the other, which count as `seen` from then on, and their number.

    By element, changes of at most a threshold are dropped inside of active pixels as well.  What a format cannot hold
    of a change counts as not seen: it is part of a later change, and does not add up.
    """
    b = Builder("pass_on")
    pixels, count = pixel_list(b, "pixels", ROWS)
    limit = b.input("threshold", (1,))
    read = read_operands(b, value)
    channels = value.channels
    shape = (channels, ROWS) if value.planar else (ROWS, channels)
    seen = b.state("seen", shape, value.dtype)
    change = b.state("change", (ENTRIES, format.room(channels)), format.change)
    outputs = [seen, change]

    def at(row: Expr, c: Expr) -> tuple[Expr, Expr]:
        return (c, row) if value.planar else (row, c)

    def plain(i: Expr, c: Expr) -> Expr:
        return cast(read(pixels[i], c), format.sum) - cast(seen[at(pixels[i], c)], format.sum)

    if format.steps:
        every = b.axis("e", channels)
        largest_of = b.compute("largest", (count,), lambda i: largest(call("abs", plain(i, every)), every))
        step = b.state("step", (ENTRIES,))
        outputs.append(step)
        b.put("choose", step, (count,), lambda i: ((i,), largest_of[i] / float(STEPS) + NO_STEP))

    def difference(i: Var, c: Var) -> Expr:
        found = plain(i, c)
        kept = call("abs", cast(found, FLOAT)) > limit[0]
        found = select(kept, found, const(0, format.sum)) if by_element else found
        return format.stored(call("round", found / step[i]) if format.steps else found)

    def after(i: Var, c: Var) -> Expr:
        if not by_element and not format.rounds:
            return read(pixels[i], c)
        passed = format.loaded(change[i, c])
        passed = passed * step[i] if format.steps else passed
        return cast(cast(seen[at(pixels[i], c)], format.sum) + passed, value.dtype)

    b.put("differ", change, (count, channels), lambda i, c: ((i, c), difference(i, c)))
    b.put("see", seen, (count, channels), lambda i, c: (at(pixels[i], c), after(i, c)))
    k = b.axis("k", count)
    ones, zeros = const(1, FLOAT), const(0, FLOAT)
    counted = b.compute(
        "changed",
        (channels,),
        lambda c: total(select(format.loaded(change[k, c]).equals(0), zeros, ones), k),
    )
    s = Schedule(b.program(*outputs, counted))
    for block in ("largest",) * format.steps + ("differ", "see"):
        rows_inside(s, block)
    c, along = s.loops("changed")
    s.reorder(along, c)
    s.vectorize(c)
    return s.program


def map_program(value: PixelValue, target: CpuTarget) -> Program:
    """A value at some pixels, kept in a map."""
    b = Builder("map_pixels")
    pixels, count = pixel_list(b, "pixels", ROWS)
    made = b.state("made", (ROWS, value.channels), value.dtype)
    read = read_operands(b, value)
    b.put("write", made, (count, value.channels), lambda i, c: ((pixels[i], c), read(pixels[i], c)))
    s = Schedule(b.program(made))
    rows_inside(s, "write")
    share_pieces(s, "write", target)
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


def packed_weight(weight: Array, target: CpuTarget, format: ProductFormat = FLOATS) -> Array:
    """Weights (outputs, inputs, taps) in the order in which `pairs_program` reads them."""
    outputs, inputs, taps = weight.shape
    width, room = tile_width(outputs, target), format.room(inputs)
    filled = np.zeros((outputs, room, taps), weight.dtype)
    filled[:, :inputs] = weight
    packed = filled.reshape(outputs // width, width, room, taps).transpose(0, 3, 2, 1)
    if format.depth > 1:
        deep = (outputs // width, taps, room // format.depth, format.depth, width)
        packed = packed.reshape(deep).transpose(0, 1, 2, 4, 3)
    return format.weights(packed)


def surplus_of(weight: Array, format: ProductFormat) -> Array:
    """What the lift of a format adds to the sums, (taps, outputs), for weights (outputs, inputs, taps)."""
    return np.asarray(format.lift * weight.sum(axis=1, dtype=np.int64).T, np.int32)


def pairs_program(inputs: int, outputs: int, target: CpuTarget, format: ProductFormat = FLOATS) -> Program:
    """Adds the products of changes with the weights of taps to the sums of the places that they reach.

    Pairs of a position in `change` and a place come in groups, all pairs of which have one tap.  Weights have as many
    neighbouring inputs side by side as the format multiplies at once; `surplus` is what its lift adds.
    """
    b = Builder("convolve_pairs")
    groups, taps = size("groups"), size("taps")
    width, group = tile_width(outputs, target), tile_pairs(outputs, target)
    count = b.indices("number", (1,), groups + 1, expected(groups))[0]
    source, place = b.indices("source", (groups, group), ROWS), b.indices("place", (groups, group), PLACES)
    tap = b.indices("tap", (groups,), taps)
    depth, room = format.depth, format.room(inputs)
    change = b.input("change", (ROWS, room), format.change)
    tile = (room // depth, width, depth) if depth > 1 else (room, width)
    weight = b.input("weight", (outputs // width, taps, *tile), format.weight)
    surplus = b.input("surplus", (taps, outputs), format.sum) if format.lift else None
    steps = (b.input("step", (ROWS,)), b.input("weight_step", (outputs,))) if format.steps else None
    sums = b.state("sums", (PLACES, outputs), format.sum)
    c, e = b.axis("c", room // depth), b.axis("e", depth)
    shape = (outputs // width, count, group, width)

    def products(q: Var, g: Var, p: Var, o: Var) -> Reduction:
        if depth == 1:
            return total(change[source[g, p], c] * weight[q, tap[g], c, o], c)
        factors = change[source[g, p], depth * c + e], weight[q, tap[g], c, o, e]
        return total(cast(factors[0], format.product) * cast(factors[1], format.product), c, e)

    product = b.compute("product", shape, products)

    def added(q: Var, g: Var, p: Var, o: Var) -> tuple[Sequence[Like], Expr]:
        at = (place[g, p], q * width + o)
        made: Expr = product[q, g, p, o]
        if steps is not None:
            made = cast(made, format.sum) * (steps[0][source[g, p]] * steps[1][at[1]])
        found = sums[at] + made
        return at, found if surplus is None else found - surplus[tap[g], q * width + o]

    b.put("add", sums, shape, added)
    s = Schedule(b.program(sums))
    q, g, p, o = s.loops("add")
    s.compute_at("product", g)
    own = s.loops("product")[-3 if depth == 1 else -4 :]
    s.unroll(p)
    s.vectorize(o)
    if target.threads > 1 and outputs > width:
        s.parallel(q)
    dot = format.dot(width, target)
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


def depthwise_program(channels: int, format: ProductFormat = FLOATS) -> Program:
    """The same where every channel has weights of its own."""
    b = Builder("convolve_pairs_by_channel")
    groups, taps = size("groups"), size("taps")
    count = b.indices("number", (1,), groups + 1, expected(groups))[0]
    source, place = b.indices("source", (groups, GROUP), ROWS), b.indices("place", (groups, GROUP), PLACES)
    tap = b.indices("tap", (groups,), taps)
    change = b.input("change", (ROWS, format.room(channels)), format.change)
    weight = b.input("weight", (taps, channels), format.weight)
    sums = b.state("sums", (PLACES, channels), format.sum)

    def added(g: Var, p: Var, c: Var) -> tuple[Sequence[Like], Expr]:
        at = (place[g, p], c)
        return at, sums[at] + cast(change[source[g, p], c], format.sum) * cast(weight[tap[g], c], format.sum)

    b.put("add", sums, (count, GROUP, channels), added)
    s = Schedule(b.program(sums))
    rows_inside(s, "add")
    return s.program
