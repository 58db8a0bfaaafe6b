"""Schedule: the primitives as methods on a program that is replaced step by step, returning the names they made.

s = Schedule(workload.program)
i, j, k = s.loops("C")
i0, i1 = s.split(i, [None, 6], tail=True)
s.vectorize(j)
program = s.program
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from searchlab.ir.expr import Like
from searchlab.ir.program import Program
from searchlab.schedule.layout import Map
from searchlab.schedule.primitive import PRIMITIVES, loops_around


class Schedule:
    """A program under construction; every method is the primitive of the same name."""

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
        """Divide a loop; the names of the new ones, outermost first."""
        return list(self._do("split", loop, factors, names, tail))

    def fuse(self, *loops: str, name: str | None = None) -> str:
        """Make one loop of several; its name."""
        return self._do("fuse", *loops, name=name)[0]

    def reorder(self, *loops: str) -> None:
        """Put loops of one nest into the given order."""
        self._do("reorder", *loops)

    def vectorize(self, *loops: str) -> None:
        """Run loops in the lanes of vector registers."""
        for lp in loops:
            self._do("vectorize", lp)

    def unroll(self, *loops: str) -> None:
        """Write loops out."""
        for lp in loops:
            self._do("unroll", lp)

    def parallel(self, loop: str) -> None:
        """Share a loop's iterations among threads."""
        self._do("parallel", loop)

    def bind(self, loop: str, axis: str) -> None:
        """Let the threads of a GPU axis run a loop."""
        self._do("bind", loop, axis)

    def choose_kind(self, loop: str, kinds: Sequence[str], choice: Like) -> None:
        """Leave a loop's kind to a symbol."""
        self._do("choose_kind", loop, kinds, choice)

    def annotate(self, target: str, key: str, value: Any) -> None:
        """Attach a note to a loop or block."""
        self._do("annotate", target, key, value)

    def cache_read(self, block: str, buffer: str, scope: str = "local", name: str | None = None) -> str:
        """The name of the copying block, which is also the name of the copy."""
        return self._do("cache_read", block, buffer, scope, name)[0]

    def cache_write(self, block: str, buffer: str | None = None, scope: str = "local", name: str | None = None) -> str:
        """The name of the block that copies out."""
        return self._do("cache_write", block, buffer, scope, name)[0]

    def prefetch(self, block: str, buffer: str, loop: str, distance: Like) -> None:
        """Bring what a block reads near, some iterations of a loop ahead."""
        self._do("prefetch", block, buffer, loop, distance)

    def compute_at(self, block: str, loop: str) -> None:
        """Move a stage into a loop of its reader."""
        self._do("compute_at", block, loop)

    def reverse_compute_at(self, block: str, loop: str) -> None:
        """Move a stage into a loop of what it reads."""
        self._do("reverse_compute_at", block, loop)

    def compute_inline(self, block: str) -> None:
        """Put a stage's value in place of its reads."""
        self._do("compute_inline", block)

    def reverse_compute_inline(self, block: str) -> None:
        """Apply an elementwise reader where its input is made."""
        self._do("reverse_compute_inline", block)

    def rfactor(self, loop: str, axis: int = 0, name: str | None = None) -> str:
        """The name of the block (and buffer) of partial results."""
        return self._do("rfactor", loop, axis, name)[0]

    def decompose_reduction(self, block: str, loop: str) -> str:
        """The name of the block that sets the output."""
        return self._do("decompose_reduction", block, loop)[0]

    def transform_layout(self, buffer: str, mapping: Map) -> None:
        """Store a buffer in another order."""
        self._do("transform_layout", buffer, mapping)

    def pad(self, block: str, multiples: dict[str, Like]) -> None:
        """Round a block's iteration domain up to multiples."""
        self._do("pad", block, multiples)

    def blockize(self, loop: str, name: str | None = None) -> str:
        """The name of the new block."""
        return self._do("blockize", loop, name)[0]
