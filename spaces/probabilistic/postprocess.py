"""Post-processors: each rewrites a finished schedule or rejects it.

Where validity depends on the numbers that are drawn, a post-processor adds a condition with `require`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from searchlab.ir.expr import Expr, Select, value_of
from searchlab.ir.walk import variables, walk
from searchlab.tactics import (
    fetch_next_rows,
    finish_fused,
    finish_untiled,
    loops_by_kind,
    pack,
    panel,
    read_rows_as_they_lie,
    unroll_up_to,
    vector_width,
    vectorize_tile,
)
from spaces.probabilistic.rules import AHEAD, UNROLL, VECTORIZE
from spaces.probabilistic.schedule import ProbabilisticSchedule
from spaces.probabilistic.schedule_rule import drawn_factors


class Postprocessor(ABC):
    """Runs once per structure, on symbols."""

    @abstractmethod
    def apply(self, s: ProbabilisticSchedule) -> bool:
        """Changes the schedule; False rejects it."""


class DisallowDynamicLoops(Postprocessor):
    """Rejects loops whose extents are known only when the kernel runs."""

    def apply(self, s: ProbabilisticSchedule) -> bool:
        """Rejects programs with such loops."""
        return not any(v.role == "size" for lp in s.program.loops.values() for v in variables(lp.extent))


class RewriteParallelVectorizeUnroll(Postprocessor):
    """Carries out what ParallelizeVectorizeUnroll asked for: threads share the outer loops, lanes the innermost.

    Stages with a branch are written out `with_branches` times at most, since each part that they are cut into is.
    """

    def __init__(self, with_branches: int = 16) -> None:
        self.with_branches = with_branches

    def apply(self, s: ProbabilisticSchedule) -> bool:
        """Gives all stages threads, vectors and limits of unrolling, if these were asked for."""
        asked = {key: value for notes in s.notes.values() for key, value in notes.items()}
        if VECTORIZE not in asked:
            return True
        stages = s.stages
        for tiles in stages.tiled:
            vectorize_tile(s, tiles)
        for block, tiles in stages.fused:
            finish_fused(s, block, tiles)
        for copy, found in stages.packed:
            if found is not None:
                read_rows_as_they_lie(s, copy, found)
        placed = stages.kept | {t.block for t in stages.tiled} | {b for b, _ in stages.fused}
        factors = drawn_factors(asked[VECTORIZE], vectors=not stages.tiled)  # programs of rows are little but vectors
        for block in [b for b in s.program.blocks if b not in placed]:
            finish_untiled(s, block, factors, asked["jobs"])
        if AHEAD in asked:
            fetch_next_rows(s)
        self.unroll(s)
        return True

    def unroll(self, s: ProbabilisticSchedule) -> None:
        """Notes how far stages are written out, and refuses too far."""
        asked = {b: notes[UNROLL] for b, notes in s.notes.items() if UNROLL in notes and b in s.program.blocks}
        for block, copies in asked.items():
            unroll_up_to(s, block, copies)
        branches = any(isinstance(e, Select) for b in asked for e in walk(s.program.blocks[b].store.value))
        for copies in dict.fromkeys(c for c in asked.values() if branches and isinstance(c, Expr)):
            s.require(copies <= self.with_branches)


class RewriteReduction(Postprocessor):
    """Sets the output of reductions before their outermost reduction loop.

    Code generation does that by itself for tiles in registers, so this is not among the defaults.
    """

    def apply(self, s: ProbabilisticSchedule) -> bool:
        """Decomposes every reduction; rejects nothing."""
        for name, b in s.program.blocks.items():
            carried = loops_by_kind(s, name, s.loops(name))[1] if b.init is not None else []
            if carried:
                s.decompose_reduction(name, carried[0])
        return True


class RewriteLayout(Postprocessor):
    """Packs constant operands of tiled stages that no rule has packed; goes before the rewriting of loops."""

    def apply(self, s: ProbabilisticSchedule) -> bool:
        """Packs what can be packed; rejects nothing."""
        given = {la.buffer for la in s.program.layouts}
        for tiles in s.stages.tiled:
            found = panel(s.program, tiles.block)
            free = found is not None and found.buffer in s.task.weights and found.buffer not in given
            if found is not None and free and found.axis == tiles.vector_axis and tiles.vector is not None:
                pack(s, tiles.block, found, vector_width(s, tiles), ahead=True)
        return True


class VerifyTile(Postprocessor):
    """Rejects values that would unroll and vectorise more than `most` elements of one tiled stage at once."""

    def __init__(self, most: int = 4096) -> None:
        self.most = most

    def apply(self, s: ProbabilisticSchedule) -> bool:
        """Limits the innermost tile, by a condition where its size depends on draws."""
        for tiles in s.stages.tiled:
            size: Expr | int = 1
            for loop in tiles.levels[-1]:
                size = s.program.loops[loop].extent * size
            known = value_of(size) if isinstance(size, Expr) else size
            if known is None and isinstance(size, Expr):
                s.require(size <= self.most)
            elif known is not None and known > self.most:
                return False
        return True


DEFAULT_POSTPROCESSORS: tuple[Postprocessor, ...] = (DisallowDynamicLoops(), RewriteParallelVectorizeUnroll())
