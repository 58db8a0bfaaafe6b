"""Building blocks shared by operators: loops named at run time, zero padding, epilogues, integer accumulation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from searchlab.dtype import FLOATS
from searchlab.errors import WorkloadError
from searchlab.ir.compute import Builder, Tensor
from searchlab.ir.expr import Expr, Var, all_of, cast, select
from searchlab.workloads.definition import Array
from searchlab.workloads.parameters import Extent
from searchlab.workloads.pointwise import UNARY, steps

SPACE = {1: ("w",), 2: ("h", "w"), 3: ("d", "h", "w")}  # names of the spatial axes, by their number


def named(names: Sequence[str], body: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `body` in a function with these parameter names, after which a Builder names its loops."""

    def call(*indices: Var) -> Any:
        return body(*indices)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    call.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])  # type: ignore[attr-defined]
    return call


def require(condition: bool, message: str) -> None:
    """Rejects inconsistent parameters."""
    if not condition:
        raise WorkloadError(message)


def per_axis(name: str, value: int | tuple[int, ...], axes: int) -> tuple[int, ...]:
    """One number per spatial axis."""
    if isinstance(value, int):
        return (value,) * axes
    require(len(value) == axes, f"{name} = {'x'.join(map(str, value))} has {len(value)} numbers for {axes} axes")
    return value


def weight_type(dtype: str) -> str:
    """The dtype of weights: signed for unsigned data, as in quantised networks and the instructions for them."""
    return "int8" if dtype == "uint8" else dtype


def wide(value: Expr) -> Expr:
    """Widens small integers to int32, in which they are multiplied and accumulated."""
    return value if value.dtype in FLOATS else cast(value, "int32")


def pad(b: Builder, x: Tensor, names: Sequence[str], padding: Sequence[tuple[int, int]], fill: float = 0) -> Tensor:
    """Stage P: `x` padded with (before, after) elements of `fill` along each axis; `x` itself without padding."""
    if not any(map(any, padding)):
        return x

    def body(*indices: Var) -> Expr:
        source = [i - before for i, (before, _) in zip(indices, padding, strict=True)]
        inside = [
            c
            for s, extent, (before, after) in zip(source, x.shape, padding, strict=True)
            for c in ([s >= 0] if before else []) + ([s < extent] if after else [])
        ]
        return select(all_of(inside), x[tuple(source)], fill)

    shape = [extent + sum(p) for extent, p in zip(x.shape, padding, strict=True)]
    return b.compute("P", shape, named(names, body))


_FURTHER = {"bias": ("bias",), "bn": ("scale", "shift"), "add": ("R",)}  # the inputs that a step of an epilogue adds


@dataclass(frozen=True)
class Reordered:
    """Another order of a tensor's elements: the shape, and where each element is found in the tensor."""

    shape: tuple[Expr, ...]
    source: Callable[..., tuple[Expr, ...]]


@dataclass(frozen=True)
class Epilogue:
    """The elementwise operations after a product, in one stage: any of `bias`, `bn`, `add` and unary functions.

    bn is batch normalisation with its statistics folded into a scale and a shift per channel; add is a residual.
    """

    steps: tuple[str, ...]

    @staticmethod
    def of(text: str, dtype: str) -> Epilogue:
        """Parses an epilogue such as `bn,add,relu`; rejects one that does not suit the dtype."""
        found = Epilogue(steps(text, (*_FURTHER, *UNARY)))
        needy = [s for s in found.steps if s != "bias" and dtype not in FLOATS]
        require(not needy, f"{', '.join(needy)} after the sum needs a floating-point dtype, not {dtype}")
        return found

    @property
    def stage(self) -> str:
        """The name of the stage before it."""
        return "C" if self.steps else "Y"

    @property
    def weights(self) -> tuple[str, ...]:
        """The additional inputs that are constants of a model."""
        return tuple(name for step in self.steps if step != "add" for name in _FURTHER.get(step, ()))

    def apply(
        self, b: Builder, c: Tensor, names: Sequence[str], channel: int = 1, order: Reordered | None = None
    ) -> Tensor:
        """Stage Y: the epilogue applied to stage C, whose elements `order` rearranges; C itself if there is neither."""
        if not self.steps and order is None:
            return c
        shape = c.shape if order is None else order.shape
        width = (shape[channel],)
        given: dict[str, Tensor] = {}
        for step in self.steps:
            for name in _FURTHER.get(step, ()):
                given[name] = b.input(name, shape if name == "R" else width, c.dtype)

        def body(*indices: Var) -> Expr:
            x, at = c[indices if order is None else order.source(*indices)], indices[channel]
            for step in self.steps:
                if step == "bn":
                    x = x * given["scale"][at] + given["shift"][at]
                elif step == "bias":
                    x = x + given["bias"][at]
                else:
                    x = x + given["R"][indices] if step == "add" else UNARY[step].expr(x)
            return x

        return b.compute("Y", shape, named(names, body))

    def array(self, y: Array, *given: Array, channel: int = 1) -> Array:
        """The same on arrays; `given` holds the additional inputs in order."""
        rest = list(given)
        column = [1] * y.ndim
        column[channel] = -1
        for step in self.steps:
            if step == "bn":
                y = y * rest.pop(0).reshape(column) + rest.pop(0).reshape(column)
            elif step == "bias":
                y = y + rest.pop(0).reshape(column)
            else:
                y = y + rest.pop(0) if step == "add" else UNARY[step].array(y)
        return y


def window_count(axis: str, extent: Extent, kernel: int, stride: int, padding: int, dilation: int = 1) -> Extent:
    """The number of windows along an axis."""
    span = dilation * (kernel - 1) + 1
    room = extent + 2 * padding
    fits = not isinstance(room, int) or room >= span
    require(fits, f"the kernel spans {span} along {axis}, the input with its padding only {room}")
    return (room - span) // stride + 1
