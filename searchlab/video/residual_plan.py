"""What a residual graph consists of: layers, the values it keeps from frame to frame, and where it counts changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.errors import GraphError
from searchlab.graph import GraphModule, GraphOperator
from searchlab.registry import nearest
from searchlab.video.residual_options import ResidualOptions

Array = npt.NDArray[Any]
Thresholds = float | Mapping[str, float]


@dataclass(frozen=True)
class KeptValue:
    """A value of the state: the original value `of` which it holds a version; `role` says what for.

    An "input" is what a layer has seen, a "sum" what it gave before activation, and an "activation" the sums that an
    activation last passed on.
    """

    role: str
    of: str


@dataclass(frozen=True)
class ChangePoint:
    """An input of layers on whose changes they compute; it is called as the first layer that reads it.

    `slot` is its place in the state and `axis` its axis of channels.
    """

    name: str
    slot: int
    axis: int


@dataclass(frozen=True, eq=False)
class ResidualLayer:
    """A linear layer: the change point that it reads, the place of its sums in the state, its weights and bias."""

    name: str
    operator: GraphOperator
    point: int
    slot: int
    weight: Array = field(repr=False)
    bias: Array | None = field(repr=False, default=None)

    @property
    def groups(self) -> int:
        """The groups of channels, between which there are no weights."""
        return int(dict(self.operator.attributes()).get("groups", 1))

    def multiplications(self, given: Array, sums: Array) -> int:
        """The multiplications of the whole layer, from an input and an output of it."""
        if self.operator.name == "conv_transpose2d":
            return given.size * int(np.prod(self.weight.shape[1:]))
        terms = np.prod(self.weight.shape[1:]) if self.weight.ndim == 4 else given.shape[-1]
        return sums.size * int(terms)


@dataclass(frozen=True, eq=False)
class ResidualPlan:
    """A residual graph with what its values mean.

    `module` has two functions: `first(frame)` returns the output and a state, by computing everything;
    `main(frame, thresholds, state)` returns the output, counts and the next state.  Counts are the changed elements of
    each channel of every change point, then what each of the `skipping` layers computed: output pixels, or inputs.
    `thresholded` has the names of thresholds in order, and which value of the state they apply to.
    """

    module: GraphModule = field(repr=False)
    options: ResidualOptions
    layers: tuple[ResidualLayer, ...]
    points: tuple[ChangePoint, ...]
    kept: tuple[KeptValue, ...]
    thresholded: Mapping[str, int]
    skipping: tuple[str, ...]

    @cached_property
    def places(self) -> dict[str, int]:
        """The places of thresholds by name."""
        return {name: at for at, name in enumerate(self.thresholded)}

    @cached_property
    def maps(self) -> tuple[str, ...]:
        """The names of thresholds that apply to maps, (n, channels, height, width).

        What is no map, as the input of a classifier, gets none: there is little to save, and much to lose.
        """
        known = self.module["first"].annotations
        return tuple(n for n, slot in self.thresholded.items() if getattr(known[self.kept[slot].of], "rank", None) == 4)

    def thresholds(self, given: Thresholds) -> npt.NDArray[np.float32]:
        """One threshold for all, or some by name and 0 for the others."""
        if not isinstance(given, Mapping):
            given = dict.fromkeys(self.thresholded, float(given))
        found = np.zeros(len(self.thresholded), np.float32)
        for name, value in given.items():
            if name not in self.places:
                raise GraphError(f"there is no threshold '{name}'{nearest(name, self.thresholded, 'thresholds')}")
            if not 0 <= value < np.inf:
                raise GraphError(f"the threshold of '{name}' is {value}; at least 0 and finite is accepted")
            found[self.places[name]] = value
        return found

    def relative_thresholds(self, state: Sequence[Array], share: float) -> dict[str, float]:
        """Thresholds that are a share of the standard deviation of the `maps` that they apply to, in a state."""
        return {name: share * float(state[self.thresholded[name]].std()) for name in self.maps}
