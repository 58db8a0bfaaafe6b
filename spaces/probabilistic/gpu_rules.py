"""The schedule rules for GPUs: tiles of blocks and threads, sums that threads share, threads for all other elements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from searchlab.errors import ScheduleError
from searchlab.ir.expr import Expr, Like, value_of
from searchlab.tactics import tile_calls_by
from searchlab.tactics.block_tiling import Staged, ThreadBlockTile, levels, stage_for_block, tile_for_blocks
from searchlab.targets import CudaTarget
from spaces.common import (
    Menu,
    bind_rest,
    can_share_rows,
    can_share_sums,
    loops_compete,
    needs_tiling,
    searched_views,
    share_rows,
    share_sums,
    unbound,
)
from spaces.common.threads import CALL_LANES, LANES, tile_limits
from spaces.probabilistic.rules import AutoInline, CustomRule, InlineConstants
from spaces.probabilistic.schedule import ProbabilisticSchedule
from spaces.probabilistic.schedule_rule import INNERMOST, ScheduleRule, drawn_factors


class RowBlocksModule(ScheduleRule):
    """One kernel for all stages of a program of rows: a block for a row or some rows."""

    once = True

    def apply(self, s: ProbabilisticSchedule, block: str) -> Iterable[ProbabilisticSchedule]:
        """The schedule as it is and, for a program of rows, with all stages in one kernel."""
        assert isinstance(s.task.target, CudaTarget)
        if s.stages.done or not can_share_rows(s.program, s.task.target):
            return [s]
        own = s.copy()
        try:
            limits = share_rows(own, _drawn(own), s.task.target)
        except ScheduleError:
            return [s]
        return [s, *_within(own, "rows", limits, own.program.blocks)]


class CrossThreadModule(ScheduleRule):
    """A block for every sum, which its threads add up together."""

    def apply(self, s: ProbabilisticSchedule, block: str) -> Iterable[ProbabilisticSchedule]:
        """The schedule as it is and, for a long sum, with threads that share it."""
        if block not in unbound(s.program) or not can_share_sums(s.program, block):
            return [s]
        own = s.copy()
        try:
            share_sums(own, block, _drawn(own))
        except ScheduleError:
            return [s]
        own.steps.append(f"threads({block})")
        own.finished(block)
        return [s, own]


class WarpCallTiling(ScheduleRule):
    """Tiles by blocks and warps around calls of an intrinsic; operands are copied to shared memory together."""

    def __init__(self, max_innermost: int = INNERMOST) -> None:
        self.max_innermost = max_innermost

    def apply(self, s: ProbabilisticSchedule, block: str) -> Iterable[ProbabilisticSchedule]:
        """The stage tiled around calls; the schedule as it is, too, unless loops are hopeless."""
        unscheduled = block in unbound(s.program)
        views = searched_views(s.program, block, s.task, s.intrinsics) if unscheduled else ()
        found = [s] if loops_compete(views) else []
        for view in views:
            own = s.copy()
            lanes = _drawn(own)(f"{block}_lanes", CALL_LANES)
            staged, tile = tile_calls_by(own, view, drawn_factors(self.max_innermost, exact=True), lanes)
            found += _limited(own, f"calls({view.intrinsic.name})", staged, tile)
        return found


class TileForBlocksModule(ScheduleRule):
    """Tiles by a structure of blocks, virtual threads, threads, steps of the sum and what a thread does by itself.

    Operands are copied to shared memory together, or read where they are.
    """

    def __init__(self, structure: str = "SSSRRSRS", max_innermost: int = INNERMOST) -> None:
        self.structure, self.max_innermost = structure, max_innermost

    def apply(self, s: ProbabilisticSchedule, block: str) -> Iterable[ProbabilisticSchedule]:
        """The schedule as it is and, for a stage with data reuse, tiled in both ways."""
        if block not in unbound(s.program) or not needs_tiling(s.program, block):
            return [s]
        return [s, *self.tiled(s.copy(), block, True), *self.tiled(s.copy(), block, False)]

    def tiled(self, s: ProbabilisticSchedule, block: str, shared: bool) -> list[ProbabilisticSchedule]:
        """The stage tiled, unless its results cannot be kept in threads."""
        try:
            staged = stage_for_block(s, block, shared=shared)
        except ScheduleError:
            return []
        splits = levels(s, staged.block, self.structure, drawn_factors(self.max_innermost))
        lanes = _drawn(s)(f"{block}_lanes", LANES) if shared else 1
        tile = tile_for_blocks(s, staged, splits, lanes)
        return _limited(s, f"{'shared' if shared else 'direct'}({block})", staged, tile)


def _limited(s: ProbabilisticSchedule, step: str, staged: Staged, tile: ThreadBlockTile) -> list[ProbabilisticSchedule]:
    """The schedule with the limits of a tiled stage as conditions."""
    assert isinstance(s.task.target, CudaTarget)
    limits = tile_limits(s.program, staged.block, tile, s.task.target)
    return _within(s, step, limits, (staged.block, staged.reader, *staged.copies))


def _within(
    s: ProbabilisticSchedule, step: str, limits: Iterable[Expr], finished: Iterable[str]
) -> list[ProbabilisticSchedule]:
    """The schedule with conditions and stages that are finished; none if a condition never holds."""
    for limit in limits:
        if value_of(limit) is None:
            s.require(limit)
        elif not value_of(limit):
            return []
    s.steps.append(step)
    s.finished(*finished)
    return [s]


class BindElements(ScheduleRule):
    """A thread for every element of the stages that no block runs."""

    once = True

    def apply(self, s: ProbabilisticSchedule, block: str) -> Iterable[ProbabilisticSchedule]:
        """The schedule with all stages bound, each with a drawn number of threads."""
        bind_rest(s, _drawn(s))
        return [s]


def _drawn(s: ProbabilisticSchedule) -> Menu:
    def menu(name: str, values: Sequence[int]) -> Like:
        found: Like = s.sample_categorical(values, name=name)
        return found

    return menu


GPU_RULES: tuple[ScheduleRule, ...] = (
    CustomRule(),
    InlineConstants(),
    AutoInline(),
    RowBlocksModule(),
    WarpCallTiling(),
    CrossThreadModule(),
    TileForBlocksModule(),
    BindElements(),
)
