"""The memory of a stream: maps, what layers have seen, sums, changes and lists, all of which calls change in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.dtype import DTYPES
from searchlab.runtime.memory import aligned
from searchlab.video.frame_calls import PixelList
from searchlab.video.front import LayerStep
from searchlab.video.front_programs import FrontPrograms
from searchlab.video.product_formats import BYTE_MOST, ProductFormat
from searchlab.video.window_geometry import MapShape
from searchlab.video.window_programs import WINDOWS

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class BandChanges:
    """Changes of one band that were passed on last, one after the other, in its part of the memory for all bands."""

    active: PixelList
    changed: Array  # elements by channel
    first: Array  # the place of the first in the memory of all
    written: dict[str, Array]  # its part of what is written: changes, and steps where a format has them


@dataclass(frozen=True, eq=False)
class ChangePart:
    """Changes that were passed on last: those whose sizes exceed a limit."""

    limit: Array
    bands: tuple[BandChanges, ...]
    written: dict[str, Array]

    @staticmethod
    def of(given: MapShape, form: ProductFormat, limit: Array, changed: Array, written: bool) -> ChangePart:
        """Room for the changes of a value, whose numbers by bands are counted in `changed`.

        Those of values that are only seen are not written anywhere else.
        """
        rows, room = given.pixels + 1, form.room(given.channels)
        whole = {"change": aligned((rows, room), np.dtype(DTYPES[form.change].storage))} if written else {}
        whole |= {"step": np.zeros(rows, np.float32)} if form.steps else {}
        for array in whole.values():
            array[...] = 0
        parts = []
        for band, counted in zip(given.bands(len(changed)), changed, strict=True):
            mine = {name: array[band.start : band.stop + 1] for name, array in whole.items()}
            parts.append(BandChanges(PixelList.of(band), counted, np.array([band.start], np.int32), mine))
        return ChangePart(limit, tuple(parts), whole)


@dataclass(frozen=True, eq=False)
class PointMemory:
    """The changes of a value; a second part has what is left of those that do not fit into the first."""

    parts: tuple[ChangePart, ...]
    threshold: Array

    def set_threshold(self, threshold: float) -> None:
        """Sets what changes have to exceed."""
        self.threshold[0] = threshold
        for further in self.parts[1:]:
            further.limit[0] = max(threshold, BYTE_MOST)


class StreamMemory:
    """One stream: maps, what layers have seen, and sums."""

    def __init__(self, programs: FrontPrograms, state: Sequence[Array]) -> None:
        self.programs, front = programs, programs.front
        self.maps: dict[str, Array] = {}
        self.lists: dict[str, tuple[PixelList, ...]] = {}  # of each band
        self.seen: dict[int, Array] = {}  # by change point
        self.padded: dict[int, Array] = {}  # by change point: what was seen, as windows read it
        self.points: dict[int, PointMemory] = {}
        # Changed elements of all change points by band, and where the channels of each are.
        channels = {number: programs.readers(number)[0].geometry.given.channels for number in programs.formats}
        self._changed = np.zeros((max(programs.bands.values()), sum(channels.values())), np.float32)
        ends = np.cumsum([0, *channels.values()]).tolist()
        self._channels = {n: slice(*edge) for n, edge in zip(channels, zip(ends, ends[1:], strict=False), strict=True)}
        # The number of groups of each layer and band, for the first parts of changes and for the second ones.
        self.groups = np.zeros((2, len(programs.layers), max(programs.bands.values())), np.int32)
        for name, shape in front.shapes.items():
            planar = name == front.frame
            size = (shape.channels, shape.pixels) if planar else (shape.pixels + 1, shape.channels)
            self.maps[name] = aligned(size, np.dtype(DTYPES[front.types[name]].storage))
            self.maps[name][...] = 0
            self.lists[name] = self.new_lists(name, full=planar)
        self.kept: list[Array | None] = []
        self.adopt(state)

    def adopt(self, state: Sequence[Array]) -> None:
        """Goes on from a state in which all was computed; memory stays what it is."""
        self.kept = list(state)
        for step in self.programs.layers.values():
            self._adopt_seen(step, state)
            slot, sums = step.layer.slot, self.maps[step.layer.name]
            _fill(sums, state[slot], planar=False)
            self.kept[slot] = _view(sums, state[slot].shape, planar=False)

    def _adopt_seen(self, step: LayerStep, state: Sequence[Array]) -> None:
        number, given, planar = step.layer.point, step.geometry.given, step.value.planar
        slot = self.programs.plan.points[number].slot
        if number not in self.seen:
            size = (given.channels, given.pixels) if planar else (given.pixels + 1, given.channels)
            self.seen[number] = aligned(size, state[slot].dtype)
        rows = self.seen[number]
        _fill(rows, state[slot], planar)
        self.kept[slot] = _view(rows, state[slot].shape, planar)
        if number in self.programs.images:
            image = self.programs.images[number]
            padded = self.padded.setdefault(number, aligned((image.elements,), np.dtype(np.float32)))
            padded[...] = image.filled(rows)

    def new_lists(self, name: str, *, full: bool = False) -> tuple[PixelList, ...]:
        """Lists of the pixels of a map by bands, which are empty or have all of them."""
        bands = self.programs.front.shapes[name].bands(self.programs.bands[name])
        return tuple(PixelList.of(band, full=full, group=WINDOWS) for band in bands)

    def list_pixels(self, name: str, pixels: Array) -> None:
        """Takes these pixels of a map, in order, for those that may have changed."""
        lists = self.lists[name]
        for one, band in zip(lists, self.programs.front.shapes[name].bands(len(lists)), strict=True):
            mine = pixels[(pixels >= band.start) & (pixels < band.stop)]
            one.items[: len(mine)], one.number[0] = mine, len(mine)

    def point(self, step: LayerStep) -> PointMemory:
        """The changes of what a layer reads."""
        number, programs = step.layer.point, self.programs
        if number not in self.points:
            given, form, written = step.geometry.given, programs.formats[number], number not in programs.images
            threshold, bands = np.zeros(1, np.float32), min(programs.bands[m] for m in step.value.maps)
            changed = self._changed[:bands, self._channels[number]]
            parts = [ChangePart.of(given, form, threshold, changed, written)]
            if form.lift:  # elements that changed are those of the first part
                parts.append(ChangePart.of(given, form, np.zeros(1, np.float32), np.zeros_like(changed), written))
            self.points[number] = PointMemory(tuple(parts), threshold)
        return self.points[number]

    def changed(self) -> dict[int, Array]:
        """Changed elements by channel, of each change point."""
        whole = self._changed.sum(axis=0)
        return {number: whole[mine] for number, mine in self._channels.items()}

    def image(self, name: str) -> Array:
        """A copy of a map as an image (1, channels, height, width)."""
        front = self.programs.front
        shape, rows = front.shapes[name], self.maps[name]
        found = np.array(rows if name == front.frame else rows[:-1].T, order="C")
        return found.reshape(1, shape.channels, shape.height, shape.width)


def _fill(rows: Array, image: Array, planar: bool) -> None:
    """Copies an image (1, channels, height, width) to a map."""
    if planar:
        rows[...] = image.reshape(rows.shape)
    else:
        rows[:-1] = image.reshape(image.shape[1], -1).T


def _view(rows: Array, shape: tuple[int, ...], planar: bool) -> Array:
    """A map as an image (1, channels, height, width), without copying."""
    _, channels, height, width = shape
    if planar:
        return rows.reshape(shape)
    return rows[:-1].reshape(1, height, width, channels).transpose(0, 3, 1, 2)
