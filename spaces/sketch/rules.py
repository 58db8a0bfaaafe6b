"""Derivation rules: each looks at one stage of a state and gives the states that may follow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import Enum
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
    trailing,
)
from spaces.common import fusible_consumer, needs_tiling, reader_or_copy, strictly_inlinable, wants_rfactor
from spaces.sketch.state import Fused, State


class Answer(Enum):
    """Whether a rule is used on a stage, and whether the rules after it still are."""

    SKIP = "skip"
    APPLY = "apply"
    APPLY_AND_SKIP_REST = "apply and skip the rest"


class Rule(ABC):
    """One way to deal with a stage."""

    @abstractmethod
    def applies(self, state: State, block: str) -> Answer:
        """Whether the rule is used on the stage `block`, the next one to be visited."""

    @abstractmethod
    def apply(self, state: State, block: str) -> Iterable[State]:
        """The states that follow; `state.advance` goes on to the next stage."""


class Inline(Rule):
    """A cheap elementwise stage becomes part of what reads it."""

    def applies(self, state: State, block: str) -> Answer:
        """On a cheap elementwise stage; no later rule is tried."""
        return Answer.APPLY_AND_SKIP_REST if strictly_inlinable(state.program, block) else Answer.SKIP

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The stage inlined."""
        s = Schedule(state.program)
        s.compute_inline(block)
        yield state.advance(s)


class Rfactor(Rule):
    """A reduction with little space keeps partial results, for its outer iterations or its inner ones."""

    def applies(self, state: State, block: str) -> Answer:
        """On a reduction with more to share than its output."""
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
    """A stage without a reader to fuse with writes to a copy first; the stage is then visited again, with a reader."""

    def applies(self, state: State, block: str) -> Answer:
        """On a stage to be tiled that has no reader to fuse with."""
        wanted = needs_tiling(state.program, block) and fusible_consumer(state.program, block) is None
        return Answer.APPLY if wanted and not _is_cached(state, block) else Answer.SKIP

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The stage with a copy to write to, to be visited again."""
        s = Schedule(state.program)
        s.cache_write(block)
        yield state.stay(s, "cache")


class TileAndFuse(Rule):
    """Multi-level tiling, with the elementwise reader at the end of the first or the second level of space loops."""

    def applies(self, state: State, block: str) -> Answer:
        """On a stage to be tiled that has an elementwise reader."""
        if not needs_tiling(state.program, block) or fusible_consumer(state.program, block) is None:
            return Answer.SKIP
        return Answer.APPLY_AND_SKIP_REST if _is_cached(state, block) else Answer.APPLY

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The stage tiled, with its reader at the first level, then at the second."""
        for number in (1, 2):
            yield tile_and_fuse(state, block, number)


class Tile(Rule):
    """Multi-level tiling alone."""

    def applies(self, state: State, block: str) -> Answer:
        """On a stage that reads elements again and again; no later rule is tried."""
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
        """On a stage to be tiled, one of whose operands can be packed."""
        if not needs_tiling(state.program, block) or _is_cached(state, block):
            return Answer.SKIP
        found = panel(state.program, block)
        return Answer.APPLY if found is not None and self.accepts(state, found) else Answer.SKIP

    def accepts(self, state: State, found: Panel) -> bool:
        """Whether the operand is constant."""
        return found.buffer in state.task.weights

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The stage tiled along panels, alone or with its reader at the first or second level."""
        found = panel(state.program, block)
        assert found is not None
        if lies_side_by_side(Schedule(state.program), block, found) and fusible_consumer(state.program, block) is None:
            yield self.tile_and_pack(state, block, found)
            return
        for number in (1, 2):
            yield self.tile_and_pack(state, block, found, number)

    def tile_and_pack(self, state: State, block: str, found: Panel, number: int | None = None) -> State:
        """The stage tiled along the panels, its reader fused at a level of space loops if one is given."""
        s, factors = Schedule(state.program), state.factors()
        fused = None if number is None else (reader_or_copy(s, block), number)
        tiles, copy = tile_along_panels(s, block, state.settings.structure, factors, found, self.ahead, fused)
        label = ("layout" if self.ahead else "pack") + ("" if fused is None else f"-fuse{number}")
        after = state.advance(s, label, knobs=factors.knobs, tiles=tiles)
        if fused is not None:
            after = replace(after, fused=(*state.fused, Fused(fused[0], tiles)))
        return after if self.ahead else replace(after, packed=(*state.packed, (copy, found)))


class PackOperand(PackWeights):
    """Tiling with an operand that a stage of its own copies into panels while the kernel runs."""

    ahead = False

    def accepts(self, state: State, found: Panel) -> bool:
        """Every operand can be copied."""
        return True


class CollapseAndPack(Rule):
    """Tiling with trailing axes in one and their operand in panels: a 1x1 convolution becomes a matmul of pixels."""

    def applies(self, state: State, block: str) -> Answer:
        """On a stage to be tiled, without a reader to fuse with, whose trailing axes can be collapsed."""
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


class Skip(Rule):
    """A stage that is left as it is."""

    def applies(self, state: State, block: str) -> Answer:
        """Always."""
        return Answer.APPLY

    def apply(self, state: State, block: str) -> Iterator[State]:
        """The state at its next stage."""
        yield state.advance(Schedule(state.program))


def tile_and_fuse(state: State, block: str, number: int) -> State:
    """A stage tiled, with its elementwise reader at the end of the first, second, ... level of space loops."""
    s, factors = Schedule(state.program), state.factors()
    reader = fusible_consumer(s.program, block)
    assert reader is not None
    tiles = parallel_outer(s, tile(s, block, state.settings.structure, factors))
    fuse_reader(s, reader, tiles, number)
    after = state.advance(s, f"tile-fuse{number}", knobs=factors.knobs, tiles=tiles)
    return replace(after, fused=(*state.fused, Fused(reader, tiles)))


def _is_cached(state: State, block: str) -> bool:
    """Whether the stage writes to a copy that cache_write has made."""
    return state.program.buffers[state.program.blocks[block].store.buffer].scope != "global"


DEFAULT_RULES: tuple[Rule, ...] = (
    Inline(),
    Rfactor(),
    PackWeights(),
    PackOperand(),
    CollapseAndPack(),
    CacheWrite(),
    TileAndFuse(),
    Tile(),
    Skip(),
)
