"""The derivation rules that schedule stages as loops, and all rules in their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from searchlab.schedule import Schedule
from searchlab.tactics import (
    Panel,
    fuse_reader,
    lies_side_by_side,
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
    feeds_calls,
    fusible_consumer,
    needs_tiling,
    reader_or_copy,
    strictly_inlinable,
    wants_rfactor,
)
from spaces.sketch.calling import TileCalls
from spaces.sketch.rule import Answer, Rule
from spaces.sketch.state import Fused, State


class Inline(Rule):
    """Inlines a cheap elementwise stage into its consumers."""

    def applies(self, state: State, block: str) -> Answer:
        """For a cheap elementwise stage that no call of an intrinsic reads; no later rule is tried."""
        wanted = strictly_inlinable(state.program, block) and not feeds_calls(state.program, block)
        return Answer.APPLY_AND_SKIP_REST if wanted else Answer.SKIP

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The stage inlined."""
        s = Schedule(state.program)
        s.compute_inline(block)
        yield state.advance(s)


class Rfactor(Rule):
    """Factors a reduction with a small output: partial results for its outer or its inner iterations."""

    def applies(self, state: State, block: str) -> Answer:
        """For a reduction that offers more parallelism than its output."""
        wanted = wants_rfactor(state.program, block, state.task.target.threads)
        return Answer.APPLY if wanted and not _is_cached(state, block) else Answer.SKIP

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The reduction factored over its outer, then over its inner iterations."""
        parts: tuple[Literal["outer", "inner"], ...] = ("outer", "inner")
        for part in parts:
            s, factors = Schedule(state.program), state.factors()
            rfactor(s, block, part, factors)
            yield state.advance(s, f"rfactor_{part}({block})", knobs=factors.knobs)


class CacheWrite(Rule):
    """Adds a write cache to a stage without a fusible consumer; the stage is then visited again, with a consumer."""

    def applies(self, state: State, block: str) -> Answer:
        """For a stage to be tiled that has no fusible consumer."""
        wanted = needs_tiling(state.program, block) and fusible_consumer(state.program, block) is None
        return Answer.APPLY if wanted and not _is_cached(state, block) else Answer.SKIP

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The stage with a write cache, to be visited again."""
        s = Schedule(state.program)
        s.cache_write(block)
        yield state.stay(s, "cache")


class TileAndFuse(Rule):
    """Multi-level tiling, with the elementwise consumer after the first or the second level of spatial loops."""

    def applies(self, state: State, block: str) -> Answer:
        """For a stage to be tiled that has an elementwise consumer."""
        if not needs_tiling(state.program, block) or fusible_consumer(state.program, block) is None:
            return Answer.SKIP
        return Answer.APPLY_AND_SKIP_REST if _is_cached(state, block) else Answer.APPLY

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The stage tiled, with its consumer at the first level, then at the second."""
        for number in (1, 2):
            yield tile_and_fuse(state, block, number)


class Tile(Rule):
    """Multi-level tiling alone."""

    def applies(self, state: State, block: str) -> Answer:
        """For a stage with data reuse; no later rule is tried."""
        return Answer.APPLY_AND_SKIP_REST if needs_tiling(state.program, block) else Answer.SKIP

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The stage tiled."""
        s, factors = Schedule(state.program), state.factors()
        tiles = parallel_outer(s, tile(s, block, state.settings.structure, factors))
        yield state.advance(s, "tile", knobs=factors.knobs, tiles=tiles)


class PackWeights(Rule):
    """Tiling with a constant operand stored in panels ahead of time."""

    ahead = True

    def applies(self, state: State, block: str) -> Answer:
        """For a stage to be tiled, one of whose operands can be packed."""
        if not needs_tiling(state.program, block) or _is_cached(state, block):
            return Answer.SKIP
        found = panel(state.program, block)
        return Answer.APPLY if found is not None and self.accepts(state, found) else Answer.SKIP

    def accepts(self, state: State, found: Panel) -> bool:
        """Whether the operand is constant."""
        return found.buffer in state.task.weights

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The stage tiled along panels, alone or with its consumer at the first or second level."""
        found = panel(state.program, block)
        assert found is not None
        if lies_side_by_side(Schedule(state.program), block, found) and fusible_consumer(state.program, block) is None:
            yield self.tile_and_pack(state, block, found)
            return
        for number in (1, 2):
            yield self.tile_and_pack(state, block, found, number)

    def tile_and_pack(self, state: State, block: str, found: Panel, number: int | None = None) -> State:
        """The stage tiled along the panels, with its consumer fused at a level of spatial loops if one is given."""
        s, factors = Schedule(state.program), state.factors()
        fused = None if number is None else (reader_or_copy(s, block), number)
        tiles, copy = tile_along_panels(s, block, state.settings.structure, factors, found, self.ahead, fused)
        label = ("layout" if self.ahead else "pack") + ("" if fused is None else f"-fuse{number}")
        after = state.advance(s, label, knobs=factors.knobs, tiles=tiles)
        if fused is not None:
            after = replace(after, fused=(*state.fused, Fused(fused[0], tiles)))
        return after if self.ahead else replace(after, packed=(*state.packed, (copy, found)))


class PackOperand(PackWeights):
    """Tiling with an operand that a packing stage copies into panels while the kernel runs."""

    ahead = False

    def accepts(self, state: State, found: Panel) -> bool:
        """Every operand can be copied."""
        return True


class CollapseAndPack(Rule):
    """Tiling with collapsed trailing axes and a packed operand: a 1x1 convolution becomes a matmul of pixels."""

    def applies(self, state: State, block: str) -> Answer:
        """For a stage to be tiled, without a fusible consumer, whose trailing axes can be collapsed."""
        alone = fusible_consumer(state.program, block) is None and not _is_cached(state, block)
        wanted = alone and needs_tiling(state.program, block) and trailing(state.program, block) is not None
        return Answer.APPLY if wanted else Answer.SKIP

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The stage with collapsed axes, tiled along the panels of their operand."""
        s, factors = Schedule(state.program), state.factors()
        found = trailing(s.program, block)
        assert found is not None
        tiles, copy, panel = tile_collapsed(s, block, state.settings.structure, factors, found)
        after = state.advance(s, "collapse", knobs=factors.knobs, tiles=tiles)
        yield replace(after, packed=(*state.packed, (copy, panel)))


class CollapseInPlace(CollapseAndPack):
    """The same without packing: vectors of pixels are contiguous as they lie, and rows may not be worth a copy."""

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The stage with collapsed axes, tiled."""
        s, factors = Schedule(state.program), state.factors()
        found = trailing(s.program, block)
        assert found is not None
        tiles = tile_in_place(s, block, state.settings.structure, factors, found)
        yield state.advance(s, "collapse-in-place", knobs=factors.knobs, tiles=tiles)


class Skip(Rule):
    """Leaves a stage unchanged."""

    def applies(self, state: State, block: str) -> Answer:
        """Always."""
        return Answer.APPLY

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The state, moved on to its next stage."""
        yield state.advance(Schedule(state.program))


def tile_and_fuse(state: State, block: str, number: int) -> State:
    """Tiles a stage, with its elementwise consumer at the end of a level of spatial loops, counted from 1."""
    s, factors = Schedule(state.program), state.factors()
    reader = fusible_consumer(s.program, block)
    assert reader is not None
    tiles = parallel_outer(s, tile(s, block, state.settings.structure, factors))
    fuse_reader(s, reader, tiles, number)
    after = state.advance(s, f"tile-fuse{number}", knobs=factors.knobs, tiles=tiles)
    return replace(after, fused=(*state.fused, Fused(reader, tiles)))


def _is_cached(state: State, block: str) -> bool:
    """Whether the stage writes to a buffer created by cache_write."""
    return state.program.buffers[state.program.blocks[block].store.buffer].scope != "global"


DEFAULT_RULES: tuple[Rule, ...] = (
    Inline(),
    Rfactor(),
    TileCalls(),
    PackWeights(),
    PackOperand(),
    CollapseAndPack(),
    CollapseInPlace(),
    CacheWrite(),
    TileAndFuse(),
    Tile(),
    Skip(),
)
