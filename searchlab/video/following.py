"""Following changes through the front of a network, in place and by lists: work depends on what changed alone.

Of a list of pixels that may have changed, the largest change of each is compared with a threshold; changes of those
that pass are written one after the other, multiplied by the weights of every tap, and added to the sums that they
reach, which are the pixels that may have changed next.  All calls of a frame are made by one native function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.backend import compile as compile_program
from searchlab.dtype import DTYPES
from searchlab.graph import CompiledModel, compile
from searchlab.ir import Program
from searchlab.runtime.memory import aligned, placed
from searchlab.targets import CpuTarget
from searchlab.video.change_programs import (
    GROUP,
    PixelValue,
    depthwise_program,
    frame_sizes_program,
    map_program,
    packed_weight,
    pairs_program,
    pass_program,
    pool_program,
    sizes_program,
    surplus_of,
    tile_pairs,
    tile_width,
)
from searchlab.video.frame_calls import FrameCalls, PixelList
from searchlab.video.front import TAIL, Front, LayerStep, MapShape, MapStep, PoolStep, WindowGeometry, block_table
from searchlab.video.product_formats import BYTE_MOST, ProductFormat, in_steps, product_format
from searchlab.video.residual_graph import MAIN
from searchlab.video.residual_plan import ChangePoint, ResidualPlan

Array = npt.NDArray[Any]


class HeldState(tuple[Array, ...]):
    """A state that is changed in place: `following` continues from it, and what it was before is gone."""

    following: Following


def followed(plan: ResidualPlan, front: Front) -> ResidualPlan:
    """The plan of a graph whose front is followed: its function of changes is not needed."""
    kept = {name: f for name, f in plan.module.functions.items() if name != MAIN}
    return replace(plan, module=replace(plan.module, functions=kept), skipping=tuple(front.layers))


class FollowingModel:
    """What the streams of a model have in common: compiled programs, packed weights, tables, and the tail."""

    def __init__(self, plan: ResidualPlan, front: Front, target: CpuTarget) -> None:
        self.plan, self.front, self.target, self.layers = plan, front, target, front.layers
        self.by_element = plan.options.granularity == "element"
        self.formats = _formats(front, plan.options.products, target)
        self.tail: CompiledModel | None = None if front.tail is None else compile(front.tail, target)
        self._idle: list[Following] = []
        self._kernels: dict[tuple[Any, ...], Any] = {}
        self._compiled: dict[str, Any] = {}
        self._tables: dict[WindowGeometry, tuple[Array, Array]] = {}
        self._weights: dict[str, dict[str, Array]] = {}

    def kernel(self, key: tuple[Any, ...], make: Callable[[], Program]) -> Any:
        """A program compiled, once for all streams and for all layers that are alike."""
        if key not in self._kernels:
            program = make()
            if program.hash not in self._compiled:
                self._compiled[program.hash] = compile_program(program, self.target)
            self._kernels[key] = self._compiled[program.hash]
        return self._kernels[key]

    def tables(self, geometry: WindowGeometry) -> tuple[Array, Array]:
        """Which place a pixel reaches by a tap."""
        if geometry not in self._tables:
            self._tables[geometry] = geometry.reaching()
        return self._tables[geometry]

    @cached_property
    def pixels(self) -> Array:
        """The output pixels of each layer."""
        return np.array([s.geometry.made.pixels for s in self.layers.values()])

    @cached_property
    def pixels_of_group(self) -> Array:
        """How many output pixels of each layer take as many products as one group of pairs."""
        tables = [self.tables(s.geometry) for s in self.layers.values()]
        pairs = [np.count_nonzero(down >= 0) * np.count_nonzero(across >= 0) for down, across in tables]
        return self.pixels * [self.group(s) for s in self.layers.values()] / np.array(pairs)

    def group(self, step: LayerStep) -> int:
        """How many pairs of a layer make a group."""
        by_channel = step.layer.groups > 1
        return GROUP if by_channel else tile_pairs(step.geometry.made.channels, self.target)

    def weight(self, step: LayerStep) -> dict[str, Array]:
        """The weights of a layer by tap, in the order in which they are read, and what their format needs beside."""
        layer = step.layer
        if layer.name not in self._weights:
            taps, form = layer.weight.reshape(*layer.weight.shape[:2], -1), self.formats[layer.point]
            more = {"surplus": surplus_of(taps, form)} if form.lift else {}
            if form.steps:
                taps, more["weight_step"] = in_steps(taps)
            packed = form.weights(taps[:, 0].T) if layer.groups > 1 else packed_weight(taps, self.target, form)
            found = {"weight": packed} | more
            self._weights[layer.name] = {name: placed(array) for name, array in found.items()}
        return self._weights[layer.name]

    def held(self, state: Sequence[Array], before: Sequence[Array] = ()) -> HeldState:
        """A state that is changed in place, in the memory of the one before, or of a stream that was released."""
        if isinstance(before, HeldState):
            following = before.following
        elif self._idle:
            following = self._idle.pop()
        else:
            return Following(self, state).state
        following.adopt(state)
        return following.state

    def release(self, state: Sequence[Array]) -> None:
        """Leaves the memory of a state to another stream."""
        if isinstance(state, HeldState):
            self._idle.append(state.following)

    def step(
        self, frame: Array, thresholds: Array, state: Sequence[Array], seconds: dict[str, float] | None = None
    ) -> tuple[Any, tuple[Array, ...], tuple[Array, ...]]:
        """The output, counts and the next state, which is the given one changed in place if it came from here."""
        following = (state if isinstance(state, HeldState) else self.held(state)).following
        output, counts = following.frame(frame, thresholds, seconds)
        return output, counts, following.state


@dataclass
class _ChangePart:
    """Changes that were passed on last, one after the other: those whose sizes exceed a limit."""

    active: PixelList
    change: Array
    changed: Array  # elements by channel
    limit: Array
    steps: dict[str, Array]  # of pixels, where a format has them


@dataclass
class _Point:
    """The changes of a value; a second part has what is left of those that do not fit into the first."""

    parts: tuple[_ChangePart, ...]
    threshold: Array

    @staticmethod
    def of(pixels: int, channels: int, form: ProductFormat) -> _Point:
        """A value without changes."""
        threshold, parts = np.zeros(1, np.float32), []
        for number in range(2 if form.lift else 1):
            change = aligned((pixels + 1, form.room(channels)), np.dtype(DTYPES[form.change].storage))
            change[...] = 0
            limit = np.zeros(1, np.float32) if number else threshold
            steps = {"step": np.zeros(pixels + 1, np.float32)} if form.steps else {}
            parts.append(_ChangePart(PixelList.of(pixels), change, np.zeros(channels, np.float32), limit, steps))
        return _Point(tuple(parts), threshold)

    def set_threshold(self, threshold: float) -> None:
        """Sets what changes have to exceed."""
        self.threshold[0] = threshold
        for further in self.parts[1:]:
            further.limit[0] = max(threshold, BYTE_MOST)


class Following:
    """One stream: maps, what layers have seen, and sums, all of which calls change in place."""

    def __init__(self, model: FollowingModel, state: Sequence[Array]) -> None:
        self.model, front = model, model.front
        self.maps: dict[str, Array] = {}
        self.lists: dict[str, PixelList] = {}
        self.seen: dict[int, Array] = {}  # by change point
        self.points: dict[int, _Point] = {}
        # The number of groups of pairs of each layer, for the first parts of changes and for the second ones.
        self.groups = np.zeros((2, len(model.layers)), np.int32)
        for name, shape in front.shapes.items():
            planar = name == front.frame
            size = (shape.channels, shape.pixels) if planar else (shape.pixels + 1, shape.channels)
            self.maps[name] = aligned(size, np.dtype(DTYPES[front.types[name]].storage))
            self.maps[name][...] = 0
            self.lists[name] = PixelList.of(shape.pixels, full=planar)
        for pool in (s for s in front.steps if isinstance(s, PoolStep)):
            self.maps[pool.given][-1] = 0 if pool.mean else -np.inf
        self._kept: list[Array | None] = []
        self._thresholds: Array | None = None
        self.adopt(state)
        self.calls, self._all = (self._calls(full=full) for full in (False, True))

    def adopt(self, state: Sequence[Array]) -> None:
        """Goes on from a state in which all was computed; memory and calls stay what they are."""
        self._kept, self._thresholds = list(state), None
        plan = self.model.plan
        for step in self.model.layers.values():
            number, given, planar = step.layer.point, step.geometry.given, step.value.planar
            slot = plan.points[number].slot
            if number not in self.seen:
                size = (given.channels, given.pixels) if planar else (given.pixels + 1, given.channels)
                self.seen[number] = aligned(size, state[slot].dtype)
            own = (step.layer.slot, self.maps[step.layer.name], False)
            for at, rows, flat in ((slot, self.seen[number], planar), own):
                _fill(rows, state[at], flat)
                self._kept[at] = _view(rows, state[at].shape, flat)

    @property
    def state(self) -> HeldState:
        """The state; it refers to this stream and not the other way round, so that both are freed at once."""
        made = HeldState(a for a in self._kept if a is not None)
        made.following = self
        return made

    def frame(
        self, frame: Array, thresholds: Array, seconds: dict[str, float] | None = None
    ) -> tuple[Any, tuple[Array, ...]]:
        """The output for a frame, and counts; adds times of layers to `seconds`."""
        plan, front = self.model.plan, self.model.front
        self.maps[front.frame][...] = frame.reshape(self.maps[front.frame].shape)
        again = self._thresholds is None or not np.array_equal(thresholds, self._thresholds)
        if again:
            # Pixels that did not change may exceed another threshold.
            self._thresholds = np.array(thresholds)
            for number, point in self.points.items():
                name = plan.points[number].name
                point.set_threshold(thresholds[plan.places[name]] if name in plan.places else 0.0)
        calls = self._all if again else self.calls
        calls() if seconds is None else calls.timed(seconds)
        output = self._tail()
        return output, self._counts()

    def _tail(self) -> Any:
        front, maps = self.model.front, self.maps
        given = [_as_image(maps[n], front.shapes[n], n == front.frame) for n in front.outputs]
        if self.model.tail is None:
            return given[0]
        made = self.model.tail[TAIL](*given)
        output, *kept = made if isinstance(made, tuple) and front.kept else (made,)
        values = dict(zip(front.kept, kept, strict=True))
        for slot, held in enumerate(self.model.plan.kept):
            if held.of in values:
                self._kept[slot] = values[held.of]
        return output

    def _counts(self) -> tuple[Array, ...]:
        """Changed elements by channel of each change point, then the output pixels of layers, as far as computed."""
        model = self.model
        changed = (
            self.points[number].parts[0].changed.copy() if number in self.points else self._all_elements(point)
            for number, point in enumerate(model.plan.points)
        )
        computed = np.minimum(self.groups.sum(axis=0) * model.pixels_of_group, model.pixels).astype(np.float32)
        return (*changed, *computed.reshape(-1, 1))

    def _all_elements(self, point: ChangePoint) -> Array:
        whole = self._kept[point.slot]
        assert whole is not None
        channels = whole.shape[point.axis]
        return np.full(channels, whole.size // channels, np.float32)

    # --- calls --------------------------------------------------------------------------------------------------------

    def _calls(self, *, full: bool) -> FrameCalls:
        """The calls of a frame; `full` takes every pixel for one that may have changed."""
        calls = FrameCalls()
        for step in self.model.front.steps:
            calls.begins[step.layer.name if isinstance(step, LayerStep) else step.name] = len(calls.words)
            if isinstance(step, MapStep):
                self._write_map(calls, step, full)
            elif isinstance(step, PoolStep):
                self._write_pool(calls, step, full)
            else:
                self._write_layer(calls, step, full)
        return calls

    def _candidates(self, calls: FrameCalls, value: PixelValue, full: bool) -> PixelList:
        """The pixels at which a value may have changed: those of any of its maps."""
        lists = [self.lists[m] for m in value.maps]
        pixels = len(lists[0].items) - 1
        if full:
            return PixelList.of(pixels, full=True)
        if len(lists) == 1:
            return lists[0]
        made, flags = PixelList.of(pixels), np.zeros(pixels + 1, np.uint8)
        flags[pixels] = 1
        same = np.arange(pixels + 1, dtype=np.int32)
        for n, one in enumerate(lists):
            numbers = np.array([1, pixels, 0, n == 0, n == len(lists) - 1], np.int64)
            calls.native("mark", one.items, one.number, same, numbers, flags, made.items, made.number)
        return made

    def _pair_tables(self, geometry: WindowGeometry, group: int) -> dict[str, Array]:
        """Room for pairs of pixels and places, in groups of one tap."""
        groups = geometry.taps * -(-(geometry.given.pixels + group) // group) + 1
        pairs = {name: np.zeros((groups, group), np.int32) for name in ("source", "place")}
        return pairs | {"tap": np.zeros(groups, np.int32)}

    def _pairs(
        self,
        calls: FrameCalls,
        geometry: WindowGeometry,
        group: int,
        given: PixelList,
        made: PixelList,
        count: Array,
        tables: dict[str, Array],
    ) -> None:
        """Pairs of some pixels and places whose windows hold them, by groups of one tap, and these places."""
        (down, across), pixels, places = self.model.tables(geometry), geometry.given.pixels, geometry.made.pixels
        scratch = np.zeros((5, pixels + 1), np.int32)
        numbers = [geometry.given.height, geometry.given.width, *geometry.kernel, places, group, pixels]
        flags = np.zeros(places + 1, np.uint8)
        flags[-1] = 1
        listed = (given.items, given.number, down, across, np.array(numbers, np.int64), scratch)
        calls.native("pair", *listed, *tables.values(), count, flags, made.items, made.number)

    def _mark(self, calls: FrameCalls, table: Array, places: int, given: PixelList, made: PixelList) -> None:
        flags = np.zeros(places + 1, np.uint8)
        flags[-1] = 1
        numbers = np.array([len(table), places, table.shape[1], 1, 1], np.int64)
        calls.native("mark", given.items, given.number, table, numbers, flags, made.items, made.number)

    def _operands(self, value: PixelValue) -> dict[str, Array]:
        found = {f"map{n}": self.maps[m] for n, m in enumerate(value.maps)}
        return found | {f"vector{n}": self.model.front.vectors[v] for n, v in enumerate(value.vectors)}

    def _write_map(self, calls: FrameCalls, step: MapStep, full: bool) -> None:
        pixels = self._candidates(calls, step.value, full)
        inputs = {"pixels": pixels.items, "pixels_number": pixels.number, **self._operands(step.value)}
        kernel = self.model.kernel(("map", step.name), lambda: map_program(step.value))
        calls.kernel(kernel, inputs, {"made": self.maps[step.name]})
        self.lists[step.name] = pixels if not full else self.lists[step.name]

    def _write_pool(self, calls: FrameCalls, step: PoolStep, full: bool) -> None:
        made = self.lists[step.name]
        given = PixelList.of(step.geometry.given.pixels, full=True) if full else self.lists[step.given]
        tables = self._pair_tables(step.geometry, 1)
        self._pairs(calls, step.geometry, 1, given, made, np.zeros(1, np.int32), tables)
        window = np.full((step.geometry.made.pixels + 1, step.geometry.taps), step.geometry.given.pixels, np.int32)
        window[:-1] = step.geometry.windows()
        key = (step.geometry.made.channels, step.geometry.taps, step.mean)
        kernel = self.model.kernel(("pool", *key), lambda: pool_program(*key))
        inputs = {"pixels": made.items, "pixels_number": made.number, "given": self.maps[step.given], "window": window}
        calls.kernel(kernel, inputs, {"made": self.maps[step.name]})

    def _write_point(self, calls: FrameCalls, step: LayerStep, full: bool) -> None:
        """The changes of what a layer reads, found once for all layers that read it."""
        number, value, given = step.layer.point, step.value, step.geometry.given
        form, block = self.model.formats[number], self.model.plan.options.block
        point = self.points.setdefault(number, _Point.of(given.pixels, given.channels, form))
        pixels = self._candidates(calls, value, full)
        rows = given.pixels if value.planar else given.pixels + 1
        size = np.zeros(rows, np.float32)
        operands, seen = self._operands(value), self.seen[number]
        inputs = {**operands, "seen": seen}
        if not value.planar:
            inputs |= {"pixels": pixels.items, "pixels_number": pixels.number}
        calls.kernel(self.model.kernel(("sizes", number), partial(self._sizes, value)), inputs, {"size": size})
        for part in point.parts:
            grows = block != 1 and part is point.parts[0]
            passed = PixelList.of(given.pixels) if grows else part.active
            calls.native("keep", size, pixels.items, pixels.number, part.limit, passed.items, passed.number)
            if grows:
                self._mark(calls, block_table(given, block), given.pixels, passed, part.active)
        passing = self.model.kernel(("pass", number), lambda: pass_program(value, self.model.by_element, form))
        for part in point.parts:
            listed = {"pixels": part.active.items[:rows], "pixels_number": part.active.number}
            outputs = {"seen": seen, "change": part.change[:rows], "changed": part.changed}
            outputs |= {name: array[:rows] for name, array in part.steps.items()}
            calls.kernel(passing, {**listed, "threshold": point.threshold, **operands}, outputs)

    def _sizes(self, value: PixelValue) -> Program:
        return (frame_sizes_program if value.planar else sizes_program)(value, self.model.target)

    def _write_layer(self, calls: FrameCalls, step: LayerStep, full: bool) -> None:
        number, name, geometry = step.layer.point, step.layer.name, step.geometry
        layers = list(self.model.layers.values())
        if next(s for s in layers if s.layer.point == number) is step:
            self._write_point(calls, step, full)
        at, group, form = layers.index(step), self.model.group(step), self.model.formats[number]
        channels, outputs = geometry.given.channels, geometry.made.channels
        by_channel, shape = step.layer.groups > 1, (channels, outputs, self.model.target, form)
        kernel = self.model.kernel(
            ("pairs", *shape, by_channel),
            lambda: depthwise_program(channels, form) if by_channel else pairs_program(*shape),
        )
        tables = self._pair_tables(geometry, group)
        for further, part in enumerate(self.points[number].parts):
            # What is left of changes reaches no other places.
            reached = PixelList.of(geometry.made.pixels) if further else self.lists[name]
            count = self.groups[further, at : at + 1]
            self._pairs(calls, geometry, group, part.active, reached, count, tables)
            inputs = {"number": count, **tables, "change": part.change, **part.steps, **self.model.weight(step)}
            calls.kernel(kernel, inputs, {"sums": self.maps[name]})


def _formats(front: Front, products: str, target: CpuTarget) -> dict[int, ProductFormat]:
    """The format of every change point, which suits all layers that read it."""
    found = {}
    for number in {s.layer.point for s in front.layers.values()}:
        steps = [s for s in front.layers.values() if s.layer.point == number]
        value, by_channel = steps[0].value, any(s.layer.groups > 1 for s in steps)
        widths = [tile_width(s.geometry.made.channels, target) for s in steps]
        found[number] = product_format(value.dtype, value.channels, by_channel, widths, products, target)
    return found


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


def _as_image(rows: Array, shape: MapShape, planar: bool) -> Array:
    """A copy of a map as an image."""
    return np.array(rows if planar else rows[:-1].T, order="C").reshape(1, shape.channels, shape.height, shape.width)
