"""The calls of a frame: for every step of a front, the lists that it needs and the programs that it runs."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.ir import Program
from searchlab.video.change_programs import (
    depthwise_program,
    frame_sizes_program,
    map_program,
    pairs_program,
    pass_program,
    sizes_program,
)
from searchlab.video.frame_calls import FrameCalls, PixelList
from searchlab.video.front import LayerStep, MapStep, PoolStep
from searchlab.video.pixel_values import PixelValue
from searchlab.video.stream_memory import ChangePart, PointMemory, StreamMemory
from searchlab.video.window_geometry import ReachedPlaces, WindowGeometry
from searchlab.video.window_programs import pool_program, see_program, windows_program

Array = npt.NDArray[Any]


class CallWriter:
    """Writes the calls of a stream; `full` takes every pixel for one that may have changed."""

    def __init__(self, memory: StreamMemory, *, full: bool) -> None:
        self.memory, self.programs, self.full = memory, memory.programs, full
        self.target = self.programs.target
        self.calls = FrameCalls()

    def frame(self) -> FrameCalls:
        """The calls of a frame."""
        for step in self.programs.front.steps:
            self.calls.begins[step.layer.name if isinstance(step, LayerStep) else step.name] = len(self.calls.words)
            if isinstance(step, MapStep):
                self._write_map(step)
            elif isinstance(step, PoolStep):
                self._write_pool(step)
            else:
                self._write_layer(step)
        return self.calls

    def _candidates(self, value: PixelValue) -> PixelList:
        """The pixels at which a value may have changed: those of any of its maps."""
        lists = [self.memory.lists[m] for m in value.maps]
        shape = self.programs.front.shapes[value.maps[0]]
        if self.full:
            return PixelList.of(shape.pixels, full=True)
        if len(lists) == 1:
            return lists[0]
        made = PixelList.of(shape.pixels)
        self.calls.reached(lists, ReachedPlaces.same(shape), made)
        return made

    def _operands(self, value: PixelValue) -> dict[str, Array]:
        found = {f"map{n}": self.memory.maps[m] for n, m in enumerate(value.maps)}
        return found | {f"vector{n}": self.programs.front.vectors[v] for n, v in enumerate(value.vectors)}

    def _write_map(self, step: MapStep) -> None:
        pixels, lists = self._candidates(step.value), self.memory.lists
        inputs = {"pixels": pixels.items, "pixels_number": pixels.number, **self._operands(step.value)}
        kernel = self.programs.kernel(("map", step.name), lambda: map_program(step.value, self.target))
        self.calls.kernel(kernel, inputs, {"made": self.memory.maps[step.name]})
        lists[step.name] = pixels if not self.full else lists[step.name]

    def _write_pool(self, step: PoolStep) -> None:
        made = self.memory.lists[step.name]
        self.calls.reached([self._candidates(step.value)], step.geometry.reach, made)
        kernel = self.programs.kernel(
            ("pool", step.name), lambda: pool_program(step.value, step.geometry.taps, step.mean, self.target)
        )
        inputs = {"pixels": made.items, "pixels_number": made.number, "window": step.windows()}
        self.calls.kernel(kernel, inputs | self._operands(step.value), {"made": self.memory.maps[step.name]})

    # --- layers -------------------------------------------------------------------------------------------------------

    def _write_layer(self, step: LayerStep) -> None:
        number = step.layer.point
        if self.programs.readers(number)[0] is step:
            self._write_point(step)
        (self._write_windows if number in self.programs.images else self._write_pairs)(step)

    def _write_point(self, step: LayerStep) -> None:
        """The changes of what a layer reads, found once for all layers that read it."""
        number, value, given = step.layer.point, step.value, step.geometry.given
        point, pixels = self.memory.point(step), self._candidates(value)
        size = np.zeros(given.pixels if value.planar else given.pixels + 1, np.float32)
        inputs = {**self._operands(value), "seen": self.memory.seen[number]}
        if not value.planar:
            inputs |= {"pixels": pixels.items, "pixels_number": pixels.number}
        kernel = self.programs.kernel(("sizes", number), partial(self._sizes, value))
        self.calls.kernel(kernel, inputs, {"size": size})
        block = self.programs.plan.options.block
        for part in point.parts:
            grows = block != 1 and part is point.parts[0]
            passed = PixelList.of(given.pixels) if grows else part.active
            self.calls.native("keep", size, pixels.items, pixels.number, part.limit, passed.items, passed.number)
            if grows:
                self.calls.reached([passed], ReachedPlaces.block(given, block), part.active)
        for part in point.parts:
            self._write_passing(step, point, part)

    def _sizes(self, value: PixelValue) -> Program:
        return (frame_sizes_program if value.planar else sizes_program)(value, self.target)

    def _write_passing(self, step: LayerStep, point: PointMemory, part: ChangePart) -> None:
        """Changes count as seen, and are passed on one after the other, or in an image of which windows are taken."""
        number, value, programs = step.layer.point, step.value, self.programs
        seen, by_element = self.memory.seen[number], programs.by_element
        rows = step.geometry.given.pixels if value.planar else step.geometry.given.pixels + 1
        inputs = {"pixels": part.active.items[:rows], "pixels_number": part.active.number, **self._operands(value)}
        inputs["threshold"], outputs = point.threshold, {"seen": seen, "changed": part.changed}
        if number in programs.images:
            image = programs.images[number]
            kernel = programs.kernel(("see", number), lambda: see_program(value, image, by_element))
            inputs["inside"], outputs["padded"] = image.inside()[:rows], self.memory.padded[number]
        else:
            form = programs.formats[number]
            kernel = programs.kernel(("pass", number), lambda: pass_program(value, by_element, form))
            outputs |= {name: array[:rows] for name, array in {"change": part.change, **part.steps}.items()}
        self.calls.kernel(kernel, inputs, outputs)

    def _write_windows(self, step: LayerStep) -> None:
        """The sums of places that changes reach, computed of what was seen."""
        number, name = step.layer.point, step.layer.name
        image, outputs, reached = self.programs.images[number], step.geometry.made.channels, self.memory.lists[name]
        at = list(self.programs.layers).index(name)
        count = self.memory.groups[0, at : at + 1]
        self.calls.reached([self.memory.point(step).parts[0].active], step.geometry.reach, reached, count)
        kernel = self.programs.kernel(("windows", name), lambda: windows_program(image, outputs, self.target))
        inputs = {"number": count, "place": reached.grouped, "corner": image.corners(), **self.programs.weight(step)}
        self.calls.kernel(kernel, inputs | {"padded": self.memory.padded[number]}, {"sums": self.memory.maps[name]})

    def _write_pairs(self, step: LayerStep) -> None:
        """The products of changes, added to the sums of the places that they reach."""
        name, geometry, programs = step.layer.name, step.geometry, self.programs
        form, at, group = programs.formats[step.layer.point], list(programs.layers).index(name), programs.group(step)
        channels, outputs, by_channel = geometry.given.channels, geometry.made.channels, step.layer.groups > 1
        shape = (channels, outputs, self.target, form)
        kernel = programs.kernel(
            ("pairs", *shape, by_channel),
            lambda: depthwise_program(channels, form) if by_channel else pairs_program(*shape),
        )
        tables, sums = _pair_tables(geometry, group), self.memory.maps[name]
        first, *_ = parts = self.memory.point(step).parts
        # What is left of changes reaches no other places.
        self.calls.reached([first.active], geometry.reach, self.memory.lists[name])
        for further, part in enumerate(parts):
            count = self.memory.groups[further, at : at + 1]
            self._pair(geometry, group, part.active, tables, count)
            inputs = {"number": count, **tables, "change": part.change, **part.steps, **programs.weight(step)}
            self.calls.kernel(kernel, inputs, {"sums": sums})

    def _pair(
        self, geometry: WindowGeometry, group: int, given: PixelList, tables: dict[str, Array], count: Array
    ) -> None:
        """Pairs of some pixels and places whose windows hold them, by groups of one tap."""
        (down, across), pixels, places = self.programs.tables(geometry), geometry.given.pixels, geometry.made.pixels
        scratch = np.zeros((5, pixels + 1), np.int32)
        numbers = [geometry.given.height, geometry.given.width, *geometry.kernel, places, group, pixels]
        listed = (given.items, given.number, down, across, np.array(numbers, np.int64), scratch)
        self.calls.native("pair", *listed, *tables.values(), count)


def _pair_tables(geometry: WindowGeometry, group: int) -> dict[str, Array]:
    """Room for pairs of pixels and places, in groups of one tap."""
    groups = geometry.taps * -(-(geometry.given.pixels + group) // group) + 1
    pairs = {name: np.zeros((groups, group), np.int32) for name in ("source", "place")}
    return pairs | {"tap": np.zeros(groups, np.int32)}
