"""Splits that may round an extent up, so that extents with few divisors can be tiled as well as others."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np

from searchlab.errors import SpaceError
from searchlab.search.knob import Knob, factorisations, factorize, split_knob

Tails = Literal["auto", "always", "never"]
"""Whether tiles may round extents up: where too few sizes divide them, everywhere, or nowhere."""

SIZES = (1, 2, 4, 6, 8, 12, 14, 16, 24, 28, 32, 48, 64)  # innermost factors: rows of registers, multiples of vectors
SHORT = 16  # extents up to this one fit a tile of registers as they are
LEAST, MOST = 8, 64  # what an innermost factor should be between to be of use
WASTE = 8  # an extent grows by at most one part in so many,
SMALL_WASTE = 3  # or by this much
_FAR = 256  # numbers looked at for a smooth one


def check_tails(tails: str) -> None:
    """Rejects a word that is not one of `Tails`."""
    if tails not in get_args(Tails):
        raise SpaceError(f"tails = {tails!r}: accepted are {', '.join(get_args(Tails))}")


def tile_knob(name: str, extent: int, parts: int, max_inner: int | None = None, tails: Tails = "auto") -> Knob:
    """The factorisations of an extent and, where `tails` say so, splits that round it up."""
    exact = split_knob(name, extent, parts, max_inner)
    if parts < 2 or tails == "never" or (tails == "auto" and divides_well(extent, parts, max_inner)):
        return exact
    return rounding_knob(name, extent, parts, max_inner)


def vector_tails(extent: int, width: int, tails: Tails) -> Tails:
    """Whether vectors may round an extent up: with "auto", where no whole number of them divides it."""
    uneven = extent > SHORT and all(extent % size for size in range(width, MOST + 1, width))
    return "always" if tails == "auto" and uneven else tails


def divides_well(extent: int, parts: int, max_inner: int | None = None) -> bool:
    """Whether an extent has divisors of useful sizes.

    Two parts are vectors, or steps of a sum, and the loop around them: a divisor of at least 8 is enough.  Where there
    are more, one of the axes gets vectors and the others rows of registers: 8 to 64, a multiple of 4.  Short extents
    can be left whole.
    """
    most = min(extent, MOST if max_inner is None else max_inner)
    if extent <= SHORT:
        return True
    step = 1 if parts == 2 else 4
    return any(extent % size == 0 for size in range(LEAST, most + 1, step))


def rounding_knob(name: str, extent: int, parts: int, max_inner: int | None = None) -> Knob:
    """All factorisations of an extent, and rows (outer, .., inner) whose product is a little more than the extent."""
    exact = split_knob(name, extent, parts, max_inner)
    rows = sorted({*map(tuple, exact.options.tolist()), *_rounded(extent, parts, max_inner)})
    if len(rows) == len(exact):
        return exact
    return Knob(name, "split", exact.symbols, np.array(rows, dtype=np.int64), covers=extent)


def _rounded(extent: int, parts: int, max_inner: int | None) -> Iterator[tuple[int, ...]]:
    """Rows that end with a useful size; the number of such tiles, or a smoother one above it, is factorised."""
    most = extent + max(SMALL_WASTE, extent // WASTE)
    for size in (s for s in SIZES if s <= min(extent, max_inner or extent)):
        count = -(-extent // size)
        for total in dict.fromkeys((count, _smoothest(count, most // size))):
            for factors in factorisations(total, parts - 1).tolist():
                inner = (*factors[1:], size)
                row = (-(-extent // math.prod(inner)), *inner)
                if extent < math.prod(row) <= most and not _is_idle(row, extent):
                    yield row


def _smoothest(low: int, high: int) -> int:
    """The number from `low` to `high` with the most prime factors, the lowest of several."""
    return max(range(low, max(low, min(high, low + _FAR)) + 1), key=lambda n: (sum(factorize(n).values()), -n))


def _is_idle(row: tuple[int, ...], extent: int) -> bool:
    """Whether a smaller factor in place of one of them would cover the extent as well: that is the same program."""
    inner = itertools.accumulate(reversed(row), operator.mul, initial=1)
    return any((factor - 1) * size >= extent for factor, size in zip(reversed(row), inner, strict=False))
