"""tensorize: a nest of loops becomes one call of a hardware instruction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from searchlab.errors import ComponentError, ScheduleError
from searchlab.intrinsics import Intrinsic, Match, find_intrinsic, match_in
from searchlab.ir.alpha import Difference
from searchlab.ir.expr import ONE
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import kept, statements, swap
from searchlab.ir.stmt import Loop, Stmt, Store, Tensorized
from searchlab.schedule.hierarchy import blockize
from searchlab.schedule.primitive import MadeNames, check, find_block, find_loop, nearest, primitive, replaced

MOVABLE = (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED)


@primitive
def tensorize(
    program: Program, target: str, intrinsic: str, ranges: Mapping[str, Sequence[int]] | None = None
) -> MadeNames:
    """Replace a loop nest by a hardware instruction that computes the same; a loop is wrapped into a block first.

        for j in 16: for k in 4: C[j0*16 + j] += A[k0*4 + k] * B[k0, j0*16 + j, k]
        =>  block C_outer(vj = j0; vk = k0): tensorized vnni_u8s8_16x4: for j in 16: for k in 4: ...

    `target` is the outermost loop of the nest, or the block that blockize made of it.  The nest must match the
    description of the intrinsic.  `ranges` states smallest and largest values of buffers, for intrinsics that are exact
    in a range only.
    """
    try:
        wanted = find_intrinsic(intrinsic)
    except ComponentError as e:
        raise ScheduleError(str(e)) from None
    known = (*program.loops, *program.blocks)
    check(target in known, lambda: nearest("loop or block", target, known))
    inside = [x for s in statements(program.body) if isinstance(s, Tensorized) for x in statements(s)]
    made: tuple[str, ...] = ()
    if target in program.loops:
        check(find_loop(program, target) not in inside, f"loop '{target}' is tensorised already")
        compared(wanted, program, find_loop(program, target), ranges)  # its words are about the loop as it was given
        wrapped = blockize.__wrapped__(program, target)  # type: ignore[attr-defined]
        program, made = wrapped.program, wrapped.names
    name = made[0] if made else target
    block = find_block(program, name)
    check(not isinstance(block.body, Store), f"block '{name}' is one store; name the outermost loop of the nest")
    check(not isinstance(block.body, Tensorized), f"block '{name}' is tensorised already")
    compared(wanted, program, block.body, ranges)
    call = Tensorized(intrinsic, _with_kinds(block.body, wanted))
    return MadeNames(program.with_body(replaced(program, block, replace(block, body=call))), made)


def compared(intrinsic: Intrinsic, program: Program, s: Stmt, ranges: Mapping[str, Sequence[int]] | None) -> Match:
    """The match of a nest with an intrinsic; refuses one that does not match, or that the intrinsic may get wrong."""
    for lp in (x for x in statements(s) if isinstance(x, Loop)):
        check(lp.kinds[0] in MOVABLE and len(lp.kinds) == 1, f"loop '{lp.name}' is {' or '.join(lp.kinds)}")
    found = match_in(program, s, intrinsic)
    if isinstance(found, Difference):
        raise ScheduleError(f"{intrinsic.name}: {found.words}")
    stated = dict(ranges or {})
    for name in stated:
        check(name in program.buffers, lambda name=name: nearest("buffer", name, program.buffers))  # type: ignore[misc]
    for operand, (low, high) in intrinsic.promise.ranges.items():
        buffer = found.operands[operand].buffer
        given = stated.get(buffer)
        check(
            given is not None and len(given) == 2 and low <= given[0] and given[1] <= high,
            f"{intrinsic.name} is {intrinsic.promise.words}, and {operand} is '{buffer}', "
            + (f"stated to be in {given[0]}..{given[-1]}" if given else "of which no range is stated")
            + f"; state ranges={{'{buffer}': ({low}, {high})}} if its values keep to that",
        )
    return found


def _with_kinds(s: Stmt, intrinsic: Intrinsic) -> Stmt:
    """The nest with the kinds of the description's loops, by which it runs where it cannot be called."""
    loops = [x for x in statements(s) if isinstance(x, Loop) and x.extent != ONE]
    for lp, kind in reversed(list(zip(loops, intrinsic.kinds, strict=True))):
        current = next(x for x in statements(s) if isinstance(x, Loop) and x.var == lp.var)
        s = kept(swap(s, current, replace(current, kind=kind)))
    return s
