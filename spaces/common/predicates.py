"""Predicates on the stages of a program: which are inlined, tiled, fused with their consumer, or factored."""

from __future__ import annotations

import math

from searchlab.ir.algebra import poly
from searchlab.ir.expr import Binary, Call, Const, Expr, Load, Poly, Select, Var, value_of
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import path_to
from searchlab.ir.stmt import Block, Iter, Loop
from searchlab.ir.walk import variables, walk
from searchlab.schedule.loops import resolved_bindings
from searchlab.schedule.primitive import consumers
from searchlab.schedule.regions import read_dimensions
from searchlab.tactics import constant, moves_with, operands, reduce_axes, space_axes, stores_plainly

CHEAP = ("abs",)


def points(axes: tuple[Iter, ...]) -> int:
    """The product of the extents of axes."""
    return math.prod(constant(it.extent, f"axis '{it.var}'") for it in axes)


def is_expensive(block: Block) -> bool:
    """Whether a stage calls a function that is too expensive to compute twice."""
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
    """Whether a stage has data reuse: several operands lack an axis, or one does in a reduction.

    A stage that also reads an operand along all its axes, such as one that scales and shifts every channel, is
    elementwise: it reuses only a few numbers.
    """
    block = program.blocks[name]
    axes = [it.var for it in space_axes(block) if value_of(it.extent) != 1]
    read = operands(block)
    missing = {ld.buffer for ld in read if any(not moves_with(ld, v) for v in axes)}
    if points(reduce_axes(block)) > 1:
        return len(missing) >= 1
    return len(missing) >= 2 and missing == {ld.buffer for ld in read}


def fusible_consumer(program: Program, name: str) -> str | None:
    """The only consumer of a stage, if it reads element by element, unless both reduce or the stage is an output."""
    block = program.blocks[name]
    buffer = block.store.buffer
    readers = consumers(program, buffer)
    if len(readers) != 1 or buffer in program.outputs:
        return None
    (reader,) = readers
    own = {ld.indices for ld in operands(reader) if ld.buffer == buffer}
    axes = [it.var for it in space_axes(reader)]
    same = len(own) == 1 and list(read_dimensions(own.pop()) or ()) == axes and stores_plainly(reader)
    both = block.reduces and reader.reduces
    return reader.name if same and not both and stores_plainly(block) else None


def wants_rfactor(program: Program, name: str, threads: int) -> bool:
    """Whether a reduction offers more parallelism than its output."""
    block = program.blocks[name]
    if not block.reduces or not is_associative(block) or not stores_plainly(block):
        return False
    space, reduction = points(space_axes(block)), points(reduce_axes(block))
    if needs_tiling(program, name):
        return space <= reduction and space <= 16 * threads
    return reduction > threads


def is_associative(block: Block) -> bool:
    """Whether partial results of a reduction can be combined in any order."""
    value = block.store.value
    own = Load(block.store.buffer, block.store.indices, value.dtype)
    return isinstance(value, Binary) and value.op in ("add", "mul", "min", "max") and own in (value.a, value.b)


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
