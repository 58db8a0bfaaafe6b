"""Transposed convolution: outputs that are `stride` apart form a phase, and every phase is a dense convolution."""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.ir.compute import Builder, Reduction, total
from searchlab.ir.expr import ZERO, Expr, Var, all_of, index, select
from searchlab.workloads import references
from searchlab.workloads.building_blocks import Epilogue, Reordered, named, pad, per_axis, require, wide
from searchlab.workloads.catalogue import operator
from searchlab.workloads.definition import Array, Definition
from searchlab.workloads.parameters import Extent, Float, Padding, Window


@operator
def conv2d_transpose(
    n: Extent = 1,
    ci: Extent = 64,
    co: Extent = 32,
    h: Extent = 16,
    w: Extent = 16,
    k: Window = 4,
    stride: Window = 2,
    padding: Padding = 1,
    dtype: Float = "float32",
    then: str = "none",
) -> Definition:
    """Transposed 2D convolution (up-sampling) with weights IOHW.

    Stage C computes the phases of the output one beside the other, (n, c, ph, pw, h, w), and stage Y interleaves them:
    an input spread out with zeros would be stride x stride times the arithmetic.
    """
    kernel, step, around = per_axis("k", k, 2), per_axis("stride", stride, 2), per_axis("padding", padding, 2)
    axes = [_Axis(*a) for a in zip("hw", (h, w), kernel, step, around, strict=True)]
    phased = [a for a in axes if a.stride > 1]
    epilogue = Epilogue.of(then, dtype)
    b = Builder("conv2d_transpose")
    X, W = b.input("X", (n, ci, h, w), dtype), b.input("W", (ci, co, *kernel), dtype)
    P = pad(b, X, ("n", "c", "h", "w"), [(0, 0), (0, 0), *(a.room for a in axes)])
    rc, taps = b.axis("ci", ci), [b.axis(f"k{a.name}", a.taps) for a in axes]

    def body(n: Var, c: Var, *at: Var) -> Reduction:
        phase: dict[str, Expr] = {a.name: p for a, p in zip(phased, at, strict=False)}
        places = at[len(phased) :]
        data = [a.data(x, phase.get(a.name, ZERO), t) for a, x, t in zip(axes, places, taps, strict=True)]
        weight = [a.weight(phase.get(a.name, ZERO), t) for a, t in zip(axes, taps, strict=True)]
        product = wide(P[(n, rc, *data)]) * wide(W[(rc, c, *weight)])
        meets = [x < a.kernel for a, x in zip(axes, weight, strict=True) if a.kernel % a.stride]
        return total(select(all_of(meets), product, 0) if meets else product, rc, *taps)

    names = ("n", "c", *(f"p{a.name}" for a in phased), "h", "w")
    shape = (n, co, *(a.stride for a in phased), *(a.places for a in axes))
    C = b.compute("C" if phased else epilogue.stage, shape, named(names, body))

    def source(n: Var, c: Var, *at: Var) -> tuple[Expr, ...]:
        digits = list(zip(axes, at, strict=True))
        return n, c, *(x % a.stride for a, x in digits if a.stride > 1), *(x // a.stride for a, x in digits)

    whole = (index(n), index(co), *(index(a.out) for a in axes))
    Y = epilogue.apply(b, C, ("n", "c", "h", "w"), order=Reordered(whole, source) if phased else None)

    def reference(X: Array, W: Array, *rest: Array) -> Array:
        return epilogue.array(references.transposed_convolution(X, W, step, around), *rest)

    return Definition(b.program(Y), reference, ("W", *epilogue.weights))


@dataclass(frozen=True)
class _Axis:
    """One spatial axis: output `stride * place + phase` sums up taps, which are `stride` apart in the kernel."""

    name: str
    extent: Extent
    kernel: int
    stride: int
    padding: int

    def __post_init__(self) -> None:
        require(
            self.padding < self.kernel,
            f"padding = {self.padding} is not below the kernel's {self.kernel} along {self.name}",
        )
        empty = isinstance(self.out, int) and self.out < 1
        require(not empty, f"padding = {self.padding} leaves nothing of the output along {self.name}")

    @property
    def out(self) -> Extent:
        """The output's extent."""
        return (self.extent - 1) * self.stride - 2 * self.padding + self.kernel

    @property
    def places(self) -> Extent:
        """The extent of a phase, the same for all; the last place of some is beyond the output."""
        return self.extent + self._more

    @property
    def taps(self) -> int:
        """The most elements of the kernel that one output meets."""
        return -(-self.kernel // self.stride)

    @property
    def room(self) -> tuple[int, int]:
        """The zeros before and after the input that taps meet at its ends."""
        last = (self.padding + self.stride - 1) // self.stride
        return max(0, self.taps - 1 - self.padding // self.stride), max(0, self._more + last)

    @property
    def _more(self) -> int:
        return -(-(self.kernel - 2 * self.padding) // self.stride) - 1

    def data(self, place: Expr, phase: Expr, tap: Expr) -> Expr:
        """The element of the padded input that a tap meets."""
        return place + self._turn(phase)[0] - tap + (self.padding // self.stride + self.room[0])

    def weight(self, phase: Expr, tap: Expr) -> Expr:
        """The element of the kernel that a tap is; beyond its end for the last tap of some phases."""
        return tap * self.stride + self._turn(phase)[1]

    def _turn(self, phase: Expr) -> tuple[Expr, Expr]:
        """Quotient and remainder of `phase + padding % stride` by the stride, without a division where possible."""
        shift = self.padding % self.stride
        if shift == 0:
            return ZERO, phase
        if self.stride == 2:
            return phase, 1 - phase
        return (phase + shift) // self.stride, (phase + shift) % self.stride
