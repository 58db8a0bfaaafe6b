"""Programs over windows of maps at some places, which are computed anew where changes reach them.

Layers that read the frame have few input channels: by taps, every change would be multiplied by a handful of weights
and added to a whole pixel of sums.  As changes of a frame lie side by side, their windows hold many of them, and taking
windows of what was seen as a whole is several times as fast.  Nor do sums depend on what they were before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.ir import Builder, Expr, Program, Var, call, const, maximum, select, size, total
from searchlab.ir.compute import Reduction
from searchlab.schedule import Schedule
from searchlab.targets import CpuTarget
from searchlab.video.change_programs import tile_width
from searchlab.video.pixel_values import (
    PIECE,
    PLACES,
    ROWS,
    PixelValue,
    expected,
    pixel_list,
    read_operands,
    rows_inside,
    share_pieces,
)
from searchlab.video.product_formats import FLOAT
from searchlab.video.window_geometry import PaddedImage

Array = npt.NDArray[Any]
WINDOWS = 6  # that share a register tile
_GROUPS = size("groups")


def pool_program(value: PixelValue, taps: int, mean: int, target: CpuTarget) -> Program:
    """Windows of a value at some places, kept in a map: the largest element, or the sum divided by `mean`.

    `window[place, tap]` is a pixel of the value, or the last row of its map.
    """
    b = Builder("pool_pixels")
    places, count = pixel_list(b, "pixels", PLACES)
    read = read_operands(b, value)
    window = b.indices("window", (PLACES, taps), ROWS)
    made = b.state("made", (PLACES, value.channels))

    def pooled(i: Expr, c: Expr) -> Expr:
        found = read(window[places[i], 0], c)
        for tap in range(1, taps):
            other = read(window[places[i], tap], c)
            found = found + other if mean else maximum(found, other)
        return found / float(mean) if mean else found

    b.put("write", made, (count, value.channels), lambda i, c: ((places[i], c), pooled(i, c)))
    s = Schedule(b.program(made))
    rows_inside(s, "write")
    share_pieces(s, "write", target)
    return s.program


def see_program(value: PixelValue, image: PaddedImage, by_element: bool) -> Program:
    """Active pixels of a planar value count as `seen` from then on, in a padded image as well; and their number.

    By element, changes of at most a threshold are not seen inside of active pixels either.
    """
    b = Builder("see_pixels")
    pixels, count = pixel_list(b, "pixels", ROWS)
    limit = b.input("threshold", (1,))
    read = read_operands(b, value)
    inside = b.indices("inside", (ROWS,), image.elements - value.channels + 1)
    seen, padded = b.state("seen", (value.channels, ROWS)), b.state("padded", (image.elements,))
    k = b.axis("k", count)

    def passed(row: Expr, c: Expr) -> Expr:
        difference = read(row, c) - seen[c, row]
        # What is not a number has changed: it is not hidden.
        return select(call("abs", difference) <= (limit[0] if by_element else 0.0), const(0, FLOAT), const(1, FLOAT))

    changed = b.compute("changed", (value.channels,), lambda c: total(passed(pixels[k], c), k))

    def after(i: Var, c: Var) -> Expr:
        now = read(pixels[i], c)
        return select(passed(pixels[i], c).equals(0), seen[c, pixels[i]], now) if by_element else now

    b.put("see", seen, (count, value.channels), lambda i, c: ((c, pixels[i]), after(i, c)))
    b.put("pad", padded, (count, value.channels), lambda i, c: ((inside[pixels[i]] + c,), seen[c, pixels[i]]))
    return b.program(seen, padded, changed)


def window_width(outputs: int, target: CpuTarget) -> int:
    """How many output channels a register tile of windows has."""
    return tile_width(outputs, target.with_threads(1))


def window_weight(weight: Array, target: CpuTarget) -> Array:
    """Weights (outputs, inputs, rows, columns) in the order in which `windows_program` reads them."""
    outputs, inputs, down, across = weight.shape
    width = window_width(outputs, target)
    turned = weight.reshape(outputs // width, width, inputs, down, across).transpose(0, 3, 4, 2, 1)
    return np.ascontiguousarray(turned).reshape(outputs // width, down, across * inputs, width)


def windows_program(image: PaddedImage, outputs: int, target: CpuTarget) -> Program:
    """The sums of some places, in groups, computed of their windows of a padded image."""
    b = Builder("convolve_windows")
    width = window_width(outputs, target)
    count = b.indices("number", (1,), _GROUPS + 1, expected(_GROUPS))[0]
    place = b.indices("place", (_GROUPS, WINDOWS), PLACES)
    corner = b.indices("corner", (PLACES,), image.elements - image.span + 1)
    padded, bias = b.input("padded", (image.elements,)), b.input("bias", (outputs,))
    down = image.geometry.kernel[0]
    weight = b.input("weight", (outputs // width, down, image.run, width))
    sums = b.state("sums", (PLACES, outputs))
    y, x = b.axis("y", down), b.axis("x", image.run)
    shape = (count, outputs // width, WINDOWS, width)

    def products(g: Var, q: Var, p: Var, o: Var) -> Reduction:
        return total(padded[corner[place[g, p]] + y * image.line + x] * weight[q, y, x, o], y, x)

    product = b.compute("product", shape, products)
    b.put(
        "add",
        sums,
        shape,
        lambda g, q, p, o: ((place[g, p], q * width + o), product[g, q, p, o] + bias[q * width + o]),
    )
    s = Schedule(b.program(sums))
    _, q, p, o = s.loops("add")
    s.compute_at("product", q)
    own_p, own_o, *sum_loops = s.loops("product")[-4:]
    s.reorder(*sum_loops, own_p, own_o)
    for unrolled, lanes in ((p, o), (own_p, own_o)):
        s.unroll(unrolled)
        s.vectorize(lanes)
    share_pieces(s, "add", target, PIECE // WINDOWS)
    return s.program
