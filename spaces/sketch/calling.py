"""The derivation rule that tiles a product around calls of a tensor intrinsic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from searchlab.ir.expr import TRUE
from searchlab.schedule import Schedule
from searchlab.tactics import IntrinsicView, results_are_in_order, structure_around, tile_for_calls
from spaces.common import fusible_consumer, loops_compete, reader_or_copy, searched_views
from spaces.sketch.rule import Answer, Rule
from spaces.sketch.state import Fused, State


def answer_for(views: tuple[IntrinsicView, ...]) -> Answer:
    """Whether a rule that calls these intrinsics for a product applies, and whether rules for loops do as well."""
    if not views:
        return Answer.SKIP
    return Answer.APPLY if loops_compete(views) else Answer.APPLY_AND_SKIP_REST


class TileCalls(Rule):
    """Multi-level tiling around calls of an intrinsic, with operands laid out for them.

    A constant operand is packed ahead of time or by a stage; the consumer of the stage, or a copy of its results, is
    computed at the first or the second level of spatial loops.
    """

    def applies(self, state: State, block: str) -> Answer:
        """For a product that the target has an instruction for; no later rule is tried where loops are hopeless."""
        return answer_for(_views(state, block))

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The stage tiled for each intrinsic, each way of packing, and each level of its consumer."""
        for view in _views(state, block):
            for ahead in (True, False) if view.weight.buffer in state.task.weights else (False,):
                for number in self.levels(state, view):
                    yield self.tile(state, view, ahead, number)

    def levels(self, state: State, view: IntrinsicView) -> tuple[int | None, ...]:
        """The levels of spatial loops at which a consumer may be computed; None if it needs none."""
        alone = fusible_consumer(state.program, view.block) is None
        if alone and results_are_in_order(Schedule(state.program), view):
            return (None,)
        return (1, 2)[: structure_around(state.settings.structure, view).count("S")]

    def tile(self, state: State, view: IntrinsicView, ahead: bool, number: int | None) -> State:
        """The stage tiled around calls, with its consumer at a level of spatial loops if one is given."""
        s, factors = Schedule(state.program), state.factors()
        fused = None if number is None else (reader_or_copy(s, view.block), number)
        before = set(s.program.blocks)
        structure, target = state.settings.structure, state.task.target
        made = tile_for_calls(s, view, structure, factors, factors.exact, target, ahead, fused)
        label = ("layout" if ahead else "pack") + ("" if number is None else f"-fuse{number}")
        after = state.advance(s, f"calls({view.intrinsic.name})", label, knobs=factors.knobs, tiles=made.tiles)
        copies = tuple((c, None) for c in made.copies if c not in before)
        return replace(
            after,
            fused=state.fused if fused is None else (*state.fused, Fused(fused[0], made.tiles)),
            packed=(*state.packed, *copies),
            conditions=state.conditions if made.fits == TRUE else (*state.conditions, made.fits),
        )


def _views(state: State, block: str) -> tuple[IntrinsicView, ...]:
    if state.program.buffers[state.program.blocks[block].store.buffer].scope != "global":
        return ()
    return searched_views(state.program, block, state.task, state.settings.intrinsics)
