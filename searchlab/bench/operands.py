"""A workload with arrays, in the form in which the libraries' implementations use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.dtype import DTYPES, FLOATS, HALVES
from searchlab.workloads import Workload
from searchlab.workloads.building_blocks import per_axis
from searchlab.workloads.counts import shape_of
from searchlab.workloads.pointwise import steps

Array = npt.NDArray[Any]
_KNOWN = ("bias", "bn", "add", "relu", "relu6", "sigmoid", "tanh", "gelu", "exp", "abs", "neg", "square")


@dataclass(frozen=True)
class LibraryOperands:
    """One call of an operator: its parameters, its arrays, and its epilogue (bias, bn, add, relu, ...)."""

    workload: Workload
    arrays: Mapping[str, Array]

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.workload.name

    @cached_property
    def params(self) -> dict[str, Any]:
        """The parameters of the operator, by name."""
        return dict(self.workload.params)

    @property
    def is_float(self) -> bool:
        """Whether all arrays hold floating-point numbers."""
        return all(x.dtype.name in FLOATS for x in self.arrays.values())

    @property
    def has_halves(self) -> bool:
        """Whether an array holds floats of 16 bits, which are no type of its own in numpy, or a slow one."""
        return any(b.dtype in HALVES for b in self.workload.program.buffers.values())

    @property
    def multiplies_bytes(self) -> bool:
        """Whether the operator is a sum of products of bytes."""
        return self.name != "reduce" and next(iter(self.arrays.values())).dtype.itemsize == 1

    def per_axis(self, name: str) -> tuple[int, ...]:
        """A parameter of a convolution or pooling, one number per spatial axis; a neutral value if it is missing."""
        spatial = {"conv1d": 1, "conv3d": 3}.get(self.name, 2)
        return per_axis(name, self.params.get(name, 1), spatial)

    def output(self) -> Array:
        """Memory for the result."""
        program = self.workload.program
        name = program.outputs[0]
        return np.empty(shape_of(program, name), DTYPES[program.buffers[name].dtype].storage)

    @cached_property
    def steps(self) -> tuple[str, ...]:
        """The steps of the epilogue."""
        if self.name == "conv2d_bn_relu":
            return ("bn", "relu")
        if self.name == "dense":
            activation = steps(self.params["activation"], _KNOWN)
            return ("bias", *activation) if self.params["bias"] else activation
        return steps(self.params.get("then", "none"), _KNOWN)

    def folded(self, channel: int) -> tuple[Array, Array | None, tuple[str, ...]]:
        """Weights, bias and remaining steps, with batch normalisation folded into the weights, as is usual.

        `channel` is the axis of the output channels in the weights.  Folding happens ahead of time and is not timed.
        """
        W = self.arrays["W"]
        first, rest = self.steps[:1], self.steps[1:]
        if first == ("bias",):
            return W, self.arrays["bias"], rest
        if first == ("bn",):
            column = [1] * W.ndim
            column[channel] = -1
            return W * self.arrays["scale"].reshape(column), self.arrays["shift"], rest
        return W, None, self.steps


def follow(
    y: Any,
    names: tuple[str, ...],
    given: Mapping[str, Any],
    unary: Mapping[str, Callable[[Any], Any]],
    channel: int = 1,
) -> Any:
    """Applies steps to `y` in place; works on arrays and on tensors, given their library's functions."""
    column = [1] * y.ndim
    column[channel] = -1
    for name in names:
        if name == "bn":
            y *= given["scale"].reshape(column)
            y += given["shift"].reshape(column)
        elif name == "bias":
            y += given["bias"].reshape(column)
        elif name == "add":
            y += given["R"]
        else:
            unary[name](y)
    return y
