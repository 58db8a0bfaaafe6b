"""Planning: predicts the knobs of a placed state once it is finished, from its loops alone.

Finishing is most of the work of a sketch, and a search that draws points needs only the knobs.  A plan is certain, or
there is none: if a step might be illegal, or might add constraints between knobs, the state is finished at once.
"""

from __future__ import annotations

from searchlab.ir.expr import ONE, ZERO, Select, Var
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import statements
from searchlab.ir.stmt import Loop
from searchlab.ir.walk import iterators, variables, walk
from searchlab.schedule import Schedule
from searchlab.schedule.loops import resolved_bindings
from searchlab.schedule.primitive import leaves_in
from searchlab.search import Knob
from searchlab.tactics import fused_width, lane_factors, lane_loop, own_loops, rows_first
from spaces.common import KnobFactors
from spaces.sketch.state import Fused, State

UNROLL = (1, 16, 64, 512)  # limits of unrolling, in copies of a stage; 1 does not unroll
UNROLL_BRANCHES = (1, 16)  # the same for a stage with a branch: each part of its partitioned domain is unrolled


def untouched(state: State) -> list[str]:
    """The stages that no rule has scheduled."""
    return [n for n in state.program.blocks if n not in state.done]


def written_out(program: Program) -> list[str]:
    """The stages that may be unrolled: the reductions, or the last stage where there are none."""
    return [b.name for b in leaves_in(program.body) if b.reduces] or list(program.blocks)[-1:]


def unrolling(program: Program) -> tuple[int, ...]:
    """The limits of unrolling to choose from."""
    values = (program.blocks[n].store.value for n in written_out(program))
    return UNROLL_BRANCHES if any(isinstance(e, Select) for v in values for e in walk(v)) else UNROLL


def plan(state: State) -> tuple[Knob, ...] | None:
    """The knobs of the finished sketch, in order; None if only finishing it can tell."""
    s, program = Schedule(state.program), state.program
    if any(iterators(lp.extent) for lp in program.loops.values()):  # not all loops can be fused or reordered
        return None
    if not all(t.vector is None or t.call is not None or _is_open(program, t.vector) for t in state.tiled):
        return None
    if not all(_fits(s, f) for f in state.fused):
        return None
    factors = state.factors()
    if not _lanes(s, state, factors):
        return None
    factors.menu("unroll", unrolling(program))
    return tuple(factors.knobs)


def _lanes(s: Schedule, state: State, factors: KnobFactors) -> bool:
    """Requests the vector factors of every stage that no rule has scheduled; returns whether they are certain."""
    packed = dict(state.packed)
    for block in untouched(state):
        panel = packed.get(block)
        own = own_loops(s, block) if panel is None else rows_first(s, block, panel)
        if not all(_is_open(s.program, lp) for lp in own) or not _is_apart(s.program, block):
            return False
        lane = lane_loop(s, block, own)
        if lane is not None:
            lane_factors(s, block, lane, state.vector_factors(factors))
    return True


def _is_open(program: Program, loop: str) -> bool:
    """Whether a loop may be split, reordered and vectorised."""
    found = program.loops.get(loop)
    if found is None or found.kinds != ("serial",):
        return False
    return not any(isinstance(x, Loop) and "parallel" in x.kinds for x in statements(found))


def _is_apart(program: Program, name: str) -> bool:
    """Whether no loop iterates over both space and reduction."""
    block = program.blocks[name]
    moved: dict[str, set[Var]] = {"space": set(), "reduce": set()}
    for it, e in zip(block.iters, resolved_bindings(program, block), strict=True):
        moved[it.kind] |= variables(e)
    return not moved["space"] & moved["reduce"]


def _fits(s: Schedule, fused: Fused) -> bool:
    """Whether the last loop of a consumer can be split into vectors as long as those of its tile."""
    own = own_loops(s, fused.block)
    if not all(_is_open(s.program, lp) for lp in own):
        return False
    width = fused_width(s, fused.block, fused.tiles)
    long = [lp for lp in own if s.program.loops[lp].extent != ONE]
    return width is None or not long or s.program.loops[long[-1]].extent % width == ZERO
