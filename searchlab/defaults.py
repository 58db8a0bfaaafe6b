"""A reasonable schedule for any program, without search: what `searchlab bench` runs and what searches must beat.

Contractions (matmul, convolutions) get a register tile, packed operands and a parallel outer loop; everything else is
computed row by row, so that what one stage writes is in cache when the next one reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from searchlab.errors import ScheduleError
from searchlab.ir.expr import Call, Load, Select, Var, loads, value_of, variables, walk
from searchlab.ir.program import Block, Program
from searchlab.schedule import Schedule
from searchlab.schedule.core import consumers
from searchlab.targets import Target

_LARGE = 1 << 30


def default_schedule(program: Program, target: Target, weights: Sequence[str] = ()) -> Program:
    """The program scheduled by rules; inputs named in `weights` are constant and may be packed ahead of time."""
    s = Schedule(program)
    _inline_cheap_stages(s)
    main = _contraction(s.program)
    if main is not None:
        _tile(s, main, target, weights)
    else:
        _row_by_row(s, target)
    return s.program


def _attempt(step: Callable[[], object]) -> bool:
    """Whether a step was legal; primitives are pure, so a refused one leaves nothing behind."""
    try:
        step()
    except ScheduleError:
        return False
    return True


def _extent(s: Schedule, loop: str) -> int:
    known = value_of(s.program.loops[loop].extent)
    return _LARGE if known is None else known


def _inline_cheap_stages(s: Schedule) -> None:
    for name, b in s.program.blocks.items():
        buffer = b.store.buffer
        if b.reduces or buffer in s.program.outputs:
            continue
        readers = consumers(s.program, buffer)
        expensive = any(isinstance(e, (Call, Select)) for e in walk(b.store.value))
        same_rank = all(len([i for i in r.iters if i.kind == "space"]) == len(b.iters) for r in readers)
        if len(readers) == 1 and not readers[0].reduces and not expensive and same_rank:
            _attempt(lambda name=name: s.compute_inline(name))  # type: ignore[misc]


# --- contractions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Contraction:
    """A reduction with reuse: the block, its vector axis, the axis of register rows, and the operand read in vectors."""

    block: str
    vector: int
    row: int
    operand: str | None


def _contraction(program: Program) -> _Contraction | None:
    """The largest block that reads several buffers, each at fewer elements than it has iterations."""
    found = [b for b in program.blocks.values() if b.reduces and len(_operands(b)) >= 2 and len(_space(b)) >= 2]
    if not found:
        return None
    b = max(found, key=_work)
    space = _space(b)
    vector = len(space) - 1
    moving = [ld for ld in _operands(b) if space[vector] in variables(ld.indices[-1])]
    shared = [v for v in space[:-1] if not any(v in variables(i) for ld in moving for i in ld.indices)]
    candidates = [v for v in shared if _iter_extent(b, v) > 1] or list(space[:-1])
    row = max(candidates, key=lambda v: (min(_iter_extent(b, v), 64), space.index(v)))
    operand = moving[0].buffer if moving and shared else None
    return _Contraction(b.name, vector, space.index(row), operand)


def _operands(b: Block) -> list[Load]:
    return [ld for ld in dict.fromkeys(loads(b.store.value)) if ld.buffer != b.store.buffer]


def _space(b: Block) -> list[Var]:
    return [it.var for it in b.iters if it.kind == "space"]


def _iter_extent(b: Block, v: Var) -> int:
    known = next(value_of(it.extent) for it in b.iters if it.var == v)
    return _LARGE if known is None else known


def _work(b: Block) -> int:
    total = 1
    for it in b.iters:
        total *= value_of(it.extent) or 1
    return total


def _tile_sizes(target: Target, dtype: str, rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of the register tile: as square as the registers allow, no larger than the problem."""
    lanes = target.lanes(dtype)
    vectors = max(1, min(4 if target.vector_registers >= 32 else 2, -(-columns // lanes)))
    most = max(1, (target.vector_registers - vectors - 1) // vectors)
    most = min(most, 6 if vectors > 1 and target.vector_registers < 32 or vectors >= 4 else 14)
    count = -(-rows // most)
    return -(-rows // count), vectors * lanes if columns > vectors * lanes else columns


def _tile(s: Schedule, main: _Contraction, target: Target, weights: Sequence[str]) -> None:
    b = s.program.blocks[main.block]
    loops = s.loops(main.block)
    space, reduce = loops[: len(_space(b))], loops[len(_space(b)) :]
    rows, columns = _extent(s, space[main.row]), _extent(s, space[main.vector])
    dtype = s.program.buffers[b.store.buffer].dtype
    mr, nr = _tile_sizes(target, dtype, min(rows, 1 << 20), min(columns, 1 << 20))
    packed = _pack(s, main, b, nr, weights) if columns > nr else None
    i0, i1 = s.split(space[main.row], [None, mr], tail=True)
    j0, j1 = s.split(space[main.vector], [None, nr], tail=True)
    around = [x for n, x in enumerate(space) if n not in (main.row, main.vector)]
    order = [j0, i0] if packed else [i0, j0]
    s.reorder(*around, *order, *reduce, i1, j1)
    s.unroll(i1)
    s.vectorize(j1)
    if packed is not None and packed in s.program.blocks:
        s.compute_at(packed, j0)
        s.vectorize(s.loops(packed)[-1])
    outer = [*around, *order]
    _finish_consumers(s, main.block, outer[-1])
    _parallelize(s, outer, target)
    for name in list(s.program.blocks):
        if name != main.block and len(s.loops(name)) == len(s.program.blocks[name].iters):
            _plain(s, name, target)


def _pack(s: Schedule, main: _Contraction, b: Block, nr: int, weights: Sequence[str]) -> str | None:
    """Panels of the operand that is read in vectors, if its last index is the vector axis itself."""
    if main.operand is None:
        return None
    operand = next(ld for ld in _operands(b) if ld.buffer == main.operand)
    plain = all(isinstance(i, Var) for i in operand.indices) and len(operand.indices) >= 2
    if not plain or operand.indices[-1] != _space(b)[main.vector]:
        return None
    ahead = main.operand in weights
    name = main.operand if ahead else s.cache_read(main.block, main.operand)
    rank = len(operand.indices)
    olds = tuple(Var(f"x{n}") for n in range(rank))
    s.transform_layout(name, (olds, (*olds[:-2], olds[-1] // nr, olds[-2], olds[-1] % nr)))
    return name


def _finish_consumers(s: Schedule, block: str, loop: str) -> None:
    """Elementwise stages after the contraction run on each tile while it is in registers or cache."""
    buffer = s.program.blocks[block].store.buffer
    for reader in consumers(s.program, buffer):
        if not reader.reduces and _attempt(lambda name=reader.name: s.reverse_compute_at(name, loop)):  # type: ignore[misc]
            inner = s.loops(reader.name)
            inner = inner[inner.index(loop) + 1 :]
            if inner:
                s.vectorize(inner[-1])
                for lp in inner[:-1]:
                    if _extent(s, lp) <= 16:
                        s.unroll(lp)
            _finish_consumers(s, reader.name, loop)


def _parallelize(s: Schedule, loops: list[str], target: Target) -> None:
    """The outermost loops together, until there is enough for all threads to share evenly."""
    if target.threads == 1:
        return
    chosen: list[str] = []
    product = 1
    for lp in loops:
        chosen.append(lp)
        product *= _extent(s, lp)
        if product >= 4 * target.threads:
            break
    while len(chosen) > 1 and not _attempt(lambda: chosen.__setitem__(slice(None), [s.fuse(*chosen)])):
        chosen.pop()
    _attempt(lambda: s.parallel(chosen[0]))


# --- everything else --------------------------------------------------------------------------------------------------


def _row_by_row(s: Schedule, target: Target) -> None:
    last = list(s.program.blocks)[-1]
    b = s.program.blocks[last]
    loops = s.loops(last)
    keep = len(_space(b)) - (0 if b.reduces and not _vector_space(b) else 1)
    if len(s.program.blocks) > 1 and keep >= 1:
        for name in reversed(list(s.program.blocks)[:-1]):
            _attempt(lambda name=name: s.compute_at(name, loops[keep - 1]))  # type: ignore[misc]
    for name in list(s.program.blocks):
        _plain(s, name, target, inside=name != last and loops[max(0, keep - 1)] in s.loops(name))


def _vector_space(b: Block) -> bool:
    """Whether neighbouring outputs come from neighbouring inputs, so that the last space axis can run in lanes."""
    space = _space(b)
    return bool(space) and any(variables(ld.indices[-1]) & {space[-1]} for ld in _operands(b) if ld.indices)


def _plain(s: Schedule, name: str, target: Target, inside: bool = False) -> None:
    """One stage: its outer loops in parallel, its innermost axis in vectors."""
    b = s.program.blocks[name]
    loops = s.loops(name)
    own = loops[len(loops) - len(b.iters) :]
    if not own:
        return
    width = target.lanes(s.program.buffers[b.store.buffer].dtype)
    space, reduce = own[: len(_space(b))], own[len(_space(b)) :]
    if reduce and not _vector_space(b):
        lane = _contiguous_reduction(b, reduce)
        if lane is not None and _extent(s, lane) >= width:
            inner = s.split(lane, [None, min(4, -(-_extent(s, lane) // width)) * width], tail=True)[1]
            _attempt(lambda: s.reorder(*[r for r in s.loops(name)[len(loops) - len(reduce) :] if r != inner], inner))
            _attempt(lambda: s.vectorize(inner))
    elif space:
        column = s.split(space[-1], [None, min(4 * width, max(width, _extent(s, space[-1])))], tail=True)
        if reduce:
            _attempt(lambda: s.reorder(*column[:1], *reduce, column[1]))
        s.vectorize(column[1])
        space = [*space[:-1], column[0]]
    if not inside:
        _parallelize(s, space, target)


def _contiguous_reduction(b: Block, reduce: list[str]) -> str | None:
    """The reduction loop that walks along the last index of an operand."""
    axes = [it.var for it in b.iters if it.kind == "reduce"]
    for v, loop in zip(axes, reduce, strict=True):
        if any(ld.indices and v in variables(ld.indices[-1]) for ld in _operands(b)):
            return loop
    return None


