"""What all streams of a front share: compiled programs, packed weights, formats of products, and tables of places."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.backend import compile as compile_program
from searchlab.ir import Program
from searchlab.runtime.memory import placed
from searchlab.targets import CpuTarget
from searchlab.video.change_programs import GROUP, packed_weight, surplus_of, tile_pairs, tile_width
from searchlab.video.front import Front, LayerStep, MapStep
from searchlab.video.product_formats import FLOATS, ProductFormat, in_steps, product_format
from searchlab.video.residual_plan import ResidualPlan
from searchlab.video.window_geometry import PaddedImage
from searchlab.video.window_programs import WINDOWS, window_weight

Array = npt.NDArray[Any]
BANDS, BAND_ROWS = 4, 5  # bands of a map for each thread, at most, and rows of a band, at least


class FrontPrograms:
    """The programs and weights of the layers of a front, made when they are first asked for."""

    def __init__(self, plan: ResidualPlan, front: Front, target: CpuTarget) -> None:
        self.plan, self.front, self.target, self.layers = plan, front, target, front.layers
        self.by_element = plan.options.granularity == "element"
        self.formats = _formats(front, plan.options.products, target)
        self.bands = self._bands()
        self._kernels: dict[tuple[Any, ...], Any] = {}
        self._compiled: dict[tuple[str, int], Any] = {}
        self._weights: dict[str, dict[str, Array]] = {}

    def _bands(self) -> dict[str, int]:
        """In how many bands of rows each map is computed; 1 where all threads share every call instead.

        Threads that have rows of their own leave what they compute in their own caches, and all weights pass through
        each of them; so weights must be few.
        """
        most, counts = BANDS * self.target.threads, {}
        for name, shape in self.front.shapes.items():
            count = min(most, shape.height // BAND_ROWS)
            counts[name] = count if self.target.threads > 1 and 2 * count >= most else 1
        for step in self.front.steps:
            if isinstance(step, LayerStep):
                few = self.formats[step.layer.point].bytes(step.layer.weight.size) <= self.target.l2 // 2
                counts[step.layer.name] = counts[step.layer.name] if few else 1
            elif isinstance(step, MapStep):
                counts[step.name] = min(counts[m] for m in step.value.maps)
        return counts

    def target_of(self, bands: int) -> CpuTarget:
        """The target of calls on a map of so many bands: a thread for each, or all for one."""
        return self.target if bands == 1 else self.target.with_threads(1)

    def kernel(self, key: tuple[Any, ...], make: Callable[[CpuTarget], Program], bands: int) -> Any:
        """A program compiled, once for all streams and for all layers that are alike."""
        target = self.target_of(bands)
        key = (*key, target.threads)
        if key not in self._kernels:
            program = make(target)
            found = (program.hash, target.threads)
            if found not in self._compiled:
                self._compiled[found] = compile_program(program, target)
            self._kernels[key] = self._compiled[found]
        return self._kernels[key]

    def readers(self, point: int) -> list[LayerStep]:
        """The layers that read the changes of a value."""
        return [s for s in self.layers.values() if s.layer.point == point]

    @cached_property
    def images(self) -> dict[int, PaddedImage]:
        """Change points whose layers are computed anew where changes reach them, and the images that these read.

        These are frames, with few channels, that one layer reads.
        """
        found = {}
        for number in self.formats:
            step, *others = self.readers(number)
            plain = step.layer.groups == 1 and set(step.geometry.dilation) == {1}
            if step.value.planar and plain and not others and self.formats[number] is FLOATS:
                found[number] = PaddedImage(step.geometry)
        return found

    @cached_property
    def speeds(self) -> dict[str, float]:
        """How many products of each layer take as long as one of the plain graph."""
        found = {}
        for name, step in self.layers.items():
            width = tile_width(step.geometry.made.channels, self._target(step))
            found[name] = self.formats[step.layer.point].speed(width, self.target)
        return found

    @cached_property
    def pixels(self) -> Array:
        """The output pixels of each layer."""
        return np.array([s.geometry.made.pixels for s in self.layers.values()])

    @cached_property
    def pixels_of_group(self) -> Array:
        """How many output pixels of each layer take as many products as one group of windows, or of pairs."""
        return np.array([self._pixels_of_group(s) for s in self.layers.values()])

    def _pixels_of_group(self, step: LayerStep) -> float:
        if step.layer.point in self.images:
            return WINDOWS
        down, across = step.geometry.reaching
        pairs = np.count_nonzero(down >= 0) * np.count_nonzero(across >= 0)
        return step.geometry.made.pixels * self.group(step) / pairs

    def group(self, step: LayerStep) -> int:
        """How many pairs of a layer make a group."""
        by_channel = step.layer.groups > 1
        return GROUP if by_channel else tile_pairs(step.geometry.made.channels, self._target(step))

    def _target(self, step: LayerStep) -> CpuTarget:
        return self.target_of(self.bands[step.layer.name])

    def weight(self, step: LayerStep) -> dict[str, Array]:
        """The weights of a layer by tap, in the order in which they are read, and what their format needs beside."""
        name = step.layer.name
        if name not in self._weights:
            found = self._window_weight(step) if step.layer.point in self.images else self._pair_weight(step)
            self._weights[name] = {part: placed(array) for part, array in found.items()}
        return self._weights[name]

    def _window_weight(self, step: LayerStep) -> dict[str, Array]:
        layer = step.layer
        bias = np.zeros(len(layer.weight), np.float32) if layer.bias is None else layer.bias
        return {"weight": window_weight(layer.weight, self._target(step)), "bias": bias.reshape(-1)}

    def _pair_weight(self, step: LayerStep) -> dict[str, Array]:
        layer = step.layer
        taps, form = layer.weight.reshape(*layer.weight.shape[:2], -1), self.formats[layer.point]
        found = {"surplus": surplus_of(taps, form)} if form.lift else {}
        if form.steps:
            taps, found["weight_step"] = in_steps(taps)
        found["weight"] = (
            form.weights(taps[:, 0].T) if layer.groups > 1 else packed_weight(taps, self._target(step), form)
        )
        return found


def _formats(front: Front, products: str, target: CpuTarget) -> dict[int, ProductFormat]:
    """The format of every change point, which suits all layers that read it."""
    found = {}
    for number in {s.layer.point for s in front.layers.values()}:
        steps = [s for s in front.layers.values() if s.layer.point == number]
        value, by_channel = steps[0].value, any(s.layer.groups > 1 for s in steps)
        widths = [tile_width(s.geometry.made.channels, target) for s in steps]
        found[number] = product_format(value.dtype, value.channels, by_channel, widths, products, target)
    return found
