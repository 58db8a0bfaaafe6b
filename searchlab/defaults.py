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
from searchlab.schedule.primitive import consumers
from searchlab.targets import Target

_LARGE = 1 << 30
_LONG_ROW = 256  # elements; shorter rows lie so close that the processor fetches the next one by itself


def default_schedule(program: Program, target: Target, weights: Sequence[str] = ()) -> Program:
    """The program scheduled by rules; inputs named in `weights` are constant and may be packed ahead of time."""
    s = Schedule(program)
    _inline_cheap_stages(s)
    plan = _contraction(s.program, target)
    if plan is not None:
        _tile(s, plan, target, weights)
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
class _Plan:
    """How a reduction is tiled: the axis in vectors, the axis of register rows, and the operand packed into panels."""

    block: str
    vector: int
    row: int
    operand: Load | None


def _contraction(program: Program, target: Target) -> _Plan | None:
    """A plan for the largest block that multiplies several operands, if there is one."""
    found = [b for b in program.blocks.values() if b.reduces and len(_operands(b)) >= 2 and len(_space(b)) >= 2]
    if not found:
        return None
    b = max(found, key=_work)
    space, operands = _space(b), _operands(b)
    last = len(space) - 1
    enough = target.lanes(program.buffers[b.store.buffer].dtype) // 2
    extents = [_iter_extent(b, v) for v in space]
    for axis in sorted(range(len(space)), key=lambda n: (n != last or extents[n] < enough, -extents[n])):
        v = space[axis]
        mine = [ld for ld in operands if v in ld.indices]
        free = [n for n, x in enumerate(space) if n != axis and mine and not _moves(mine[0], x)]
        private = len(mine) == 1 and all(ld is mine[0] or not _moves(ld, v) for ld in operands)
        if private and free and _iter_extent(b, v) > 1:
            return _Plan(b.name, axis, max(free, key=lambda n: (_iter_extent(b, space[n]) > 1, n)), mine[0])
    return _Plan(b.name, last, last - 1, None)


def _moves(ld: Load, v: Var) -> bool:
    return any(v in variables(i) for i in ld.indices)


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


def _tile_sizes(target: Target, dtype: str, rows: int, columns: int, most_vectors: int) -> tuple[int, int]:
    """Rows and columns of the register tile: as many accumulators as fit, no larger than the problem."""
    lanes = target.lanes(dtype)
    vectors = max(1, min(most_vectors, -(-columns // lanes)))
    most = max(1, min(14, (target.vector_registers - vectors - 2) // vectors))
    tiles = -(-rows // most)
    return -(-rows // tiles), min(columns, vectors * lanes)


def _tile(s: Schedule, plan: _Plan, target: Target, weights: Sequence[str]) -> None:
    if plan.operand is None:
        _stencil(s, plan, target)
        return
    b = s.program.blocks[plan.block]
    loops, count = s.loops(plan.block), len(_space(b))
    space, reduce = loops[:count], loops[count:]
    dtype = s.program.buffers[b.store.buffer].dtype
    contiguous = plan.vector == count - 1
    most = (4 if target.vector_registers >= 32 else 2) if contiguous else 2
    mr, nr = _tile_sizes(target, dtype, _extent(s, space[plan.row]), _extent(s, space[plan.vector]), most)
    panels = _pack(s, plan, b, nr, weights)
    i0, i1 = s.split(space[plan.row], [None, mr], tail=True)
    j0, j1 = s.split(space[plan.vector], [None, nr], tail=True)
    around = [x for n, x in enumerate(space) if n not in (plan.row, plan.vector)]
    if contiguous:
        outer = [*around, j0, i0]
        s.reorder(*outer, *reduce, i1, j1)
        home = j0
    else:
        outer, home = _order_by_channels(s, around, j0, i0, reduce, i1, j1)
    s.unroll(i1)
    s.vectorize(j1)
    if panels in s.program.blocks:
        if contiguous:
            s.compute_at(panels, home)
        *packing, lanes = s.loops(panels)
        s.vectorize(lanes)
        if not contiguous:
            _parallelize(s, packing, target)
    if contiguous:
        _finish_consumers(s, plan.block, i0)
    else:
        _write_transposed(s, plan, home, nr)
    _parallelize(s, outer[: outer.index(home) + 1], target)
    _finish_others(s, plan.block, target)


def _order_by_channels(
    s: Schedule, around: list[str], j0: str, i0: str, reduce: list[str], i1: str, j1: str
) -> tuple[list[str], str]:
    """Bands of output rows, then channels, then groups of input channels whose weights fit the first-level cache."""
    band, inner = [], []
    if around and _extent(s, around[-1]) > 8:
        outer_row, inner_row = s.split(around[-1], [None, 7], tail=True)
        around, band, inner = around[:-1], [outer_row], [inner_row]
    group, rest = [], reduce
    if len(reduce) > 1 and _extent(s, reduce[0]) > 16:
        outer_group, inner_group = s.split(reduce[0], [None, 16], tail=True)
        group, rest = [outer_group], [inner_group, *reduce[1:]]
    s.reorder(*around, *band, j0, *group, *inner, i0, *rest, i1, j1)
    return [*around, *band, j0], j0


def _write_transposed(s: Schedule, plan: _Plan, home: str, nr: int) -> None:
    """The tile lies with its vectors side by side; what reads it brings the elements back into order."""
    buffer = s.program.blocks[plan.block].store.buffer
    if buffer in s.program.outputs:
        s.cache_write(plan.block)
        buffer = s.program.blocks[plan.block].store.buffer
    _finish_consumers(s, plan.block, home, unroll=False)
    rank = len(s.program.buffers[buffer].shape)
    olds = tuple(Var(f"x{n}") for n in range(rank))
    v = olds[plan.vector]
    rest = tuple(x for x in olds if x is not v)
    _attempt(lambda: s.transform_layout(buffer, (olds, (v // nr, *rest, v % nr))))


def _stencil(s: Schedule, plan: _Plan, target: Target) -> None:
    """Every output has its own window: a few rows at a time, all taps written out, padding computed per channel."""
    b = s.program.blocks[plan.block]
    loops, count = s.loops(plan.block), len(_space(b))
    space, reduce = loops[:count], loops[count:]
    i0, i1 = s.split(space[plan.row], [None, min(2, _extent(s, space[plan.row]))], tail=True)
    s.reorder(*space[: plan.row], i0, *reduce, i1, space[plan.vector])
    taps = 1
    for lp in (i1, *reversed(reduce)):
        taps *= _extent(s, lp)
        if taps <= 64:
            s.unroll(lp)
    s.vectorize(space[plan.vector])
    _finish_consumers(s, plan.block, i0)
    home = space[plan.row - 1] if plan.row > 0 else i0
    for name in list(s.program.blocks):
        if not _attempt(lambda name=name: s.compute_at(name, home)):  # type: ignore[misc]
            continue
        s.vectorize(s.loops(name)[-1])
    _parallelize(s, [*space[: plan.row], i0][: max(1, plan.row)], target)
    _finish_others(s, plan.block, target)


def _finish_others(s: Schedule, block: str, target: Target) -> None:
    """Stages that nothing has touched yet."""
    for name in list(s.program.blocks):
        own = s.loops(name)
        fresh = len(own) == len(s.program.blocks[name].iters)
        if name != block and fresh and all(s.program.loops[lp].kind == "serial" for lp in own):
            _plain(s, name, target)


def _pack(s: Schedule, plan: _Plan, b: Block, nr: int, weights: Sequence[str]) -> str:
    """The operand in panels of the vector axis: what one vector holds lies side by side."""
    assert plan.operand is not None
    v = _space(b)[plan.vector]
    at = plan.operand.indices.index(v)
    name = plan.operand.buffer if plan.operand.buffer in weights else s.cache_read(plan.block, plan.operand.buffer)
    olds = tuple(Var(f"x{n}") for n in range(len(plan.operand.indices)))
    rest = tuple(x for n, x in enumerate(olds) if n != at)
    s.transform_layout(name, (olds, (olds[at] // nr, *rest, olds[at] % nr)))
    return name


def _finish_consumers(s: Schedule, block: str, loop: str, unroll: bool = True) -> None:
    """Elementwise stages after the contraction run on each tile while it is in registers or cache."""
    buffer = s.program.blocks[block].store.buffer
    for reader in consumers(s.program, buffer):
        if not reader.reduces and _attempt(lambda name=reader.name: s.reverse_compute_at(name, loop)):  # type: ignore[misc]
            inner = s.loops(reader.name)
            inner = inner[inner.index(loop) + 1 :]
            if inner:
                s.vectorize(inner[-1])
                for lp in inner[:-1] if unroll else ():
                    if _extent(s, lp) <= 16:
                        s.unroll(lp)
            _finish_consumers(s, reader.name, loop, unroll)


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
    if len(s.program.blocks) > 1 and keep >= 1:
        _fetch_next(s, s.loops(last)[0])


def _fetch_next(s: Schedule, row: str) -> None:
    """The next row of every input, in the stage with the most arithmetic, which has time to wait for memory."""
    for name in s.program.inputs:
        readers = [b for b in consumers(s.program, name) if row in s.loops(b.name)]
        moved = [b for b in readers if b.iters and any(_moves(ld, b.iters[0].var) for ld in _reads(b, name))]
        columns = value_of(s.program.buffers[name].shape[-1])
        if moved and (columns is None or columns >= _LONG_ROW):
            work = {b.name: sum(1 for _ in walk(b.store.value)) for b in moved}
            s.prefetch(max(work, key=lambda n: work[n]), name, row, 1)


def _reads(b: Block, buffer: str) -> list[Load]:
    return [ld for ld in _operands(b) if ld.buffer == buffer]


def _vector_space(b: Block) -> bool:
    """Whether neighbouring outputs come from neighbouring inputs, so that the last space axis can run in lanes."""
    space, reduce = _space(b), [it.var for it in b.iters if it.kind == "reduce"]
    walked = [ld for ld in _operands(b) if ld.indices and (not reduce or any(_moves(ld, r) for r in reduce))]
    return bool(space) and any(space[-1] in variables(ld.indices[-1]) for ld in walked)


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
        if _extent(s, space[-1]) == 1:
            return
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
