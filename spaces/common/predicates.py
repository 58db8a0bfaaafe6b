"""What can be told about the stages of a program: which are inlined, tiled, fused, factored or packed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from searchlab.errors import SpaceError
from searchlab.ir.expr import Binary, Call, Const, Expr, Load, Poly, Select, Var, poly, value_of, variables, walk
from searchlab.ir.program import Block, Iter, Loop, Program, accesses
from searchlab.schedule.loops import resolved_bindings
from searchlab.schedule.primitive import consumers, path_to

CHEAP = ("abs",)


def constant(extent: Expr, what: str) -> int:
    """An extent that must be a number."""
    known = value_of(extent)
    if known is None:
        raise SpaceError(f"{what} has the run-time size {extent}; accepted: fixed sizes (workload.at(...) fixes them)")
    return known


def space_axes(block: Block) -> tuple[Iter, ...]:
    return tuple(it for it in block.iters if it.kind == "space")


def reduce_axes(block: Block) -> tuple[Iter, ...]:
    return tuple(it for it in block.iters if it.kind == "reduce")


def points(axes: tuple[Iter, ...]) -> int:
    """How many iterations some axes have together."""
    return math.prod(constant(it.extent, f"axis '{it.var}'") for it in axes)


def operands(block: Block) -> list[Load]:
    """What a block reads, apart from its own output, each access once."""
    return [ld for ld in dict.fromkeys(accesses(block)) if ld.buffer != block.store.buffer]


def moves_with(load: Load, axis: Var) -> bool:
    """Whether an access depends on an axis."""
    return any(axis in variables(i) for i in load.indices)


def stores_plainly(block: Block) -> bool:
    """Whether every iteration over space stores the element of its own number."""
    return block.store.indices == tuple(it.var for it in space_axes(block))


def is_expensive(block: Block) -> bool:
    """Whether it calls a function that is dear to compute twice."""
    return any(isinstance(e, Call) and e.function not in CHEAP for e in walk(block.store.value))


def only_moves_data(block: Block) -> bool:
    """Whether every element is a copy of one element or a constant, as in padding and packing."""
    value = block.store.value
    parts = (value.a, value.b) if isinstance(value, Select) else (value,)
    return not block.reduces and all(isinstance(p, (Load, Const)) for p in parts)


def strictly_inlinable(program: Program, name: str) -> bool:
    """Whether a stage is always inlined: cheap, without branches, reading elements along its own axes in order."""
    block = program.blocks[name]
    if block.reduces or block.store.buffer in program.outputs or not stores_plainly(block):
        return False
    if is_expensive(block) or any(isinstance(e, Select) for e in walk(block.store.value)):
        return False
    order = [it.var for it in block.iters]
    return all(_reads_in_order(ld, order) for ld in operands(block))


def _reads_in_order(load: Load, axes: list[Var]) -> bool:
    found = []
    for i in load.indices:
        inside = [v for v in axes if v in variables(i)]
        if len(inside) > 1 or (inside and not _is_shifted(i, inside[0])):
            return False
        found += inside
    return found == sorted(found, key=axes.index) and len(set(found)) == len(found)


def _is_shifted(e: Expr, axis: Var) -> bool:
    """Whether an index is an axis plus a constant."""
    return e == axis or (isinstance(e, Poly) and {m: c for m, c in poly(e).items() if m} == {(axis,): 1})


def needs_tiling(program: Program, name: str) -> bool:
    """Whether elements are read again and again: several operands miss an axis, or one does in a reduction.

    A stage that also reads an operand along all its axes, such as one that scales and shifts every channel, is
    elementwise: what it reads again are a few numbers.
    """
    block = program.blocks[name]
    axes = [it.var for it in space_axes(block) if value_of(it.extent) != 1]
    read = operands(block)
    missing = {ld.buffer for ld in read if any(not moves_with(ld, v) for v in axes)}
    if points(reduce_axes(block)) > 1:
        return len(missing) >= 1
    return len(missing) >= 2 and missing == {ld.buffer for ld in read}


def fusible_consumer(program: Program, name: str) -> str | None:
    """The one stage that reads a stage element by element, unless both are reductions or it is an output too."""
    block = program.blocks[name]
    buffer = block.store.buffer
    readers = consumers(program, buffer)
    if len(readers) != 1 or buffer in program.outputs:
        return None
    (reader,) = readers
    own = {ld.indices for ld in operands(reader) if ld.buffer == buffer}
    same = own == {tuple(it.var for it in space_axes(reader))} and stores_plainly(reader)
    both = block.reduces and reader.reduces
    return reader.name if same and not both and stores_plainly(block) else None


def wants_rfactor(program: Program, name: str, threads: int) -> bool:
    """Whether a reduction has more to share than its output."""
    block = program.blocks[name]
    if not block.reduces or not _is_associative(block) or not stores_plainly(block):
        return False
    space, reduction = points(space_axes(block)), points(reduce_axes(block))
    if needs_tiling(program, name):
        return space <= reduction and space <= 16 * threads
    return reduction > threads


def _is_associative(block: Block) -> bool:
    value = block.store.value
    own = Load(block.store.buffer, block.store.indices, value.dtype)
    return isinstance(value, Binary) and value.op in ("add", "mul", "min", "max") and own in (value.a, value.b)


def reduces_along_rows(block: Block) -> bool:
    """Whether lanes belong to the reduction: its last axis walks along rows in memory, and the output's does not."""
    space, reduction = space_axes(block), reduce_axes(block)
    walked = [
        ld.indices[-1] for ld in operands(block) if ld.indices and any(moves_with(ld, it.var) for it in reduction)
    ]
    last = [it for it in space if value_of(it.extent) != 1][-1:]
    return not _any_walks(last, walked) and _any_walks(reduction, walked)


def _any_walks(axes: Sequence[Iter], rows: Sequence[Expr]) -> bool:
    return any(_walks(it.var, row) for it in axes if value_of(it.extent) != 1 for row in rows)


def _walks(axis: Var, row: Expr) -> bool:
    """Whether an axis takes steps of a few elements along a row; the digits of a fused loop count as one number."""
    inner = row.a if isinstance(row, Binary) and row.op == "mod" else row
    terms = [m for m in poly(inner) if any(axis in variables(atom) for atom in m)]
    return terms == [(axis,)]


def would_repeat(program: Program, name: str, loop: str) -> bool:
    """Whether computing a stage inside a loop would compute some elements several times."""
    block = program.blocks[name]
    path = {lp for lp in _around(program, loop) if value_of(program.loops[lp].extent) != 1}
    for reader in consumers(program, block.store.buffer):
        bound = dict(zip((it.var for it in reader.iters), resolved_bindings(program, reader), strict=True))
        for ld in operands(reader):
            if ld.buffer == block.store.buffer:
                used = {v for i in ld.indices for x in variables(i) for v in variables(bound.get(x, x))}
                if path - {v.name for v in used}:
                    return True
    return False


def _around(program: Program, loop: str) -> list[str]:
    path = path_to(program.body, program.loops[loop])
    return [s.name for s in path if isinstance(s, Loop)]


@dataclass(frozen=True)
class Panel:
    """An operand that can be packed: which output axis its panels run along, and the dimension it is of the operand."""

    buffer: str
    axis: int
    dimension: int


def panel(program: Program, name: str) -> Panel | None:
    """The operand of a contraction to be packed so that a vector of outputs reads neighbours.

    Its axis moves no other operand.  The last output axis is preferred, since its results lie side by side; then the
    longest.
    """
    block = program.blocks[name]
    read = operands(block)
    space = space_axes(block)
    if not block.reduces or len(read) < 2:
        return None
    found = []
    for n, it in enumerate(space):
        mine = [ld for ld in read if moves_with(ld, it.var)]
        if len(mine) != 1 or points((it,)) == 1 or [v for v in mine[0].indices if it.var in variables(v)] != [it.var]:
            continue
        if sum(ld.buffer == mine[0].buffer for ld in read) == 1:
            found.append(Panel(mine[0].buffer, n, mine[0].indices.index(it.var)))
    last = len(space) - 1
    return max(found, key=lambda p: (p.axis == last, points((space[p.axis],))), default=None)
