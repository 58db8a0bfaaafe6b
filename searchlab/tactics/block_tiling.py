"""Stages cut into blocks, threads and what each thread computes by itself, with tiles of operands in shared memory.

Every axis is split into digits, and a digit says who runs it: `i = ((block * 2 + own) * 16 + thread) * 4 + own`.
Threads keep results in registers while the block steps along the sums; in every step all threads copy the operands'
tiles together.  Sizes may be symbols, so one schedule stands for all tiles.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from searchlab.dtype import DTYPES
from searchlab.intrinsics.warp_products import room_between_rows
from searchlab.ir.algebra import ceildiv
from searchlab.ir.expr import ONE, Expr, Like, Var, compare, index, maximum, minimum
from searchlab.ir.walk import loads, variables
from searchlab.schedule import Schedule
from searchlab.schedule.primitive import consumers
from searchlab.tactics.axes import axis_loops, constant, loops_inside, operands, space_axes
from searchlab.tactics.tiling import Factors, split_by
from searchlab.targets import CudaTarget
from searchlab.targets.cuda import STATIC_SHARED, WARP

Role = Literal["block", "step", "thread", "own", "call"]
AXES = ("z", "y", "x")
MOST_ALONG_Z = 64  # threads
MOST_BLOCKS = 65535  # along y and z
SPARE_REGISTERS = 40  # of a thread, for addresses, counters and operands of the next products
_LEAST_SPARE, _MANY_RESULTS = 32, 64  # the same, of a thread with few, and results that are many
_CALL = 8  # products that are about as much code as a call
_LAST = 1000  # the place of digits inside all others
MOST_OWN = 1024  # products that a thread has in a row, which is what code generation unrolls


@dataclass(frozen=True)
class Digit:
    """One digit of an axis: who runs it, along which axis of the grid, and its place among digits of that kind.

    Digits of calls are the last of their axes; in order of their places, they are the loops of an intrinsic of warps.
    """

    role: Role
    axis: str = ""
    rank: int = 0


@dataclass(frozen=True)
class AxisSplit:
    """A loop, what it is split by (outermost first, None is worked out), and the digits that this gives.

    With a `call`, a last digit of so many iterations is split off before.
    """

    loop: str
    factors: Sequence[Like | None]
    digits: tuple[Digit, ...]
    call: int = 0

    def apply(self, s: Schedule) -> list[str]:
        """Splits the loop; the loops of its digits."""
        if not self.call:
            return split_by(s, self.loop, self.factors)
        outer, inner = s.split(self.loop, [None, self.call])
        return [*split_by(s, outer, self.factors), inner]


@dataclass(frozen=True)
class ThreadBlockTile:
    """What a block of the tiled stage uses, as expressions of the symbols."""

    along: tuple[Expr, ...]  # threads along z, y and x
    shared: Expr  # bytes
    results: Expr  # of a thread
    steps: Expr  # products of a thread between two copies
    grid: tuple[Expr, ...]  # blocks along z, y and x
    terms: tuple[Expr, ...]  # elements of each operand that a thread needs for one term of all its results
    loop: str  # one of the loops of blocks

    @property
    def threads(self) -> Expr:
        """The threads of a block."""
        return _product(self.along)

    def limits(self, target: CudaTarget) -> list[Expr]:
        """What the target demands of a block: threads, shared memory, an estimate of registers, blocks of a launch."""
        registers = self.results + SPARE_REGISTERS
        pieces = -(-registers // 8) * 8 * self.threads
        return [
            compare("le", self.threads, target.threads_per_block),
            compare("le", self.along[0], MOST_ALONG_Z),
            compare("le", self.shared, min(STATIC_SHARED, target.shared_per_block)),
            compare("le", registers, target.registers_per_thread),
            compare("le", pieces, target.registers_per_sm),
            compare("le", self.results, MOST_OWN),
            *(compare("le", n, MOST_BLOCKS) for n in self.grid[:2]),
        ]

    def get_along(self, s: Schedule, target: CudaTarget) -> None:
        """Says how many registers a thread gets along with, for the assembler and for features.

        Those are for its results, for a term of each operand, for the next one of the first, whose elements lie apart
        and are loaded one by one, and some others; more of these for many results, which take longer to add to.
        """
        many = maximum(self.results - _MANY_RESULTS, 0) // 2
        wanted = self.results + self.terms[0] + _sum(self.terms) + _LEAST_SPARE + many
        s.annotate(self.loop, "thread_registers", minimum(-(-wanted // 8) * 8, target.registers_per_thread))


def _sum(sizes: Iterable[Expr]) -> Expr:
    total = index(0)
    for size in sizes:
        total = total + size
    return total


# --- the stages around a product --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Staged:
    """A stage with copies of its operands in shared memory, its sum in registers, and the stage that stores results.

    Copies that are `turned` have another order of elements than what they are copied from.
    """

    block: str
    copies: tuple[str, ...]
    reader: str
    turned: tuple[str, ...] = ()


def stage_for_block(
    s: Schedule, block: str, multiples: Mapping[str, Like] | None = None, shared: bool | Collection[str] = True
) -> Staged:
    """Gives a stage its copies; with `multiples`, its axes are rounded up to these, and operands filled with zeros.

    Operands that are not `shared` are read where they are.  What moves or pads an operand becomes part of the copy, and
    what follows element by element part of the store.
    """
    if multiples:
        s.pad(block, multiples)
    moved = {ld.buffer for ld in operands(s.program.blocks[block])}
    output = s.program.blocks[block].store.buffer
    names = dict.fromkeys(ld.buffer for ld in operands(s.program.blocks[block]))
    copied = [n for n in names if (shared if isinstance(shared, bool) else n in shared)]
    copies = [s.cache_read(block, n, "shared") for n in copied]
    reader = s.cache_write(block, output, "local")
    for name in _movers(s, moved):
        s.compute_inline(name)
    summed = s.program.blocks[reader].store.value
    (local,) = {ld.buffer for ld in loads(summed)}
    while (after := _follower(s, reader)) is not None:
        s.compute_inline(reader)
        reader = after
    block = next(n for n, b in s.program.blocks.items() if b.store.buffer == local)
    return Staged(block, tuple(copies), reader)


def _movers(s: Schedule, buffers: set[str]) -> list[str]:
    """The stages that make these buffers, each for one reader and without a sum, after those that they read."""
    found: list[str] = []
    for name, b in s.program.blocks.items():
        if b.store.buffer in buffers and not b.reduces and len(consumers(s.program, b.store.buffer)) == 1:
            found += [*_movers(s, {ld.buffer for ld in operands(b)}), name]
    return found


def _follower(s: Schedule, name: str) -> str | None:
    """The only reader of a stage, if it reads element by element and nothing else is in between."""
    buffer = s.program.blocks[name].store.buffer
    readers = consumers(s.program, buffer)
    if buffer in s.program.outputs or len(readers) != 1 or readers[0].reduces:
        return None
    (reader,) = readers
    places = {ld.indices for ld in operands(reader) if ld.buffer == buffer}
    return reader.name if places == {tuple(it.var for it in space_axes(reader))} else None


# --- tiles ------------------------------------------------------------------------------------------------------------


def tile_for_blocks(
    s: Schedule,
    staged: Staged,
    splits: Sequence[AxisSplit],
    lanes: Like = 1,
    double_buffer: bool = False,
    intrinsic: str | None = None,
) -> ThreadBlockTile:
    """Tiles a stage by the digits of its axes: loops of blocks, steps of the sum, threads, and own loops, unrolled.

    Copies and results are dealt out to the same threads; `lanes` neighbouring elements are copied by one access.
    With `double_buffer` a step copies what the next one needs, to twice the memory.  The digits of calls become calls
    of the `intrinsic`, each by a warp along x; all other threads are along y and z.
    """
    order, met = _stored_order(s, staged.block), _loops_of_operands(s, staged.block)
    made = [(d, name) for x in splits for d, name in zip(x.digits, x.apply(s), strict=True)]
    loops = {role: _ordered(made, role) for role in get_args(Role)}
    s.reorder(*(name for role in loops.values() for _, name in role))
    extents = {name: s.program.loops[name].extent for _, name in made}
    threads = {axis: _product(extents[n] for d, n in loops["thread"] if d.axis == axis) for axis in AXES}
    if intrinsic is not None:
        threads["x"] = index(WARP)
    sizes = {x.loop: [extents[n] for _, n in made[at : at + len(x.digits)]] for at, x in _positions(splits)}
    own = [name for _, name in loops["own"]]
    if own:
        s.unroll(*own)
    last = loops["block"][-1][1]
    home = loops["step"][-1][1] if loops["step"] else last
    shared = index(0)
    for copy in staged.copies:
        s.compute_at(copy, home)
        shared = shared + _tile_bytes(s, copy, home, rows=intrinsic is not None)
        if copy in staged.turned:
            _along_source(s, copy, home)
        _copy_together(s, copy, home, threads, lanes, few=intrinsic is not None)
    if double_buffer and staged.copies and loops["step"]:
        s.annotate(home, "double_buffer", True)
        shared = shared * 2
    s.reverse_compute_at(staged.reader, last, rounded=True)
    by_loop = {x.loop: x for x in splits}
    _store_together(s, staged.reader, last, [by_loop[loop] for loop in order], sizes)
    _bind(s, loops["thread"], "threadIdx")  # after stages are placed: regions are plainer in the digits themselves
    outermost = _bind(s, loops["block"], "blockIdx")
    results = _product(extents[n] for d, n in (*loops["own"], *loops["call"]) if n in _spatial(splits, made))
    if intrinsic is not None:
        s.tensorize(loops["call"][0][1], intrinsic)
        results = results // WARP
    grid = tuple(_product(extents[n] for d, n in loops["block"] if d.axis == axis) for axis in AXES)
    steps = _product(extents[n] for n in own) * (1 if intrinsic is None else _CALL)
    own_sizes = {x.loop: [e for d, e in zip(x.digits, sizes[x.loop], strict=True) if d.role == "own"] for x in splits}
    terms = tuple(_product(e for lp in order if lp in moving for e in own_sizes[lp]) for moving in met)
    return ThreadBlockTile(tuple(threads.values()), shared, results, steps, grid, terms, outermost)


def _stored_order(s: Schedule, block: str) -> list[str]:
    """The loops of a stage's space in the order of the dimensions that it stores to, which its reader goes through."""
    b = s.program.blocks[block]
    loops = dict(zip((it.var for it in space_axes(b)), axis_loops(s, block)[0], strict=True))
    return [loops[i] for i in b.store.indices if isinstance(i, Var)]


def _loops_of_operands(s: Schedule, block: str) -> list[set[str]]:
    """The loops that move each operand of a stage."""
    b = s.program.blocks[block]
    loops = dict(zip((it.var for it in b.iters), (lp for part in axis_loops(s, block) for lp in part), strict=True))
    return [{loops[v] for i in ld.indices for v in variables(i) if v in loops} for ld in operands(b)]


def _positions(splits: Sequence[AxisSplit]) -> Iterable[tuple[int, AxisSplit]]:
    at = 0
    for x in splits:
        yield at, x
        at += len(x.digits)


def _spatial(splits: Sequence[AxisSplit], made: Sequence[tuple[Digit, str]]) -> set[str]:
    """The loops of axes that blocks share, as opposed to those of sums."""
    return {
        name for at, x in _positions(splits) if x.digits[0].role == "block" for _, name in made[at : at + len(x.digits)]
    }


def _ordered(made: Sequence[tuple[Digit, str]], role: str) -> list[tuple[Digit, str]]:
    mine = [(d, name) for d, name in made if d.role == role]
    return sorted(mine, key=lambda x: (AXES.index(x[0].axis) if x[0].axis else 0, x[0].rank))


def _bind(s: Schedule, loops: Sequence[tuple[Digit, str]], grid: str) -> str:
    """Binds loops to the axes of a grid, those of one axis as one loop; returns the last one."""
    bound = ""
    for axis in AXES:
        mine = [name for d, name in loops if d.axis == axis]
        if mine:
            bound = s.fuse(*mine) if len(mine) > 1 else mine[0]
            s.bind(bound, f"{grid}.{axis}")
    return bound


def _product(sizes: Iterable[Expr]) -> Expr:
    total: Expr = ONE
    for size in sizes:
        total = total * size
    return total


def _tile_bytes(s: Schedule, copy: str, home: str, *, rows: bool) -> Expr:
    """The bytes of a copy; `rows` of operands of calls have room between them."""
    *outer, row = (s.program.loops[lp].extent for lp in loops_inside(s, copy, home))
    row = row * DTYPES[s.program.buffers[s.program.blocks[copy].store.buffer].dtype].bytes
    return _product(outer) * (row + room_between_rows(row) if rows else row)


def _along_source(s: Schedule, copy: str, home: str) -> None:
    """Lets a copy run along its source: neighbouring threads read neighbours, and store them apart."""
    b = s.program.blocks[copy]
    (source,) = operands(b)
    along = [e for it, e in zip(b.iters, b.bindings, strict=True) if it.var in variables(source.indices[-1])]
    names = [v.name for e in along for v in variables(e)]
    loops = loops_inside(s, copy, home)
    last = [lp for lp in loops if lp in names][:1]
    if len(loops) > 1:
        s.reorder(*(lp for lp in loops if lp not in last), *last)


def _copy_together(s: Schedule, copy: str, home: str, threads: Mapping[str, Expr], lanes: Like, *, few: bool) -> None:
    """Neighbouring threads copy neighbouring elements; where these are no multiple of the threads, some have less.

    With `few`, warps that would have none take no part: memory is reserved for all that take part.
    """
    loops = loops_inside(s, copy, home)
    fused = s.fuse(*loops) if len(loops) > 1 else loops[0]
    if lanes != 1:
        fused, lane = s.split(fused, [None, lanes])
        s.vectorize(lane)
    used = [axis for axis in AXES if threads[axis] != ONE]
    dealt_to = dict(threads)
    if few:
        dealt_to["y"] = minimum(threads["y"], ceildiv(s.program.loops[fused].extent, threads["x"]))
    _, *dealt = s.split(fused, [None, *(dealt_to[axis] for axis in used)], tail=True) if used else [fused]
    for axis, loop in zip(used, dealt, strict=True):
        s.bind(loop, f"threadIdx.{axis}")


def _store_together(
    s: Schedule, reader: str, last: str, splits: Sequence[AxisSplit], sizes: Mapping[str, Sequence[Expr]]
) -> None:
    """Every thread stores the results that it has computed."""
    loops = loops_inside(s, reader, last)
    made: list[tuple[Digit, str]] = []
    for x, loop in zip(splits, loops, strict=True):
        digits, inner = _held(x.digits[1:], sizes[x.loop][1:])
        if digits:
            parts = s.split(loop, [None, *inner[1:]], tail=True) if len(digits) > 1 else [loop]
            made += zip(digits, parts, strict=True)
    ordered = {role: _ordered(made, role) for role in ("thread", "own")}
    dealt = {name for _, name in made}
    s.reorder(
        *(lp for lp in loops if lp in s.loops(reader) and lp not in dealt), *(n for r in ordered.values() for _, n in r)
    )
    _bind(s, ordered["thread"], "threadIdx")
    if ordered["own"]:
        s.unroll(*(name for _, name in ordered["own"]))


def _held(digits: Sequence[Digit], sizes: Sequence[Expr]) -> tuple[Sequence[Digit], Sequence[Expr]]:
    """The digits of an axis as threads hold its elements: lane 4*g + q has rows g, g + 8 and columns 2*q, 2*q + 1."""
    if not digits or digits[-1].role != "call":
        return digits, sizes
    rank = digits[-1].rank
    if rank == 0:
        return (*digits[:-1], Digit("own", rank=_LAST), Digit("thread", "x")), (*sizes[:-1], index(2), index(8))
    return (*digits[:-1], Digit("thread", "x", 1), Digit("own", rank=_LAST + 1)), (*sizes[:-1], index(4), index(2))


# --- structures -------------------------------------------------------------------------------------------------------


def levels(s: Schedule, block: str, structure: str, factors: Factors) -> list[AxisSplit]:
    """Multi-level tiles by a structure such as SSSRRSRS: blocks, virtual threads, threads, steps of the sum, the rest.

    A virtual thread is a digit outside of that of threads which every thread runs by itself: neighbouring threads have
    neighbouring results, whatever each computes.  The last three axes have threads, others are shared by blocks.
    """
    space, sums = axis_loops(s, block)
    own_ranks = _own_ranks(structure)
    splits = []
    wide = [lp for lp in space if constant(s.program.loops[lp].extent, f"loop '{lp}'") > 1][-len(AXES) :]
    for at, loop in enumerate(space):
        axis = (
            AXES[len(AXES) - len(wide) + wide.index(loop)] if loop in wide else AXES[max(0, len(AXES) - len(wide) - 1)]
        )
        if loop not in wide:
            splits.append(AxisSplit(loop, [None], (Digit("block", axis, at),)))
            continue
        spatial = [n for n, kind in enumerate(structure) if kind == "S"]
        digits = [Digit("block", axis, at), Digit("own", "", own_ranks[spatial[1]] + at), Digit("thread", axis, at)]
        digits += [Digit("own", "", own_ranks[n] + at) for n in spatial[3:]]
        splits.append(AxisSplit(loop, _factors(s, loop, factors, len(digits)), tuple(digits)))
    summed = [n for n, kind in enumerate(structure) if kind == "R"]
    for at, loop in enumerate(sums):
        digits = [Digit("step", "", at), *(Digit("own", "", own_ranks[n] + at) for n in summed[1:])]
        splits.append(AxisSplit(loop, _factors(s, loop, factors, len(digits)), tuple(digits)))
    return splits


def _own_ranks(structure: str) -> dict[int, int]:
    """Where the loops of a level are among those of a thread: in order, but virtual threads just outside the last."""
    order = [n for n in range(len(structure)) if n != 1]
    order.insert(len(order) - 1, 1)
    return {level: 16 * place for place, level in enumerate(order)}


def _factors(s: Schedule, loop: str, factors: Factors, parts: int) -> Sequence[Like | None]:
    return factors(loop, constant(s.program.loops[loop].extent, f"loop '{loop}'"), parts) if parts > 1 else [None]
