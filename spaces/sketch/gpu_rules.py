"""The derivation rules for GPUs: tiles of blocks and threads, operands in shared memory, sums that threads share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from searchlab.errors import ScheduleError
from searchlab.schedule import Schedule
from searchlab.search import Sketch
from searchlab.tactics import IntrinsicView, tile_calls_by
from searchlab.tactics.block_tiling import Staged, ThreadBlockTile, levels, stage_for_block, tile_for_blocks
from searchlab.targets import CudaTarget
from spaces.common import (
    KnobFactors,
    bind_rest,
    can_share_rows,
    can_share_sums,
    needs_tiling,
    searched_views,
    share_rows,
    share_sums,
    unbound,
)
from spaces.common.threads import CALL_LANES, LANES, tile_limits
from spaces.sketch.calling import answer_for
from spaces.sketch.rule import Answer, Rule
from spaces.sketch.rules import Inline, Skip
from spaces.sketch.state import State


class TileForBlocks(Rule):
    """Multi-level tiling by blocks, virtual threads and threads; operands are copied to shared memory together."""

    def applies(self, state: State, block: str) -> Answer:
        """For a stage with data reuse that no block runs yet."""
        wanted = block in unbound(state.program) and needs_tiling(state.program, block)
        return Answer.APPLY if wanted else Answer.SKIP

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The stage tiled, with its operands in shared memory, then with operands read where they are."""
        for name, shared in (("shared", True), ("direct", False)):
            s, factors = Schedule(state.program), state.factors()
            try:
                staged = stage_for_block(s, block, shared=shared)
            except ScheduleError:  # a result that is read at several places, for example
                return
            splits = levels(s, staged.block, state.settings.structure, factors)
            tile = tile_for_blocks(s, staged, splits, factors.menu(f"{block}_lanes", LANES) if shared else 1)
            yield _tiled(state, s, f"{name}({block})", factors, staged, tile)


class TileCallsOfWarps(Rule):
    """Tiles by blocks and warps around calls of an intrinsic; operands are copied to shared memory together."""

    def applies(self, state: State, block: str) -> Answer:
        """For a product that tensor cores compute; no later rule is tried where loops are hopeless."""
        return answer_for(_views(state, block))

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The stage tiled for each intrinsic."""
        for view in _views(state, block):
            s, factors = Schedule(state.program), state.factors()
            staged, tile = tile_calls_by(s, view, factors.exact, factors.menu(f"{block}_lanes", CALL_LANES))
            yield _tiled(state, s, f"calls({view.intrinsic.name})", factors, staged, tile)


def _views(state: State, block: str) -> tuple[IntrinsicView, ...]:
    if block not in unbound(state.program):
        return ()
    return searched_views(state.program, block, state.task, state.settings.intrinsics)


def _tiled(state: State, s: Schedule, step: str, factors: KnobFactors, staged: Staged, tile: ThreadBlockTile) -> State:
    """The state with a tiled stage, whose limits are conditions."""
    assert isinstance(state.task.target, CudaTarget)
    limits = tile_limits(s.program, staged.block, tile, state.task.target)
    after = state.advance(s, step, knobs=factors.knobs)
    todo = tuple(n for n in after.todo if n in s.program.blocks)
    return replace(after, todo=todo, conditions=(*state.conditions, *limits))


class RowsInBlocks(Rule):
    """One kernel for all stages of a program of rows: a block for a row or some rows."""

    def applies(self, state: State, block: str) -> Answer:
        """For the last stage, before any other is scheduled."""
        assert isinstance(state.task.target, CudaTarget)
        first = not state.steps and block == list(state.program.blocks)[-1]
        return Answer.APPLY if first and can_share_rows(state.program, state.task.target) else Answer.SKIP

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The whole program, with nothing left to visit."""
        assert isinstance(state.task.target, CudaTarget)
        s, factors = Schedule(state.program), state.factors()
        try:
            limits = share_rows(s, factors.menu, state.task.target)
        except ScheduleError:
            return
        after = state.advance(s, "rows", knobs=factors.knobs)
        yield replace(after, todo=(), conditions=(*state.conditions, *limits))


class CrossThreadReduction(Rule):
    """A block for every sum, which its threads add up together."""

    def applies(self, state: State, block: str) -> Answer:
        """For a long sum of a stage that no block runs yet."""
        wanted = block in unbound(state.program) and can_share_sums(state.program, block)
        return Answer.APPLY if wanted else Answer.SKIP

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The stage with its sums shared by threads."""
        s, factors = Schedule(state.program), state.factors()
        try:
            share_sums(s, block, factors.menu)
        except ScheduleError:
            return
        yield state.advance(s, f"threads({block})", knobs=factors.knobs)


GPU_RULES: tuple[Rule, ...] = (
    RowsInBlocks(),
    Inline(),
    TileCallsOfWarps(),
    CrossThreadReduction(),
    TileForBlocks(),
    Skip(),
)


def finish_for_gpu(state: State) -> Sketch:
    """A thread for every element of the stages that no rule has scheduled."""
    s, factors = Schedule(state.program), state.factors()
    bind_rest(s, factors.menu)
    return Sketch(state.name, tuple(factors.knobs), state.conditions, s.program)
