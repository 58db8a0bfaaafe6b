"""The calls of a frame: for every step of a front, the lists that it needs and the programs that it runs.

Maps that are computed in bands of rows have lists for each band, and each band has calls of its own, which one thread
makes.  A layer first finds what changed in the bands of its input, and then adds it to the sums of the bands of its
output; only the latter reads what other bands have written, so only before it does everyone wait for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from searchlab.ir import Program
from searchlab.targets import CpuTarget
from searchlab.video.change_programs import (
    depthwise_program,
    frame_sizes_program,
    map_program,
    pairs_program,
    pass_program,
    sizes_program,
)
from searchlab.video.frame_calls import CallList, FrameCalls, PixelList
from searchlab.video.front import LayerStep, MapStep, PoolStep
from searchlab.video.pixel_values import PixelValue
from searchlab.video.stream_memory import BandChanges, ChangePart, PointMemory, StreamMemory
from searchlab.video.window_geometry import ReachedPlaces, WindowGeometry
from searchlab.video.window_programs import pool_program, see_program, windows_program

Array = npt.NDArray[Any]
Lists = tuple[PixelList, ...]  # of each band
Band = TypeVar("Band", PixelList, BandChanges)


class CallWriter:
    """Writes the calls of a stream.

    `full` takes every pixel for one that may have changed; `apart` waits at the end of every step, for its time.
    """

    def __init__(self, memory: StreamMemory, *, full: bool = False, apart: bool = False) -> None:
        self.memory, self.programs, self.full, self.apart = memory, memory.programs, full, apart
        self.calls = FrameCalls()
        self._open: list[CallList] = []  # of bands, as far as they are written

    def frame(self) -> FrameCalls:
        """The calls of a frame."""
        for step in self.programs.front.steps:
            if self.apart:
                self._wait()
            self.calls.begins[step.layer.name if isinstance(step, LayerStep) else step.name] = len(self.calls.words)
            if isinstance(step, MapStep):
                self._write_map(step)
            elif isinstance(step, PoolStep):
                self._write_pool(step)
            else:
                self._write_layer(step)
        self._wait()
        return self.calls

    # --- bands --------------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        """What follows may read what any band has written."""
        if self._open:
            self.calls.fork(self._open, self.programs.target.threads)
            self._open = []

    def _bands(self, count: int) -> Sequence[CallList]:
        """Where calls of each of some bands are written to; those of a single one are shared by all threads."""
        if count != len(self._open):
            self._wait()
        if count == 1:
            return [self.calls]
        self._open = self._open or [CallList() for _ in range(count)]
        return self._open

    def _candidates(self, value: PixelValue) -> Lists:
        """The pixels at which a value may have changed: those of any of its maps."""
        known, front = self.memory.lists, self.programs.front
        fewest = min(value.maps, key=lambda m: len(known[m]))
        if self.full:
            return self.memory.new_lists(fewest, full=True)
        if len(value.maps) == 1:
            return known[fewest]
        made, shape = self.memory.new_lists(fewest), front.shapes[fewest]
        same = ReachedPlaces.same(shape)
        for n, (calls, band) in enumerate(zip(self._bands(len(made)), shape.bands(len(made)), strict=True)):
            given = [one for m in value.maps for one in (known[m] if len(made) == 1 else known[m][n : n + 1])]
            calls.reached(given, same.within(band), made[n])
        return made

    def _operands(self, value: PixelValue) -> dict[str, Array]:
        found = {f"map{n}": self.memory.maps[m] for n, m in enumerate(value.maps)}
        return found | {f"vector{n}": self.programs.front.vectors[v] for n, v in enumerate(value.vectors)}

    # --- maps and pools -----------------------------------------------------------------------------------------------

    def _write_map(self, step: MapStep) -> None:
        lists, bands = self._candidates(step.value), self.programs.bands[step.name]
        kernel = self.programs.kernel(("map", step.name), partial(map_program, step.value), bands)
        for calls, pixels in zip(self._bands(bands), lists, strict=True):
            calls.kernel(kernel, _listed(pixels) | self._operands(step.value), {"made": self.memory.maps[step.name]})
        if not self.full:
            self.memory.lists[step.name] = lists

    def _write_pool(self, step: PoolStep) -> None:
        given, geometry, made = self._candidates(step.value), step.geometry, self.memory.lists[step.name]
        self._wait()
        make = partial(pool_program, step.value, geometry.taps, step.mean)
        kernel = self.programs.kernel(("pool", step.name), make, len(made))
        inputs = {"window": step.windows(), **self._operands(step.value)}
        for calls, places, band in zip(self._bands(len(made)), made, geometry.made.bands(len(made)), strict=True):
            calls.reached(_near(given, geometry, band), geometry.reach.within(band), places)
            calls.kernel(kernel, inputs | _listed(places), {"made": self.memory.maps[step.name]})

    # --- layers -------------------------------------------------------------------------------------------------------

    def _write_layer(self, step: LayerStep) -> None:
        number = step.layer.point
        if self.programs.readers(number)[0] is step:
            self._write_point(step)
            self._wait()
        (self._write_windows if number in self.programs.images else self._write_pairs)(step)

    def _write_point(self, step: LayerStep) -> None:
        """The changes of what a layer reads, found once for all layers that read it."""
        point, lists = self.memory.point(step), self._candidates(step.value)
        sizes = self._write_sizes(step, lists)
        block, given = self.programs.plan.options.block, step.geometry.given
        for part in point.parts:
            grows = block != 1 and part is point.parts[0]
            passed = tuple(PixelList.of(band) for band in given.bands(len(lists)))
            passed = passed if grows else tuple(band.active for band in part.bands)
            for calls, size, one, kept in zip(self._bands(len(lists)), sizes, lists, passed, strict=True):
                calls.native("keep", size, one.items, one.number, part.limit, kept.items, kept.number)
            if grows:
                self._grow(step, passed, part, ReachedPlaces.block(given, block))
        for part in point.parts:
            for calls, band in zip(self._bands(len(lists)), part.bands, strict=True):
                self._write_passing(calls, step, point, band)

    def _grow(self, step: LayerStep, passed: Lists, part: ChangePart, blocks: ReachedPlaces) -> None:
        """Whole blocks are passed on, which may lie in several bands."""
        self._wait()
        bands = step.geometry.given.bands(len(passed))
        for calls, made, band in zip(self._bands(len(passed)), part.bands, bands, strict=True):
            calls.reached(passed, blocks.within(band), made.active)

    def _write_sizes(self, step: LayerStep, lists: Lists) -> list[Array]:
        """The largest change of every listed pixel, by bands."""
        number, value = step.layer.point, step.value
        inputs = {**self._operands(value), "seen": self.memory.seen[number]}
        if value.planar:
            self._wait()
            every = np.zeros(step.geometry.given.pixels, np.float32)
            kernel = self.programs.kernel(("sizes", number), partial(frame_sizes_program, value), 1)
            self.calls.kernel(kernel, inputs, {"size": every})
            return [every[band.start : band.stop] for band in step.geometry.given.bands(len(lists))]
        sizes = [np.zeros(len(one.items), np.float32) for one in lists]
        kernel = self.programs.kernel(("sizes", number), partial(sizes_program, value), len(lists))
        for calls, one, size in zip(self._bands(len(lists)), lists, sizes, strict=True):
            calls.kernel(kernel, inputs | _listed(one), {"size": size})
        return sizes

    def _write_passing(self, calls: CallList, step: LayerStep, point: PointMemory, band: BandChanges) -> None:
        """Changes count as seen, and are passed on one after the other, or in an image of which windows are taken."""
        number, value, programs = step.layer.point, step.value, self.programs
        bands, by_element = len(point.parts[0].bands), programs.by_element
        inputs = {**_listed(band.active), "threshold": point.threshold, **self._operands(value)}
        outputs = {"seen": self.memory.seen[number], "changed": band.changed, **band.written}
        if number in programs.images:
            image = programs.images[number]
            kernel = programs.kernel(("see", number), lambda _: see_program(value, image, by_element), bands)
            inputs["inside"], outputs["padded"] = image.inside()[:-1], self.memory.padded[number]
        else:
            form = programs.formats[number]
            kernel = programs.kernel(("pass", number), lambda _: pass_program(value, by_element, form), bands)
        calls.kernel(kernel, inputs, outputs)

    def _write_windows(self, step: LayerStep) -> None:
        """The sums of places that changes reach, computed of what was seen."""
        number, name, programs, memory = step.layer.point, step.layer.name, self.programs, self.memory
        geometry, image, made = step.geometry, programs.images[number], memory.lists[name]
        make = partial(windows_program, image, geometry.made.channels)
        kernel = programs.kernel(("windows", name), make, len(made))
        inputs = {"corner": image.corners(), "padded": memory.padded[number], **programs.weight(step)}
        at = list(programs.layers).index(name)
        active = [changes.active for changes in memory.point(step).parts[0].bands]
        for n, band in enumerate(geometry.made.bands(len(made))):
            calls, places, count = self._bands(len(made))[n], made[n], memory.groups[0, at, n : n + 1]
            calls.reached(_near(active, geometry, band), geometry.reach.within(band), places, count)
            listed = {"number": count, "place": places.grouped}
            calls.kernel(kernel, inputs | listed, {"sums": memory.maps[name]})

    def _write_pairs(self, step: LayerStep) -> None:
        """The products of changes, added to the sums of the places that they reach."""
        name, geometry, programs, memory = step.layer.name, step.geometry, self.programs, self.memory
        at, made, parts = list(programs.layers).index(name), memory.lists[name], memory.point(step).parts
        kernel = self._pair_kernel(step, len(made))
        for n, band in enumerate(geometry.made.bands(len(made))):
            calls = self._bands(len(made))[n]
            # What is left of changes reaches no other places.
            first = [changes.active for changes in _near(parts[0].bands, geometry, band)]
            calls.reached(first, geometry.reach.within(band), made[n])
            for further, part in enumerate(parts):
                count = memory.groups[further, at, n : n + 1]
                tables = self._pair(calls, step, band, _near(part.bands, geometry, band), count)
                inputs = {"number": count, **tables, **part.written, **programs.weight(step)}
                calls.kernel(kernel, inputs, {"sums": memory.maps[name]})

    def _pair_kernel(self, step: LayerStep, bands: int) -> Any:
        form, by_channel = self.programs.formats[step.layer.point], step.layer.groups > 1
        channels, outputs = step.geometry.given.channels, step.geometry.made.channels

        def make(target: CpuTarget) -> Program:
            return depthwise_program(channels, form) if by_channel else pairs_program(channels, outputs, target, form)

        return self.programs.kernel(("pairs", channels, outputs, form, by_channel), make, bands)

    def _pair(
        self, calls: CallList, step: LayerStep, band: range, changes: Sequence[BandChanges], count: Array
    ) -> dict[str, Array]:
        """Pairs of some changes and the places of a band whose windows hold them, by groups of one tap."""
        geometry, group = step.geometry, self.programs.group(step)
        (down, across), pixels, places = geometry.reaching, geometry.given.pixels, geometry.made.pixels
        room = sum(len(c.active.items) for c in changes)
        tables = _pair_tables(geometry, room, group)
        near = np.where((down >= band.start) & (down < band.stop), down, -1).astype(np.int32)
        about = [geometry.given.height, geometry.given.width, *geometry.kernel, places, group, pixels]
        numbers, scratch = np.array([*about, room, len(changes)], np.int64), np.zeros((6, room), np.int32)
        lists = [array for c in changes for array in (c.active.items, c.active.number, c.first)]
        calls.native("pair", near, across, numbers, scratch, *tables.values(), count, *lists)
        return tables


def _listed(pixels: PixelList) -> dict[str, Array]:
    return {"pixels": pixels.items, "pixels_number": pixels.number}


def _near(bands: Sequence[Band], geometry: WindowGeometry, places: range) -> list[Band]:
    """Those of some bands of an input from which places can be reached."""
    near, pixels = geometry.sources(places), geometry.given.bands(len(bands))
    return [b for b, own in zip(bands, pixels, strict=True) if own.start < near.stop and near.start < own.stop]


def _pair_tables(geometry: WindowGeometry, room: int, group: int) -> dict[str, Array]:
    """Room for pairs of pixels and places, in groups of one tap."""
    groups = geometry.taps * -(-(room + group) // group) + 1
    pairs = {name: np.zeros((groups, group), np.int32) for name in ("source", "place")}
    return pairs | {"tap": np.zeros(groups, np.int32)}
