"""Where a stage may be computed: inline, at the root, or inside a loop of its reader."""

from __future__ import annotations

from collections.abc import Sequence

from searchlab.errors import ScheduleError
from searchlab.ir.expr import ONE
from searchlab.ir.program import Program
from searchlab.ir.walk import variables
from searchlab.schedule import compute_at, compute_inline, loops_around
from searchlab.schedule.loops import resolved_bindings
from searchlab.schedule.primitive import consumers
from spaces.probabilistic.sampling import INLINE, ROOT

NAMES = {INLINE: "<inline>", ROOT: "<root>"}


def legal_places(
    program: Program, block: str, loops: Sequence[str] | None = None, inline: bool = True
) -> dict[int, str]:
    """The places of a stage by number; loops are those of its first reader, the outermost is 0.

    Unless `loops` says which to look at, a loop that the stage does not depend on is left out: inside it the same work
    would be done again and again.
    """
    around = numbered_places(program, block, loops, inline)
    moved = {n: _moved(program, block, where) for n, where in around.items()}
    return {
        n: where
        for n, where in around.items()
        if (p := moved[n]) is not None and (n < 0 or loops is not None or not _repeats(p, block, where))
    }


def numbered_places(program: Program, block: str, loops: Sequence[str] | None, inline: bool) -> dict[int, str]:
    """The places of a stage by number, legal or not."""
    buffer = program.blocks[block].store.buffer
    readers = consumers(program, buffer)
    if not readers or buffer in program.outputs:
        return {ROOT: NAMES[ROOT]}
    around = [lp.name for lp in loops_around(program, readers[0].name)]
    found = {n: where for n, where in NAMES.items() if inline or n != INLINE}
    return found | {n: loop for n, loop in enumerate(around) if loops is None or loop in loops}


def _moved(program: Program, block: str, where: str) -> Program | None:
    try:
        return place(program, block, where)
    except ScheduleError:
        return None


def _repeats(program: Program, block: str, loop: str) -> bool:
    """Whether a loop around the stage, down to the given one, runs without changing what the stage computes."""
    around = loops_around(program, block)
    outer = around[: [lp.name for lp in around].index(loop) + 1]
    used = {v for e in resolved_bindings(program, program.blocks[block]) for v in variables(e)}
    return any(lp.var not in used and lp.extent != ONE for lp in outer)


def place(program: Program, block: str, where: str) -> Program:
    """The program with the stage at a place, given as `legal_places` names it."""
    if where == NAMES[ROOT]:
        return program
    return compute_inline(program, block) if where == NAMES[INLINE] else compute_at(program, block, where)
