"""The schedule rule that tiles a product around calls of a tensor intrinsic, with drawn tile sizes."""

from __future__ import annotations

from collections.abc import Iterable

from searchlab.ir.expr import TRUE
from searchlab.tactics import IntrinsicView, results_are_in_order, structure_around, tile_for_calls
from spaces.common import fusible_consumer, loops_compete, reader_or_copy, searched_views
from spaces.probabilistic.schedule import ProbabilisticSchedule
from spaces.probabilistic.schedule_rule import INNERMOST, ScheduleRule, drawn_factors


class CallTiling(ScheduleRule):
    """Tiles around calls of an intrinsic, with operands laid out for them: a constant one ahead of time or by a stage.

    The results of a tile are written out at the end of a level of space loops, by the elementwise reader of the stage
    or by a copy; calls that write to neighbouring elements of the output need neither.
    """

    def __init__(self, structure: str = "SSRSRS", max_innermost: int = INNERMOST, levels: tuple[int, ...] = (1, 2)):
        self.structure, self.max_innermost, self.levels = structure, max_innermost, levels

    def apply(self, s: ProbabilisticSchedule, block: str) -> Iterable[ProbabilisticSchedule]:
        """The stage tiled around calls in every way; the schedule as it is, too, unless loops are hopeless."""
        views = searched_views(s.program, block, s.task, s.intrinsics)
        found = [s] if loops_compete(views) else []
        for view in views:
            for ahead in (True, False) if view.weight.buffer in s.task.weights else (False,):
                found += [self.called(s.copy(), view, ahead, level) for level in self.levels_of(s, view)]
        return found

    def levels_of(self, s: ProbabilisticSchedule, view: IntrinsicView) -> tuple[int | None, ...]:
        """The levels at which results are written out; None if calls do that."""
        if fusible_consumer(s.program, view.block) is None and results_are_in_order(s, view):
            return (None,)
        return self.levels[: structure_around(self.structure, view).count("S")]

    def called(
        self, s: ProbabilisticSchedule, view: IntrinsicView, ahead: bool, level: int | None
    ) -> ProbabilisticSchedule:
        """The stage tiled around calls, its results written out at a level of space loops if one is given."""
        fused = None if level is None else (reader_or_copy(s, view.block), level)
        before = set(s.program.blocks)
        factors, exact = drawn_factors(self.max_innermost), drawn_factors(self.max_innermost, exact=True)
        made = tile_for_calls(s, view, self.structure, factors, exact, s.task.target, ahead, fused)
        if made.fits != TRUE:
            s.require(made.fits)
        label = "layout" if ahead else "pack"
        s.steps += [f"calls({view.intrinsic.name})", label if level is None else f"{label}-fuse{level}"]
        copies = tuple((c, None) for c in made.copies if c not in before)
        s.tiled(made.tiles, None if fused is None else fused[0], copies)
        return s
