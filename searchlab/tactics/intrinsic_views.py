"""Products seen as calls of an intrinsic: which axes its loops run along, and which intrinsic a target has for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Literal

from searchlab.intrinsics import Intrinsic, intrinsics
from searchlab.ir.expr import ZERO, Load, Var, value_of
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block
from searchlab.ir.sums import as_sum
from searchlab.ir.walk import variables
from searchlab.tactics.axes import operands, reduce_axes, space_axes, stores_plainly
from searchlab.tactics.products import product_views
from searchlab.tactics.value_ranges import Span, values_of
from searchlab.targets import Target
from searchlab.tensorization.scalar_bodies import operand_ways

Part = Literal["row", "column", "depth"]
# Families of exact intrinsics, those that need the fewest instructions for a product first.
FAMILIES = (
    "vnniint8", "vnni", "sdot", "udot", "usdot", "avx512bw_u7s8", "avx512bw_u8s7", "avx512bw_s16s16", "avx512bw",
    "avx2_u7s8", "avx2_u8s7", "avx2_s16s16", "avx2", "mma",
)  # fmt: skip
# Families that round in an order of their own, those with the longest vectors first.
ROUNDED_FAMILIES = ("avx512bf16", "avx512", "avx2", "neon", "mma")
# The most that results may be off by, of the sum of absolute terms: others compute with shorter factors than are given.
_FAITHFUL = 2**-16
_NARROW = 4  # columns, the fewest of any intrinsic


@dataclass(frozen=True)
class CallShape:
    """The loops of an intrinsic that multiplies a matrix by another: what each runs along, and its iterations."""

    parts: tuple[tuple[Part, int], ...]
    data: str
    weight: str

    def along(self, part: Part) -> tuple[int, ...]:
        """The iterations of the loops along rows, columns or depth."""
        return tuple(n for p, n in self.parts if p == part)

    @cached_property
    def rows(self) -> int:
        """Rows of a call."""
        return prod(self.along("row"))

    @cached_property
    def columns(self) -> int:
        """Columns of a call."""
        return prod(self.along("column"))

    @cached_property
    def depth(self) -> int:
        """Terms of the sum that a call adds to each element."""
        return prod(self.along("depth"))


def call_shape(intrinsic: Intrinsic) -> CallShape | None:
    """The shape of an intrinsic that multiplies two matrices; None for any other."""
    accesses, output = intrinsic.accesses, intrinsic.output
    others = [n for n in accesses if n != output]
    moving = {n: {v for v, step in accesses[n].items() if step != ZERO} for n in accesses}
    if len(others) != 2:
        return None
    by_vectors = [n for n in others if any(value_of(accesses[output][v]) == 1 for v in moving[n] & moving[output])]
    if len(by_vectors) != 1:
        return None
    (weight,) = by_vectors
    (data,) = (n for n in others if n != weight)
    which: dict[frozenset[str], Part] = {
        frozenset((output, data)): "row", frozenset((output, weight)): "column", frozenset((data, weight)): "depth"
    }  # fmt: skip
    parts: list[tuple[Part, int]] = []
    for v, lp in zip(intrinsic.nest.variables, intrinsic.nest.loops, strict=True):
        part = which.get(frozenset(n for n in accesses if v in moving[n]))
        if part is None:
            return None
        parts.append((part, value_of(lp.extent) or 0))
    shape = CallShape(tuple(parts), data, weight)
    return shape if len(shape.along("row")) <= 1 and len(shape.along("column")) == 1 else None


@dataclass(frozen=True)
class IntrinsicView:
    """A stage as calls of an intrinsic: axes of its space for rows and columns, an axis of its sum for the depth.

    `data` is the operand that rows read, `weight` the one that columns read; both are indexed by the depth alone in one
    of their dimensions.  Where their types are narrower than the intrinsic's, they are widened as they are packed.
    """

    block: str
    intrinsic: Intrinsic
    shape: CallShape
    row: int
    column: int
    depth: int
    data: Load
    weight: Load
    ranges: Mapping[str, Span] = field(default_factory=dict, compare=False)  # declared for inputs of the program

    @property
    def types(self) -> tuple[str, str]:
        """The types in which the intrinsic reads data and weight."""
        buffers = self.intrinsic.description.buffers
        return buffers[self.shape.data].dtype, buffers[self.shape.weight].dtype

    def axes(self, program: Program) -> tuple[Var, Var, Var]:
        """The variables of rows, columns and depth."""
        b = program.blocks[self.block]
        space = space_axes(b)
        return space[self.row].var, space[self.column].var, reduce_axes(b)[self.depth].var


def intrinsic_view(program: Program, name: str, intrinsic: Intrinsic, widened: bool = True) -> IntrinsicView | None:
    """The best view of a stage as calls of an intrinsic: columns along the last axis, else the longest one.

    With `widened`, operands may be of narrower types than the intrinsic's, and are widened as they are packed.
    """
    block, shape = program.blocks[name], call_shape(intrinsic)
    found = as_sum(block.store)
    if shape is None or found is None or found.op != intrinsic.sum.op or not stores_plainly(block):
        return None
    out = intrinsic.description.buffers[intrinsic.output].dtype
    if program.buffers[block.store.buffer].dtype != out or len(operands(block)) != 2:
        return None
    views = []
    for way in operand_ways(intrinsic.sum.term, found.term, widened):
        if not any(operand.guarded for operand in way.values()):
            read = {described.buffer: operand.load for described, operand in way.items()}
            views += list(_views(block, intrinsic, shape, read[shape.data], read[shape.weight]))
    extents = [value_of(it.extent) or 0 for it in space_axes(block)]
    return max(views, key=lambda v: (v.column == len(extents) - 1, extents[v.column]), default=None)


def _views(block: Block, intrinsic: Intrinsic, shape: CallShape, data: Load, weight: Load) -> Iterator[IntrinsicView]:
    sums = reduce_axes(block)
    plain = [n for n, it in enumerate(sums) if _alone(it.var, data) and _alone(it.var, weight)]
    if not plain or data.buffer == weight.buffer:
        return
    depth = max(plain, key=lambda n: value_of(sums[n].extent) or 0)
    for v in product_views(block):
        if v.operand == weight and _alone(space_axes(block)[v.vector].var, weight):
            yield IntrinsicView(block.name, intrinsic, shape, v.row, v.vector, depth, data, weight)


def _alone(axis: Var, load: Load) -> bool:
    """Whether an axis is one index of a load by itself, and no part of any other."""
    return [i for i in load.indices if axis in variables(i)] == [axis]


# --- the choice -------------------------------------------------------------------------------------------------------


def exact_view(
    program: Program, name: str, target: Target, ranges: Mapping[str, Span] | None = None
) -> IntrinsicView | None:
    """A stage as calls of the best intrinsic of a target that gives the same bits; None if there is none for it.

    Among those of a family, the one with the largest calls that are not larger than the problem.  `ranges` are smallest
    and largest values of inputs, for intrinsics that are exact in a range only.
    """
    return next(_in_families(program, name, target, FAMILIES, ranges or {}, exact=True), None)


def call_views(
    program: Program, name: str, target: Target, ranges: Mapping[str, Span] | None = None
) -> tuple[IntrinsicView, ...]:
    """A stage as calls of those intrinsics that are worth searching on a target; none if it has none for the stage.

    That is the best exact one, else the micro-kernels of its best family that rounds: of float32 one for each shape of
    its tile, since no shape is the best for all sizes, of bfloat16 the one with the longest vectors, and of those that
    warps call the largest.
    """
    exact = exact_view(program, name, target, ranges)
    if exact is not None:
        return (exact,)
    found = list(_in_families(program, name, target, ROUNDED_FAMILIES, {}, exact=False))
    best = [v for v in found if _family(v.intrinsic) == _family(found[0].intrinsic)]
    several = best and best[0].shape.rows > 1 and best[0].intrinsic.fragments is None
    return tuple(best) if several else tuple(best[:1])


def _in_families(
    program: Program, name: str, target: Target, families: Sequence[str], ranges: Mapping[str, Span], exact: bool
) -> Iterator[IntrinsicView]:
    """The views of a stage whose calls are not larger than the problem, best first."""
    for intrinsic in _by_preference(target, families, exact):
        view = intrinsic_view(program, name, intrinsic, widened=exact)
        if view is not None and _fits(program, view) and _is_exact(program, view, ranges):
            yield replace(view, ranges=ranges)


def _is_exact(program: Program, view: IntrinsicView, ranges: Mapping[str, Span]) -> bool:
    """Whether the operands keep to the values for which an intrinsic is exact."""
    for operand, (low, high) in view.intrinsic.promise.ranges.items():
        load = view.data if operand == view.shape.data else view.weight
        found = values_of(program, load.buffer, ranges)
        if found is None or found[0] < low or high < found[1]:
            return False
    return True


def _family(intrinsic: Intrinsic) -> str:
    return intrinsic.name.partition("_")[0]


def _by_preference(target: Target, families: Sequence[str], exact: bool) -> list[Intrinsic]:
    found = []
    for x in intrinsics().values():
        family = next((n for n, f in enumerate(families) if x.name.startswith(f"{f}_")), None)
        off = x.promise.tolerance
        shape, promised = call_shape(x), off == 0.0 if exact else 0.0 < off <= _FAITHFUL
        if family is not None and promised and shape is not None and not x.needs.missing(target):
            found.append((family, -shape.columns * shape.depth, x))
    return [x for *_, x in sorted(found, key=lambda entry: entry[:2])]


def _fits(program: Program, view: IntrinsicView) -> bool:
    """Whether a call is not larger than the problem, the extents of which must be known; the smallest always fits."""
    b = program.blocks[view.block]
    space = space_axes(b)
    high, have, long = (value_of(it.extent) for it in (space[view.row], space[view.column], reduce_axes(b)[view.depth]))
    if high is None or have is None or long is None:
        return False
    fits = view.shape.rows <= high and view.shape.columns <= max(have, _NARROW)
    return fits and (view.shape.depth <= long or len(view.shape.along("depth")) == 1)
