"""Building blocks shared by operators: loops named at run time, zero padding, epilogues, types of sums."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from searchlab.dtype import DTYPES, FLOATS, HALVES
from searchlab.errors import WorkloadError
from searchlab.ir.compute import Builder, Reduction, Tensor
from searchlab.ir.expr import Expr, Like, Var, all_of, cast, select
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
    """Widens a value to the type in which it is multiplied and accumulated: integers to int32, 16 bits to float32."""
    return cast(value, DTYPES[value.dtype].arithmetic if value.dtype in FLOATS else "int32")


def fitted(value: Expr, dtype: str) -> Expr:
    """A result of an operator on `dtype`: rounded, once, to a float of 16 bits; all others as they are."""
    return cast(value, dtype) if dtype in HALVES else value


def sum_stage(
    b: Builder, name: str, shape: Sequence[Like], body: Callable[..., Expr | Reduction], dtype: str
) -> Tensor:
    """A stage that is a sum; one of 16 bits is made in float32, by stage S, and rounded by a stage of its own."""
    if dtype not in HALVES:
        return b.compute(name, shape, body)
    S = b.compute("S", shape, body)
    return b.compute(name, shape, named(list(inspect.signature(body).parameters), lambda *at: fitted(S[at], dtype)))


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

    bn is batch normalisation with its statistics folded into a scale and a shift per channel; add is a residual.  The
    result of an operator on floats of 16 bits is rounded in the same stage, even if nothing else is left to do.
    """

    steps: tuple[str, ...]
    dtype: str

    @staticmethod
    def of(text: str, dtype: str) -> Epilogue:
        """Parses an epilogue such as `bn,add,relu`; rejects one that does not suit the dtype."""
        found = Epilogue(steps(text, (*_FURTHER, *UNARY)), dtype)
        needy = [s for s in found.steps if s != "bias" and dtype not in FLOATS]
        require(not needy, f"{', '.join(needy)} after the sum needs a floating-point dtype, not {dtype}")
        return found

    @property
    def stage(self) -> str:
        """The name of the stage before it."""
        return "Y" if self._is_empty else "C"

    @property
    def _is_empty(self) -> bool:
        return not self.steps and self.dtype not in HALVES

    @property
    def weights(self) -> tuple[str, ...]:
        """The additional inputs that are constants of a model."""
        return tuple(name for step in self.steps if step != "add" for name in _FURTHER.get(step, ()))

    def apply(
        self, b: Builder, c: Tensor, names: Sequence[str], channel: int = 1, order: Reordered | None = None
    ) -> Tensor:
        """Stage Y: the epilogue applied to stage C, whose elements `order` rearranges; C itself if there is neither."""
        if self._is_empty and order is None:
            return c
        shape = c.shape if order is None else order.shape
        width = (shape[channel],)
        given: dict[str, Tensor] = {}
        for step in self.steps:
            for name in _FURTHER.get(step, ()):
                dtype = self.dtype if self.dtype in HALVES else c.dtype
                given[name] = b.input(name, shape if name == "R" else width, dtype)

        def body(*indices: Var) -> Expr:
            x, at = c[indices if order is None else order.source(*indices)], indices[channel]
            for step in self.steps:
                if step == "bn":
                    x = x * wide(given["scale"][at]) + wide(given["shift"][at])
                elif step == "bias":
                    x = x + wide(given["bias"][at])
                else:
                    x = x + wide(given["R"][indices]) if step == "add" else UNARY[step].expr(x)
            return fitted(x, self.dtype)

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


@dataclass(frozen=True)
class SlidingWindow:
    """The window of a convolution: numbers for each spatial axis, and how many places it has along each."""

    axes: tuple[str, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    places: tuple[Extent, ...]

    @staticmethod
    def over(space: Sequence[Extent], **given: int | tuple[int, ...]) -> SlidingWindow:
        """The window over axes of these extents; `given` are k, stride, padding and dilation, for all axes or each."""
        axes = SPACE[len(space)]
        k, stride, padding, dilation = (
            per_axis(name, given[name], len(space)) for name in ("k", "stride", "padding", "dilation")
        )
        every = zip(axes, space, k, stride, padding, dilation, strict=True)
        return SlidingWindow(axes, k, stride, padding, dilation, tuple(window_count(*a) for a in every))

    def padded(self, b: Builder, x: Tensor, names: Sequence[str], fill: float = 0) -> Tensor:
        """Stage P: images (n, c, ...) with room for the window at their ends."""
        return pad(b, x, names, [(0, 0), (0, 0), *((p, p) for p in self.padding)], fill)

    def taps(self, b: Builder) -> tuple[Var, ...]:
        """Axes to sum up the elements of the window along."""
        return tuple(b.axis(f"k{a}", e) for a, e in zip(self.axes, self.kernel, strict=True))

    def at(self, place: Sequence[Expr], taps: Sequence[Expr]) -> list[Expr]:
        """Where the padded image is read for a place and a tap."""
        return [o * s + r * g for o, s, r, g in zip(place, self.stride, taps, self.dilation, strict=True)]


def per_group(name: str, extent: Extent, groups: int) -> Extent:
    """Channels per group."""
    if groups == 1:
        return extent
    require(isinstance(extent, int), f"{name} must be a number if groups = {groups}")
    require(not isinstance(extent, int) or extent % groups == 0, f"groups = {groups} does not divide {name} = {extent}")
    return extent // groups
