"""Schedule: the primitives as methods, each of which replaces the current program and returns the names it creates.

s = Schedule(workload.program)
i, j, k = s.loops("C")
i0, i1 = s.split(i, [None, 6], tail=True)
s.vectorize(j)
program = s.program
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from searchlab.ir.expr import Like
from searchlab.ir.program import Program
from searchlab.schedule.layout import Map
from searchlab.schedule.primitive import PRIMITIVES, loops_around


class Schedule:
    """A program being scheduled; every method applies the primitive of the same name."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def __str__(self) -> str:
        return str(self.program)

    def loops(self, block: str) -> list[str]:
        """Names of the loops around a block, outermost first."""
        return [lp.name for lp in loops_around(self.program, block)]

    def _do(self, primitive: str, /, *args: Any, **kwargs: Any) -> tuple[str, ...]:
        self.program = PRIMITIVES[primitive](self.program, *args, **kwargs)
        made: tuple[str, ...] = self.program.trace[-1].made
        return made

    def split(
        self, loop: str, factors: Sequence[Like | None], names: Sequence[str] | None = None, tail: bool = False
    ) -> list[str]:
        """Split a loop; returns the names of the new loops, outermost first."""
        return list(self._do("split", loop, factors, names, tail))

    def fuse(self, *loops: str, name: str | None = None) -> str:
        """Fuse nested loops into one; returns its name."""
        return self._do("fuse", *loops, name=name)[0]

    def reorder(self, *loops: str) -> None:
        """Reorder the loops of one nest."""
        self._do("reorder", *loops)

    def vectorize(self, *loops: str) -> None:
        """Execute loops in the lanes of vector registers."""
        for lp in loops:
            self._do("vectorize", lp)

    def unroll(self, *loops: str) -> None:
        """Unroll loops."""
        for lp in loops:
            self._do("unroll", lp)

    def parallel(self, loop: str) -> None:
        """Distribute the iterations of a loop over threads."""
        self._do("parallel", loop)

    def bind(self, loop: str, axis: str) -> None:
        """Bind a loop to a GPU thread axis."""
        self._do("bind", loop, axis)

    def choose_kind(self, loop: str, kinds: Sequence[str], choice: Like) -> None:
        """Make the kind of a loop depend on a symbol."""
        self._do("choose_kind", loop, kinds, choice)

    def annotate(self, target: str, key: str, value: Any) -> None:
        """Attach an annotation to a loop or block."""
        self._do("annotate", target, key, value)

    def cache_read(self, block: str, buffer: str, scope: str = "local", name: str | None = None) -> str:
        """Let a block read a copy; returns the name of the copying block, which is also that of the copy."""
        return self._do("cache_read", block, buffer, scope, name)[0]

    def cache_write(self, block: str, buffer: str | None = None, scope: str = "local", name: str | None = None) -> str:
        """Let a block write a copy; returns the name of the block that copies it back."""
        return self._do("cache_write", block, buffer, scope, name)[0]

    def prefetch(self, block: str, buffer: str, loop: str, distance: Like) -> None:
        """Prefetch what a block reads, some iterations of a loop ahead."""
        self._do("prefetch", block, buffer, loop, distance)

    def compute_at(self, block: str, loop: str) -> None:
        """Move a stage into a loop of its consumer."""
        self._do("compute_at", block, loop)

    def reverse_compute_at(self, block: str, loop: str, rounded: bool = False) -> None:
        """Move a stage into a loop of its producer."""
        self._do("reverse_compute_at", block, loop, *([rounded] if rounded else ()))

    def compute_inline(self, block: str) -> None:
        """Inline a stage into its consumers."""
        self._do("compute_inline", block)

    def reverse_compute_inline(self, block: str) -> None:
        """Inline an elementwise consumer into its producer."""
        self._do("reverse_compute_inline", block)

    def rfactor(self, loop: str, axis: int = 0, name: str | None = None) -> str:
        """Factor a reduction; returns the name of the block (and buffer) of partial results."""
        return self._do("rfactor", loop, axis, name)[0]

    def decompose_reduction(self, block: str, loop: str) -> str:
        """Separate the init of a reduction; returns the name of the block that initialises the output."""
        return self._do("decompose_reduction", block, loop)[0]

    def commute(self, block: str) -> None:
        """Exchange the factors of the product that a block adds up."""
        self._do("commute", block)

    def transform_layout(self, buffer: str, mapping: Map) -> None:
        """Change the layout of a buffer."""
        self._do("transform_layout", buffer, mapping)

    def widen(self, buffer: str, dtype: str) -> None:
        """Hold the elements of a buffer in a wider type."""
        self._do("widen", buffer, dtype)

    def pad(self, block: str, multiples: Mapping[str, Like]) -> None:
        """Round a block's iteration domain up to multiples."""
        self._do("pad", block, multiples)

    def round_up(self, block: str, multiples: dict[str, Like]) -> None:
        """Round a block's iteration domain up to multiples where its operands have room."""
        self._do("round_up", block, multiples)

    def unpad(self, block: str) -> None:
        """Take back the padding of a block."""
        self._do("unpad", block)

    def decompose_padding(self, block: str, loop: str) -> str:
        """Separate a padding stage; returns the name of the block that fills with the pad value."""
        return self._do("decompose_padding", block, loop)[0]

    def reindex(self, block: str, buffer: str, name: str | None = None) -> str:
        """Let a block index an operand by its iteration variables; returns the name of the copying block."""
        return self._do("reindex", block, buffer, name)[0]

    def transform_block_layout(self, block: str, mapping: Map, names: Sequence[str] | None = None) -> list[str]:
        """Replace the iteration variables of a block; returns the names of its new loops."""
        return list(self._do("transform_block_layout", block, mapping, names))

    def blockize(self, loop: str, name: str | None = None) -> str:
        """Wrap a loop into a block; returns its name."""
        return self._do("blockize", loop, name)[0]

    def tensorize(self, target: str, intrinsic: str, ranges: Mapping[str, Sequence[int]] | None = None) -> str:
        """Replace a loop nest by a hardware instruction; returns the name of the block around it."""
        made = self._do("tensorize", target, intrinsic, ranges)
        return made[0] if made else target
