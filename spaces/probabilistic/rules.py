"""The schedule rules that schedule stages as loops, and all rules in their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from searchlab.errors import SpaceError
from searchlab.named import Named
from searchlab.schedule import Schedule
from searchlab.tactics import (
    Panel,
    Trailing,
    attempt,
    fuse_reader,
    goes_row_by_row,
    lies_side_by_side,
    operands,
    panel,
    parallel_outer,
    rfactor,
    tile,
    tile_along_panels,
    tile_collapsed,
    tile_in_place,
    trailing,
)
from spaces.common import (
    fusible_consumer,
    locations,
    needs_tiling,
    reader_or_copy,
    strictly_inlinable,
    wants_rfactor,
)
from spaces.probabilistic.calling import CallTiling
from spaces.probabilistic.schedule import ProbabilisticSchedule
from spaces.probabilistic.schedule_rule import INNERMOST, ScheduleRule, drawn_factors

CUSTOM = "schedule_rule"  # the annotation of a block that wants a rule of its own
VECTORIZE, UNROLL, AHEAD = "vectorize", "unroll", "ahead"  # notes for the post-processor that carries them out


class CustomRule(ScheduleRule):
    """A block annotated with `schedule_rule`="module:function" is scheduled by that function and by nothing else.

    The function takes the schedule and the block's name, and returns schedules as a rule does.
    """

    def apply(self, s: ProbabilisticSchedule, block: str) -> Iterable[ProbabilisticSchedule]:
        """The schedules that the block's own function returns, if it names one."""
        wanted = dict(s.program.blocks[block].annotations).get(CUSTOM)
        if wanted is None:
            return [s]
        before = set(s.program.blocks)
        named = Named(str(wanted), f"custom rule '{wanted}'", SpaceError)
        made = list(named.function(ProbabilisticSchedule, takes=("s", "block"))(s, block))
        for after in made:
            after.keep(block, *(set(after.program.blocks) - before))
        return made


class InlineConstants(ScheduleRule):
    """A stage that reads nothing is written out where it is used."""

    def apply(self, s: ProbabilisticSchedule, block: str) -> Iterable[ProbabilisticSchedule]:
        """The schedule with the stage inlined, if it reads nothing."""
        b = s.program.blocks[block]
        if not operands(b) and not b.reduces and b.store.buffer not in s.program.outputs:
            attempt(s.compute_inline, block)
        return [s]


class AutoInline(ScheduleRule):
    """A cheap elementwise stage becomes part of what reads it."""

    def apply(self, s: ProbabilisticSchedule, block: str) -> Iterable[ProbabilisticSchedule]:
        """The schedule with the stage inlined, if it is cheap."""
        if strictly_inlinable(s.program, block):
            s.compute_inline(block)
        return [s]


class AddRFactor(ScheduleRule):
    """A reduction with little space may keep partial results, for its outer iterations or its inner ones."""

    def apply(self, s: ProbabilisticSchedule, block: str) -> Iterable[ProbabilisticSchedule]:
        """The schedule as it is and, where that may pay, both ways to factor the reduction."""
        found = [s]
        if wants_rfactor(s.program, block, s.task.target.threads):
            parts: tuple[Literal["outer", "inner"], ...] = ("outer", "inner")
            for part in parts:
                s = found[0].copy()
                partial = rfactor(s, block, part, drawn_factors())
                s.steps.append(f"rfactor_{part}({block})")
                s.finished(block, partial)
                found.append(s)
        return found


class MultiLevelTiling(ScheduleRule):
    """Tiles by a structure, alone or with the results of a tile written out at the end of a level of space loops.

    What writes them out is the elementwise reader of the stage or, if it has none, a copy.  That makes the three
    variants of a write cache that may be there, at level 1 or 2.
    """

    def __init__(self, structure: str = "SSRSRS", max_innermost: int = INNERMOST, levels: tuple[int, ...] = (1, 2)):
        self.structure, self.max_innermost, self.levels = structure, max_innermost, levels

    def apply(self, s: ProbabilisticSchedule, block: str) -> Iterable[ProbabilisticSchedule]:
        """The stage tiled, alone and with its results written out at each of the levels."""
        if not needs_tiling(s.program, block):
            return [s]
        return [self.tiled(s.copy(), block, level) for level in (None, *self.levels)]

    def tiled(self, s: ProbabilisticSchedule, block: str, level: int | None) -> ProbabilisticSchedule:
        """The stage tiled, its reader (or a copy of its results) at a level of space loops if one is given."""
        if level is not None and fusible_consumer(s.program, block) is None:
            s.steps.append("cache")
        reader = None if level is None else reader_or_copy(s, block)
        tiles = parallel_outer(s, tile(s, block, self.structure, drawn_factors(self.max_innermost)))
        if reader is not None and level is not None:
            fuse_reader(s, reader, tiles, level)
        s.steps.append("tile" if level is None else f"tile-fuse{level}")
        s.tiled(tiles, reader)
        return s


class WeightPanelTiling(MultiLevelTiling):
    """Tiles along the panels of a constant operand, which is packed before the kernel runs."""

    ahead = True

    def accepts(self, s: ProbabilisticSchedule, found: Panel) -> bool:
        """Whether the operand is constant."""
        return found.buffer in s.task.weights

    def apply(self, s: ProbabilisticSchedule, block: str) -> Iterable[ProbabilisticSchedule]:
        """The schedule as it is and, where an operand can be packed, tiled along its panels."""
        found = panel(s.program, block) if needs_tiling(s.program, block) else None
        if found is None or not self.accepts(s, found):
            return [s]
        alone = lies_side_by_side(s, block, found) and fusible_consumer(s.program, block) is None
        levels = (None,) if alone else self.levels
        return [s, *(self.packed(s.copy(), block, found, level) for level in levels)]

    def packed(self, s: ProbabilisticSchedule, block: str, found: Panel, level: int | None) -> ProbabilisticSchedule:
        """The stage tiled along panels; results whose vectors do not lie side by side are put in order when written."""
        fused = None if level is None else (reader_or_copy(s, block), level)
        factors = drawn_factors(self.max_innermost)
        tiles, copy = tile_along_panels(s, block, self.structure, factors, found, self.ahead, fused)
        label = "layout" if self.ahead else "pack"
        s.steps.append(label if level is None else f"{label}-fuse{level}")
        s.tiled(tiles, None if fused is None else fused[0], () if self.ahead else ((copy, found),))
        return s


class OperandPanelTiling(WeightPanelTiling):
    """The same for any operand, which a stage of its own copies into panels while the kernel runs."""

    ahead = False

    def accepts(self, s: ProbabilisticSchedule, found: Panel) -> bool:
        """Every operand can be copied."""
        return True


class CollapsedPanelTiling(MultiLevelTiling):
    """Trailing axes in one and their operand in panels, then tiles: a 1x1 convolution becomes a matmul of pixels."""

    def apply(self, s: ProbabilisticSchedule, block: str) -> Iterable[ProbabilisticSchedule]:
        """The schedule as it is and, where trailing axes can be collapsed, tiled that way."""
        alone = fusible_consumer(s.program, block) is None and needs_tiling(s.program, block)
        found = trailing(s.program, block) if alone else None
        return [s] if found is None else [s, self.collapsed(s.copy(), block, found)]

    def collapsed(self, s: ProbabilisticSchedule, block: str, found: Trailing) -> ProbabilisticSchedule:
        """The stage tiled along panels of its trailing axes."""
        tiles, copy, panels = tile_collapsed(s, block, self.structure, drawn_factors(self.max_innermost), found)
        s.steps.append("collapse")
        s.tiled(tiles, packed=((copy, panels),))
        return s


class CollapsedTiling(CollapsedPanelTiling):
    """The same without packing: vectors along the trailing axes read their operand as it lies."""

    def collapsed(self, s: ProbabilisticSchedule, block: str, found: Trailing) -> ProbabilisticSchedule:
        """The stage tiled along its trailing axes."""
        tiles = tile_in_place(s, block, self.structure, drawn_factors(self.max_innermost), found)
        s.steps.append("collapse-in-place")
        s.tiled(tiles)
        return s


class ParallelizeVectorizeUnroll(ScheduleRule):
    """Draws how far reductions are unrolled, and asks for threads and vectors; a post-processor carries that out."""

    once = True

    def __init__(self, unroll: tuple[int, ...] = (1, 16, 64, 512), jobs_per_core: int = 16, max_vector: int = 64):
        self.unroll, self.jobs_per_core, self.max_vector = unroll, jobs_per_core, max_vector

    def apply(self, s: ProbabilisticSchedule, block: str) -> Iterable[ProbabilisticSchedule]:
        """The schedule with notes for the post-processor."""
        reductions = [n for n, b in s.program.blocks.items() if b.reduces and n not in s.stages.kept]
        unroll = s.sample_categorical(self.unroll, name=UNROLL)
        for n in reductions or [n for n in [block] if n not in s.stages.kept]:
            s.note(n, UNROLL, unroll)
        s.note(block, "jobs", self.jobs_per_core * s.task.target.threads)
        s.note(block, VECTORIZE, self.max_vector)
        return [s]


class RandomComputeLocation(ScheduleRule):
    """Draws a place for every stage that is neither tiled nor fused into tiles, from the output to the inputs.

    Of more than `most` such stages, all go to the root or all to the same level of what reads them.
    """

    once = True

    def __init__(self, most: int = 3, levels: int = 3):
        self.most, self.levels = most, levels

    def apply(self, s: ProbabilisticSchedule, block: str) -> Iterable[ProbabilisticSchedule]:
        """One schedule for every combination of places, or one whose stages share a drawn level."""
        done = s.stages.kept | {t.block for t in s.stages.tiled} | {b for b, _ in s.stages.fused}
        outputs = s.program.outputs
        free = [n for n, b in s.program.blocks.items() if n not in done and b.store.buffer not in outputs]
        if len(free) > self.most:
            self.together(s, free[::-1])
            return [s]
        states = [s]
        for n in reversed(free):
            states = [placed for state in states for placed in self.everywhere(state, n)]
        return states

    def everywhere(self, s: ProbabilisticSchedule, block: str) -> Iterator[ProbabilisticSchedule]:
        """One stage at each of its places."""
        found = locations(Schedule(s.program), block, s.stages.tiled, self.levels)
        found = found[:2] if block in dict(s.stages.packed) else found
        loops = [x.loop for x in found if x.loop is not None]
        for placed, location in s.each_location(block, loops, any(x.label == "inline" for x in found)):
            placed.compute_at(block, location)
            yield placed

    def together(self, s: ProbabilisticSchedule, free: list[str]) -> None:
        """All stages at a drawn level."""
        level = s.sample_categorical(["root", *range(self.levels)], name="level", structural=True)
        for n in free if level != "root" else []:
            inside = [x.loop for x in locations(Schedule(s.program), n, s.stages.tiled) if x.loop is not None]
            if level < len(inside):
                s.compute_at(n, inside[level])


class FetchAhead(ScheduleRule):
    """Where all stages go row by row, the next row of the inputs may be fetched while this one is worked on."""

    once = True

    def apply(self, s: ProbabilisticSchedule, block: str) -> Iterable[ProbabilisticSchedule]:
        """The schedule as it is and, where that may pay, with a note for the post-processor."""
        if s.steps or not goes_row_by_row(s):
            return [s]
        own = s.copy()
        own.note(block, AHEAD, True)
        own.choices.append(AHEAD)
        return [s, own]


DEFAULT_RULES: tuple[ScheduleRule, ...] = (
    CustomRule(),
    InlineConstants(),
    AutoInline(),
    AddRFactor(),
    CallTiling(),
    WeightPanelTiling(),
    OperandPanelTiling(),
    CollapsedPanelTiling(),
    CollapsedTiling(),
    MultiLevelTiling(),
    ParallelizeVectorizeUnroll(),
    RandomComputeLocation(),
    FetchAhead(),
)
