"""Products whose innermost atom is a call of a tensor intrinsic, with the operands laid out for it.

    cores * tiles * [groups of the sum] * the sum * calls of a tile (unrolled) * the call

Rows and vectors of calls fill the registers; an intrinsic that has rows of its own fills them alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from searchlab.dtype import DTYPES
from searchlab.ir.algebra import ceildiv
from searchlab.ir.expr import ONE, Expr, Like, compare, knob
from searchlab.schedule import Schedule
from searchlab.search import Knob, Sketch, Task, menu
from searchlab.tactics import (
    IntrinsicView,
    LaidOperands,
    fits_registers,
    intermediate_results,
    join_epilogues,
    lay_for_calls,
    lay_in_panels,
    loops_inside,
    run_copies,
    space_axes,
)
from searchlab.targets import cpu_of
from spaces.task_mapping.anchor import extent_of
from spaces.task_mapping.finish import finish_rest
from spaces.task_mapping.mapping import TaskMapping, call, product, repeat, spatial
from spaces.task_mapping.place import extents, insert, place, shape, share

ROWS, VECTORS, PANELS, TILES = (knob(n) for n in ("rows", "vectors", "panels", "tiles"))
GROUPS, BAND = knob("groups"), knob("band")


@dataclass(frozen=True)
class MappedCalls:
    """One view of the anchor as calls of an intrinsic, from which sketches are made."""

    task: Task
    weights: Sequence[str]  # inputs that may be packed ahead of time
    start: Schedule
    view: IntrinsicView

    @property
    def is_tile(self) -> bool:
        """Whether one call fills the registers."""
        return self.view.shape.rows > 1

    @property
    def by_channels(self) -> bool:
        """Whether the columns of a call lie apart in the output, as the channels of a convolution do."""
        return self.view.column != len(space_axes(self.start.program.blocks[self.view.block])) - 1

    def laid(self) -> LaidProduct:
        """A schedule to make a sketch with, in which the operands are laid out."""
        s = Schedule(self.start.program)
        return LaidProduct(self, s, lay_for_calls(s, self.view, self.view.weight.buffer in self.weights))

    def sketch(self, name: str, knobs: Sequence[Knob], limits: Sequence[Expr], s: Schedule) -> Sketch:
        """A sketch with the knobs of the register tile: accumulators and operands fit, and fill a good part of it."""
        tile: list[Knob] = []
        fits: list[Expr] = []
        if not self.is_tile:
            registers = self.task.target.vector_registers
            tile = [menu("rows", [1, 2, 4, 6, 8, 10, 12, 14]), menu("vectors", [1, 2, 3, 4])]
            fits = [fits_registers(ROWS, VECTORS, registers), compare("le", registers // 8, ROWS * VECTORS)]
        return Sketch(f"{name}/{self.view.intrinsic.name}", (*tile, *knobs), (*fits, *limits), s.program)


@dataclass(frozen=True)
class LaidProduct:
    """A product whose operands are laid out for calls, with what its mappings are made of."""

    calls: MappedCalls
    s: Schedule
    operands: LaidOperands

    @property
    def whole(self) -> list[Expr]:
        """The extents of all dimensions; columns and depth are multiples of those of a call."""
        return shape(self.s, self.calls.view.block)

    @property
    def around(self) -> list[int]:
        """The dimensions of the output beside rows and columns."""
        view, count = self.calls.view, len(space_axes(self.s.program.blocks[self.calls.view.block]))
        return [d for d in range(count) if d not in (view.row, view.column)]

    @property
    def depth(self) -> int:
        """The dimension of the sum that calls run along."""
        return len(self.around) + 2 + self.calls.view.depth

    @property
    def sums(self) -> dict[int, Expr]:
        """The steps of the sum in each of its dimensions; along the depth, a step is a call."""
        found = {d: e for d, e in enumerate(self.whole) if d >= len(self.around) + 2}
        return {**found, self.depth: ceildiv(found[self.depth], self.calls.view.shape.depth)}

    @property
    def tile(self) -> tuple[Expr, Expr]:
        """Rows and vectors of calls in a register tile."""
        return (ONE, ONE) if self.calls.is_tile else (ROWS, VECTORS)

    @property
    def block(self) -> tuple[Expr, Expr]:
        """Rows and columns of the output that a register tile makes."""
        rows, vectors = self.tile
        return rows * self.calls.view.shape.rows, vectors * self.calls.view.shape.columns

    def core(self, sums: Mapping[int, Like]) -> TaskMapping:
        """The end of every mapping: the sum, the unrolled calls of a tile, and the call."""
        view, rank, (rows, vectors) = self.calls.view, len(self.whole), self.tile
        at = {"row": view.row, "column": view.column, "depth": self.depth}
        return (
            repeat(*extents(rank, sums))
            * repeat(*extents(rank, {view.row: rows, view.column: vectors}), kind="unrolled")
            * call(view.intrinsic.name, [at[part] for part, _ in view.shape.parts], rank)
        )

    def fits(self, panels: Expr) -> Expr:
        """That panels, but for the first, fit the second-level cache."""
        element = DTYPES[self.s.program.buffers[self.operands.weight].dtype].bytes
        long = product(e for d, e in enumerate(self.whole) if d >= len(self.around) + 2)
        cache = cpu_of(self.calls.task.target).l2
        return compare("le", (panels - 1) * self.block[1] * long * element, cache)

    def finish(self, mapping: TaskMapping, loops: list[list[str]]) -> None:
        """Shares the blocks among cores, makes the calls, and schedules the stages that lay out operands."""
        target = self.calls.task.target
        share(self.s, loops[0], target.threads)
        insert(self.s, mapping, loops)
        run_copies(self.s, self.operands, target)
        finish_rest(self.s, target)


def call_sketches(c: MappedCalls) -> Iterator[Sketch]:
    """The sketches of a view: blocks of rows and columns of a product, or of pixels and channels of a convolution."""
    if c.by_channels:
        yield _channels(c)
    else:
        yield _columns(c)
        yield _blocks(c)


def _columns(c: MappedCalls) -> Sketch:
    """Cores over blocks of columns, which meet all rows; each packs its panels, unless that is done ahead."""
    p = c.laid()
    s, whole, rank, (height, width) = p.s, p.whole, len(p.whole), p.block
    i, j = c.view.row, c.view.column
    outer = {**{d: whole[d] for d in p.around}, j: ceildiv(whole[j], PANELS * width)}
    mapping = spatial(*extents(rank, outer)) * repeat(*extents(rank, {i: ceildiv(whole[i], height)}))
    mapping = mapping * repeat(*extents(rank, {j: PANELS})) * p.core(p.sums)
    loops = place(s, c.view.block, mapping)
    home = loops[0][-1]
    if p.operands.weight in s.program.blocks:
        s.compute_at(p.operands.weight, home)
        s.vectorize(loops_inside(s, p.operands.weight, home)[-1])
    join_epilogues(s, c.view.block, loops[2][-1])
    p.finish(mapping, loops)
    return c.sketch("calls-columns", [menu("panels", [1, 2, 4, 8])], [p.fits(PANELS)], s)


def _blocks(c: MappedCalls) -> Sketch:
    """Cores over blocks of rows and columns; panels are packed ahead, or by a stage before."""
    p = c.laid()
    s, whole, rank, (height, width) = p.s, p.whole, len(p.whole), p.block
    i, j = c.view.row, c.view.column
    outer = {d: whole[d] for d in p.around}
    outer |= {i: ceildiv(whole[i], TILES * height), j: ceildiv(whole[j], PANELS * width)}
    mapping = spatial(*extents(rank, outer)) * repeat(*extents(rank, {j: PANELS})) * repeat(*extents(rank, {i: TILES}))
    mapping = mapping * p.core(p.sums)
    loops = place(s, c.view.block, mapping)
    join_epilogues(s, c.view.block, loops[2][-1])
    p.finish(mapping, loops)
    return c.sketch("calls-blocks", [menu("panels", [1, 4]), menu("tiles", [1, 4, 16])], [p.fits(PANELS)], s)


def _channels(c: MappedCalls) -> Sketch:
    """Cores over bands of output rows and channels; in each, groups of input channels meet all pixels of the band."""
    p = c.laid()
    s, whole, rank, (height, width) = p.s, p.whole, len(p.whole), p.block
    i, j = c.view.row, c.view.column
    band = [d for d in p.around[-1:] if extent_of(s.program.blocks[c.view.block], d) > 1]
    outer = {**{d: whole[d] for d in p.around}, j: ceildiv(whole[j], width)}
    outer |= {d: ceildiv(whole[d], BAND) for d in band}
    middle: dict[int, Like] = {i: ceildiv(whole[i], height), **{d: BAND for d in band}}
    mapping = spatial(*extents(rank, outer), ranks=_last(rank, [j]))
    mapping = mapping * repeat(*extents(rank, {p.depth: ceildiv(p.sums[p.depth], GROUPS)}))
    mapping = mapping * repeat(*extents(rank, middle), ranks=_last(rank, [*band, i]))
    mapping = mapping * p.core({**p.sums, p.depth: GROUPS})
    loops = place(s, c.view.block, mapping)
    results = intermediate_results(s, c.view.block)
    join_epilogues(s, c.view.block, loops[0][-1], unroll=False)
    lay_in_panels(s, results, j, c.view.shape.columns)
    p.finish(mapping, loops)
    knobs = [menu("groups", [4, 16, 64]), *(menu("band", [1, 2, 4, 7]) for _ in band)]
    return c.sketch("calls-channels", knobs, [], s)


def _last(rank: int, dims: Sequence[int]) -> list[int]:
    """Ranks that make some dimensions the fastest, in their order."""
    order = [*(n for n in range(rank) if n not in dims), *dims]
    return [order.index(n) for n in range(rank)]
