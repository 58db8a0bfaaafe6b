"""Where windows of a map lie, and which places a pixel reaches: those whose windows hold it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_NOWHERE = 1 << 29  # no place; two of it are a number of 32 bits as well


@dataclass(frozen=True)
class MapShape:
    """The extents of a map of features of one image."""

    channels: int
    height: int
    width: int

    @property
    def pixels(self) -> int:
        """The number of its pixels."""
        return self.height * self.width

    def bands(self, count: int) -> list[range]:
        """The pixels of so many bands of rows, one after the other."""
        edges = [self.height * n // count * self.width for n in range(count + 1)]
        return [range(*edge) for edge in zip(edges, edges[1:], strict=False)]


@dataclass(frozen=True, eq=False)
class ReachedPlaces:
    """The places that pixels reach: every sum of a line of a pixel's row and of a column of its column.

    Lines (rows, most lines of a row) and columns are small, unlike a table of all pixels; what a row has fewer of is
    filled up with numbers that are no places.
    """

    lines: Array
    columns: Array
    places: int
    band: range  # of the places that count

    @staticmethod
    def same(shape: MapShape) -> ReachedPlaces:
        """Every pixel reaches itself."""
        return ReachedPlaces.block(shape, 1)

    @staticmethod
    def block(shape: MapShape, block: int | str) -> ReachedPlaces:
        """Every pixel reaches all of its block of so many pixels squared, or of its row."""
        height, width = (1, shape.width) if isinstance(block, str) else (block, block)
        lines, columns = _block(shape.height, height), _block(shape.width, width)
        return _reached(np.where(lines < 0, -1, lines * shape.width), columns, shape.pixels)

    def within(self, band: range) -> ReachedPlaces:
        """The same, but for places outside of a band of rows, which nothing reaches."""
        inside = (self.lines >= band.start) & (self.lines < band.stop)
        return replace(self, lines=np.where(inside, self.lines, _NOWHERE).astype(np.int32), band=band)


def _reached(lines: Array, columns: Array, places: int) -> ReachedPlaces:
    """The places of tables in which there is none where they are -1."""
    lines, columns = (np.ascontiguousarray(np.where(t < 0, _NOWHERE, t), np.int32) for t in (lines, columns))
    return ReachedPlaces(lines, columns, places, range(places))


def _block(extent: int, size: int) -> Array:
    """What is in one block with each of some numbers (numbers, size), -1 beyond the last."""
    found = np.arange(extent)[:, None] // size * size + np.arange(size)
    return np.where(found < extent, found, -1)


@dataclass(frozen=True)
class WindowGeometry:
    """Where windows of a map lie."""

    given: MapShape
    made: MapShape
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...] = (1, 1)

    @property
    def taps(self) -> int:
        """The elements of a window."""
        return math.prod(self.kernel)

    @property
    def _axes(self) -> tuple[tuple[int, int], ...]:
        return (self.given.height, self.made.height), (self.given.width, self.made.width)

    def windows(self) -> Array:
        """The pixels of the window of every place (places, taps), and for padding the number of pixels."""
        axes = []
        for axis, (extent, count) in enumerate(self._axes):
            first = np.arange(count) * self.stride[axis] - self.padding[axis]
            at = first[:, None] + np.arange(self.kernel[axis]) * self.dilation[axis]
            axes.append(np.where((at >= 0) & (at < extent), at, -1))
        rows, columns = axes[0][:, None, :, None], axes[1][None, :, None, :]
        found = np.where((rows >= 0) & (columns >= 0), rows * self.given.width + columns, self.given.pixels)
        return found.reshape(self.made.pixels, self.taps).astype(np.int32)

    @cached_property
    def reaching(self) -> tuple[Array, Array]:
        """The place that a pixel reaches by a tap is down[tap's row, pixel's row] + across[tap's column, its column].

        Either is -1 where there is none.  Both are small, unlike a table of all pixels by all taps.
        """
        found = []
        for axis, (extent, count) in enumerate(self._axes):
            table = np.full((self.kernel[axis], extent), -1, np.int32)
            for tap in range(self.kernel[axis]):
                at = np.arange(count) * self.stride[axis] - self.padding[axis] + tap * self.dilation[axis]
                inside = (at >= 0) & (at < extent)
                table[tap, at[inside]] = np.arange(count)[inside]
            found.append(table)
        down, across = found
        return np.where(down < 0, -1, down * self.made.width).astype(np.int32), across

    def sources(self, band: range) -> range:
        """The pixels of all rows that reach a band of places."""
        down, _ = self.reaching
        (rows,) = np.nonzero(((down >= band.start) & (down < band.stop)).any(axis=0))
        return range(int(rows[0]) * self.given.width, int(rows[-1] + 1) * self.given.width) if len(rows) else range(0)

    @cached_property
    def reach(self) -> ReachedPlaces:
        """The places that a pixel reaches by any tap."""
        lines, columns = (_compact(table) for table in self.reaching)
        return _reached(lines, columns, self.made.pixels)


def _compact(table: Array) -> Array:
    """What the columns of a table have beside -1, as rows that are as long as the longest."""
    ordered = -np.sort(-table, axis=0)
    most = max(1, int((ordered >= 0).sum(axis=0).max()))
    return ordered[:most].T


@dataclass(frozen=True)
class PaddedImage:
    """An image with channels innermost and zeros around it, of which every window lies inside, in one flat array."""

    geometry: WindowGeometry

    @property
    def line(self) -> int:
        """The elements of a row."""
        given = self.geometry.given
        return (given.width + 2 * self.geometry.padding[1]) * given.channels

    @property
    def elements(self) -> int:
        """The elements of all rows."""
        return (self.geometry.given.height + 2 * self.geometry.padding[0]) * self.line

    @property
    def run(self) -> int:
        """The neighbouring elements of a window in one row."""
        return self.geometry.kernel[1] * self.geometry.given.channels

    @property
    def span(self) -> int:
        """The elements from the first to the last of a window."""
        return (self.geometry.kernel[0] - 1) * self.line + self.run

    def inside(self) -> Array:
        """Where the first channel of every pixel lies; none, the last one, lies at the beginning."""
        g = self.geometry
        rows, columns = (np.arange(n) + p for n, p in zip((g.given.height, g.given.width), g.padding, strict=True))
        return self._places(rows, columns)

    def corners(self) -> Array:
        """Where the window of every place begins; that of none, the last one, at the beginning."""
        g = self.geometry
        rows, columns = (np.arange(n) * s for n, s in zip((g.made.height, g.made.width), g.stride, strict=True))
        return self._places(rows, columns)

    def _places(self, rows: Array, columns: Array) -> Array:
        found = rows[:, None] * self.line + columns * self.geometry.given.channels
        return np.append(found.reshape(-1), 0).astype(np.int32)

    def filled(self, image: Array) -> Array:
        """The padded image of one with channels outermost, (channels, pixels)."""
        g, (down, across) = self.geometry, self.geometry.padding
        turned = image.reshape(g.given.channels, g.given.height, g.given.width).transpose(1, 2, 0)
        return np.pad(turned, ((down, down), (across, across), (0, 0))).reshape(-1)
