"""What frames cost, in multiplications and in cycles of an accelerator that skips zeros, apart from any time.

The accelerator is as EIE: a layer's weights are dealt to P units by output, each stores its non-zero ones, and every
non-zero input is sent to all units.  A unit takes a cycle per product, and buffers let units run ahead, so that a layer
takes as long as its unit with most products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.errors import GraphError
from searchlab.video.residual_plan import ResidualLayer, ResidualPlan

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class LayerAccount:
    """One layer at one frame: multiplications of the whole layer and of its changes, and the share of changed inputs.

    `computed` is the share of output pixels, or of inputs of a fully connected layer, that a skipping kernel computed;
    None if the layer was computed as a whole.
    """

    layer: str
    whole: int
    changed: float
    density: float
    computed: float | None = None


@dataclass(frozen=True)
class FrameAccount:
    """One frame: why all of it was computed ("" if only changes were), its layers, and its errors against that.

    Errors are relative L2 errors of the sums of layers and, under "output", of the output; empty if nobody asked.
    """

    number: int
    dense: str
    layers: tuple[LayerAccount, ...]
    errors: Mapping[str, float]

    @cached_property
    def density(self) -> float:
        """The share of multiplications that changes need."""
        return sum(a.changed for a in self.layers) / max(1, sum(a.whole for a in self.layers))

    @cached_property
    def work(self) -> float:
        """The share of multiplications that kernels took: those of the whole layer where it does not skip."""
        taken = sum(a.whole * (1.0 if a.computed is None else a.computed) for a in self.layers)
        return taken / max(1, sum(a.whole for a in self.layers))


@dataclass(frozen=True)
class LayerSize:
    """A layer as a whole: its multiplications, the elements that it reads, and the units of which it may skip some."""

    whole: int
    elements: int
    units: int


def layer_sizes(plan: ResidualPlan, state: Sequence[Array]) -> tuple[LayerSize, ...]:
    """The sizes of all layers, from any state of a stream."""
    found = []
    for layer in plan.layers:
        given, sums = state[plan.points[layer.point].slot], state[layer.slot]
        units = given.shape[-1] if layer.weight.ndim == 2 else sums.size // sums.shape[1]
        found.append(LayerSize(layer.multiplications(given, sums), given.size, units))
    return tuple(found)


def frame_layers(
    plan: ResidualPlan, sizes: Sequence[LayerSize], counts: Sequence[Array] | None
) -> tuple[LayerAccount, ...]:
    """The account of every layer; without counts all of it was computed."""
    if counts is None:
        return tuple(
            LayerAccount(a.name, size.whole, float(size.whole), 1.0) for a, size in zip(plan.layers, sizes, strict=True)
        )
    found = []
    for layer, size in zip(plan.layers, sizes, strict=True):
        density = float(counts[layer.point].sum(dtype=np.float64)) / size.elements
        computed = None
        if layer.name in plan.skipping:
            computed = float(counts[len(plan.points) + plan.skipping.index(layer.name)][0]) / size.units
        found.append(LayerAccount(layer.name, size.whole, size.whole * density, density, computed))
    return tuple(found)


@dataclass(frozen=True)
class AcceleratorAccount:
    """Cycles of an accelerator with so many units for one frame.

    `dense` multiplies everything, `zeros` skips zeros of inputs and weights, `changes` zeros of changes and weights.
    `imbalance` is how much longer the last takes than if its products were spread evenly.
    """

    units: int
    dense: float
    zeros: float
    changes: float
    imbalance: float


def accelerator(
    plan: ResidualPlan, state: Sequence[Array], counts: Sequence[Array], units: int = 64
) -> AcceleratorAccount:
    """The cycles of a frame, from the state after it and the counts of its changes."""
    if units < 1:
        raise GraphError(f"units = {units}; at least 1 is accepted")
    dense = zeros = changes = even = 0.0
    for layer in plan.layers:
        point = plan.points[layer.point]
        given, sums = state[point.slot], state[layer.slot]
        others = tuple(a for a in range(given.ndim) if a != point.axis % given.ndim)
        dense += layer.multiplications(given, sums) / units
        weights = _dealt(layer, given.shape[point.axis], units) / _steps(layer)
        zeros += float((weights @ np.count_nonzero(given, axis=others)).max())
        work = weights @ counts[layer.point].astype(np.float64)
        changes += float(work.max())
        even += float(work.sum()) / units
    return AcceleratorAccount(units, dense, zeros, changes, changes / even if even else 1.0)


def _dealt(layer: ResidualLayer, channels: int, units: int) -> Array:
    """The number of non-zero weights that each unit has for each channel of inputs, (units, channels)."""
    counted = (layer.weight != 0).reshape(*layer.weight.shape[:2], -1).sum(axis=2)
    if layer.operator.name in ("dense", "conv_transpose2d"):
        counted = counted.T  # these have their inputs first
    outputs, inner = counted.shape
    found = np.zeros((units, channels))
    for output in range(outputs):
        first = output // (outputs // layer.groups) * inner
        found[output % units, first : first + inner] += counted[output]
    return found


def _steps(layer: ResidualLayer) -> int:
    """Of how many windows that begin at an input only one is computed; the edges of images are not considered."""
    stride = dict(layer.operator.attributes()).get("stride", (1, 1))
    return int(np.prod(stride)) if layer.operator.name == "conv2d" else 1
