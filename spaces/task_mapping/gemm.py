"""Sums of products by hardware shapes: register tiles of rows x vectors, blocks by cache sizes, panels of one operand.

    cores * blocks of columns * [blocks of the sum] * tiles * the sum * rows (unrolled) * lanes

Nothing here depends on divisors of the input: what a tile has too much is cut off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from searchlab.dtype import DTYPES
from searchlab.ir.algebra import ceildiv
from searchlab.ir.expr import Expr, Like, compare, knob
from searchlab.schedule import Schedule
from searchlab.search import Knob, Sketch, Task, menu
from searchlab.tactics import (
    ProductView,
    fits_registers,
    join_epilogues,
    lay_in_panels,
    loops_inside,
    space_axes,
    spread_rows,
)
from searchlab.targets import Target, cpu_of
from spaces.task_mapping.finish import finish_rest
from spaces.task_mapping.mapping import TaskMapping, product, repeat, spatial
from spaces.task_mapping.place import extents, place, shape, share

ROWS, VECTORS, PANELS, DEPTH = (knob(n) for n in ("rows", "vectors", "panels", "depth"))
TILES, PREFETCH = knob("tiles"), knob("prefetch")


@dataclass(frozen=True)
class Machine:
    """The limits that menus and validity follow from, for values of one dtype."""

    registers: int
    lanes: int
    bytes: int
    l1: int
    l2: int

    @staticmethod
    def of(target: Target, dtype: str) -> Machine:
        """The limits of a CPU."""
        cpu = cpu_of(target)
        return Machine(cpu.vector_registers, cpu.lanes(dtype), DTYPES[dtype].bytes, cpu.l1, cpu.l2)

    def tile(self) -> tuple[list[Knob], list[Expr]]:
        """The register tile: accumulators, one row of operands and one broadcast fit, and fill a good part."""
        rows = [r for r in (1, 2, 4, 6, 8, 12, 14) if r < self.registers]
        fits = [fits_registers(ROWS, VECTORS, self.registers)]
        fits.append(compare("le", self.registers // 4, ROWS * VECTORS))
        return [menu("rows", rows), menu("vectors", [v for v in (1, 2, 3, 4) if v < self.registers])], fits

    def depths(self) -> list[int]:
        """Steps of the sum whose panel of the widest tile takes half, all, twice of the first-level cache."""
        half = max(1, self.l1 // (2 * 4 * self.lanes * self.bytes))
        return [half, 2 * half, 4 * half]


@dataclass(frozen=True)
class MappedProduct:
    """One view of the anchor of a (partly scheduled) program, from which sketches are made."""

    task: Task
    weights: Sequence[str]  # inputs that may be packed ahead of time
    start: Schedule
    view: ProductView
    machine: Machine
    own_stage: bool = False  # the operand is a stage that was made to be packed

    @property
    def width(self) -> Expr:
        """The columns of the register tile, which are those of a panel."""
        return VECTORS * self.machine.lanes

    def axes(self) -> tuple[list[int], list[int]]:
        """The space dimensions beside row and lanes, and the reduced ones."""
        b = self.start.program.blocks[self.view.block]
        count = len(space_axes(b))
        around = [d for d in range(count) if d not in (self.view.row, self.view.vector)]
        return around, list(range(count, len(b.iters)))

    def copy(self) -> Schedule:
        """A schedule to make a sketch with."""
        return Schedule(self.start.program)

    def pack(self, s: Schedule, ahead: bool) -> str:
        """The operand in panels as wide as the tile; ahead of time, or as a stage of the program."""
        buffer = self.view.operand.buffer
        name = buffer if ahead or self.own_stage else s.cache_read(self.view.block, buffer)
        self._in_panels(s, name)
        return name

    def _in_panels(self, s: Schedule, name: str) -> None:
        assert self.view.dimension is not None
        lay_in_panels(s, name, self.view.dimension, self.width)

    def pack_padded(self, s: Schedule) -> str:
        """The operand in panels filled up with zeros; what is computed too much is cut off in a stage after."""
        v = space_axes(s.program.blocks[self.view.block])[self.view.vector].var
        before = set(s.program.blocks)
        s.pad(self.view.block, {v.name: self.width})
        (name,) = (x for x in s.program.blocks if x not in before and s.program.blocks[x].store.buffer == x)
        self._in_panels(s, name)
        return name

    def pack_before(self, s: Schedule, name: str) -> None:
        """Runs a packing stage, if there is one of that name, before the product: lanes in vectors, panels shared."""
        if name in s.program.blocks:
            *first, lanes = s.loops(name)
            s.vectorize(lanes)
            share(s, first[:2], self.task.target.threads)

    def core(self, s: Schedule, inner: Mapping[int, Like]) -> TaskMapping:
        """The end of every mapping: the sum, then unrolled rows, then lanes."""
        rank = len(s.program.blocks[self.view.block].iters)
        return (
            repeat(*extents(rank, inner))
            * repeat(*extents(rank, {self.view.row: ROWS}), kind="unrolled")
            * repeat(*extents(rank, {self.view.vector: self.width}), kind="vectorized")
        )


def panels_here(
    p: MappedProduct, blocked: bool, name: str = "panels", more: Sequence[Knob] = (), padded: bool = False
) -> Sketch:
    """Every core packs the panels of its columns, then meets them with all rows; with `blocked`, part by part of k.

    With `padded`, tiles that stick out are computed whole, on panels filled up with zeros, and cut when stored.
    """
    s = p.copy()
    packed = p.pack_padded(s) if padded else p.pack(s, ahead=False)
    loops = place(s, p.view.block, _column_blocks(p, s, blocked))
    home, tile, sums = loops[1 if blocked else 0][-1], loops[-4][-1], loops[-3]
    s.compute_at(packed, home)
    _spread(s, packed, home)
    if not blocked:
        join_epilogues(s, p.view.block, tile)
    if not blocked and not padded:
        s.prefetch(p.view.block, packed, sums[0], PREFETCH)
    share(s, loops[0], p.task.target.threads)
    finish_rest(s, p.task.target)
    knobs, limits = p.machine.tile()
    knobs.append(menu("panels", [1, 2, 4, 8]))
    if not padded:
        knobs.append(menu("depth", p.machine.depths()) if blocked else _prefetch())
    depth = DEPTH if blocked else _sum_length(p)
    limits.append((PANELS - 1) * p.width * depth * p.machine.bytes <= p.machine.l2)
    if blocked:
        limits.append(DEPTH * p.width * p.machine.bytes <= p.machine.l1)
    return Sketch(name, (*knobs, *more), tuple(limits), s.program)


def _column_blocks(p: MappedProduct, s: Schedule, blocked: bool) -> TaskMapping:
    """Cores over blocks of columns; in each, tiles of rows against its panels."""
    i, j = p.view.row, p.view.vector
    around, sums = p.axes()
    whole, rank = shape(s, p.view.block), len(shape(s, p.view.block))
    mapping = spatial(*extents(rank, {**{d: whole[d] for d in around}, j: ceildiv(whole[j], PANELS * p.width)}))
    inner: dict[int, Like] = {d: whole[d] for d in sums}
    if blocked:
        mapping = mapping * repeat(*extents(rank, {sums[0]: ceildiv(whole[sums[0]], DEPTH)}))
        inner[sums[0]] = DEPTH
    mapping = mapping * repeat(*extents(rank, {i: ceildiv(whole[i], ROWS)})) * repeat(*extents(rank, {j: PANELS}))
    return mapping * p.core(s, inner)


def _prefetch() -> Knob:
    """How many steps of the sum ahead the operand in lanes is asked for; 0 leaves that to the hardware."""
    return menu("prefetch", [0, 8])


def _sum_length(p: MappedProduct) -> Expr:
    whole = shape(p.start, p.view.block)
    return product(whole[d] for d in p.axes()[1])


def _spread(s: Schedule, packed: str, home: str) -> None:
    """Packing reads the operand as it lies, and spreads it over the panels; lanes in vectors."""
    *around, lanes = loops_inside(s, packed, home)
    spread_rows(s, around)
    s.vectorize(lanes)


def panels_before(p: MappedProduct, ahead: bool, packed: bool) -> Sketch:
    """Cores share blocks of rows and columns; panels are packed ahead of time, by a stage before, or not at all."""
    s = p.copy()
    i, j = p.view.row, p.view.vector
    around, sums = p.axes()
    whole, rank = shape(s, p.view.block), len(shape(s, p.view.block))
    name = p.pack(s, ahead) if packed else ""
    outer = {d: whole[d] for d in around}
    outer |= {i: ceildiv(whole[i], TILES * ROWS), j: ceildiv(whole[j], PANELS * p.width)}
    mapping = spatial(*extents(rank, outer)) * repeat(*extents(rank, {j: PANELS})) * repeat(*extents(rank, {i: TILES}))
    loops = place(s, p.view.block, mapping * p.core(s, {d: whole[d] for d in sums}))
    join_epilogues(s, p.view.block, loops[2][-1])
    if not packed:
        s.prefetch(p.view.block, p.view.operand.buffer, loops[-3][0], PREFETCH)
    share(s, loops[0], p.task.target.threads)
    p.pack_before(s, name)
    finish_rest(s, p.task.target)
    knobs, limits = p.machine.tile()
    knobs += [menu("panels", [1, 4]), menu("tiles", [1, 4, 16])] + ([] if packed else [_prefetch()])
    limits.append((PANELS - 1) * p.width * _sum_length(p) * p.machine.bytes <= p.machine.l2)
    return Sketch("ahead" if ahead else "before" if packed else "direct", tuple(knobs), tuple(limits), s.program)


def products(p: MappedProduct) -> Iterator[Sketch]:
    """The sketches of a view whose lanes lie side by side in the output."""
    weight = p.view.operand.buffer in p.weights
    if p.view.plain:
        yield panels_here(p, blocked=False)
        yield panels_here(p, blocked=False, name="panels-padded", padded=True)
        if len(p.axes()[1]) == 1:
            yield panels_here(p, blocked=True, name="panels-by-depth")
        yield panels_before(p, ahead=weight, packed=True)
    yield panels_before(p, ahead=False, packed=False)
