"""The axes of a stage, the operands indexed by them, and the loops that iterate over them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from searchlab.errors import SpaceError
from searchlab.ir.expr import Expr, Load, Var, value_of
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import path_to
from searchlab.ir.stmt import Block, Iter, Loop, Tensorized
from searchlab.ir.walk import loads, variables
from searchlab.schedule import Schedule
from searchlab.schedule.loops import resolved_bindings
from searchlab.schedule.primitive import consumers, loops_around
from searchlab.schedule.regions import read_dimensions


def constant(extent: Expr, what: str) -> int:
    """The value of an extent, which must be a constant; `what` begins the error message otherwise."""
    known = value_of(extent)
    if known is None:
        raise SpaceError(f"{what} has the run-time size {extent}; accepted: fixed sizes (workload.at(...) fixes them)")
    return known


# --- axes and operands ------------------------------------------------------------------------------------------------


def space_axes(block: Block) -> tuple[Iter, ...]:
    """The spatial axes of a stage, which index its output."""
    return tuple(it for it in block.iters if it.kind == "space")


def reduce_axes(block: Block) -> tuple[Iter, ...]:
    """The axes that a stage reduces over."""
    return tuple(it for it in block.iters if it.kind == "reduce")


def work(block: Block) -> int:
    """The number of iterations of a stage; a run-time size counts as one."""
    return math.prod(value_of(it.extent) or 1 for it in block.iters)


def operands(block: Block) -> list[Load]:
    """The distinct loads of a stage from buffers other than its output."""
    return [ld for ld in dict.fromkeys(loads(block.store.value)) if ld.buffer != block.store.buffer]


def moves_with(load: Load, axis: Var) -> bool:
    """Whether a load depends on an axis."""
    return any(axis in variables(i) for i in load.indices)


def stores_plainly(block: Block) -> bool:
    """Whether the store is indexed by the spatial axes themselves, in order."""
    return block.store.indices == tuple(it.var for it in space_axes(block))


def phases(program: Program, block: Block) -> list[int]:
    """The axes of a stage that its consumer interleaves: it reads them at remainders of its own axes."""
    readers = consumers(program, block.store.buffer)
    reads = [ld.indices for r in readers for ld in operands(r) if ld.buffer == block.store.buffer]
    if len(readers) != 1 or len(reads) != 1 or not stores_plainly(block):
        return []
    return sorted(d.low for d in (read_dimensions(reads[0]) or {}).values() if d.low is not None)


def call_around(program: Program, name: str) -> str | None:
    """The block around the call of an intrinsic that a stage is inside; None if it runs as loops."""
    path = path_to(program.body, program.blocks[name])
    calls = [b.name for b, inner in pairwise(path) if isinstance(b, Block) and isinstance(inner, Tensorized)]
    return calls[-1] if calls else None


# --- loops ------------------------------------------------------------------------------------------------------------


def extent(s: Schedule, loop: str) -> int | None:
    """The extent of a loop; None if it depends on a knob or is known only at run time."""
    return value_of(s.program.loops[loop].extent)


def axis_loops(s: Schedule, block: str) -> tuple[list[str], list[str]]:
    """The spatial loops and the reduction loops of a stage whose axes have not been split yet."""
    b = s.program.blocks[block]
    loops = s.loops(block)
    own = loops[len(loops) - len(b.iters) :]
    count = len(space_axes(b))
    return own[:count], own[count:]


def loops_by_kind(s: Schedule, block: str, loops: Sequence[str]) -> tuple[list[str], list[str]]:
    """The loops that iterate over a stage's space, and those that carry its reduction, however they were split."""
    b = s.program.blocks[block]
    pairs = zip(b.iters, resolved_bindings(s.program, b), strict=True)
    carried = {v.name for it, e in pairs if it.kind == "reduce" for v in variables(e)}
    return [lp for lp in loops if lp not in carried], [lp for lp in loops if lp in carried]


def own_loops(s: Schedule, block: str) -> list[str]:
    """The innermost loops that contain this stage and nothing else."""
    found: list[str] = []
    for lp in reversed(loops_around(s.program, block)):
        if not isinstance(lp.body, (Loop, Block)):
            break
        found.append(lp.name)
    return found[::-1]


def loops_inside(s: Schedule, block: str, loop: str) -> list[str]:
    """The loops around a stage that are inside a given one."""
    loops = s.loops(block)
    return loops[loops.index(loop) + 1 :]
