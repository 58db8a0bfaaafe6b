"""How a statement goes through a buffer: strides, cache lines, reuse."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property

from searchlab.analysis.graph import Node
from searchlab.analysis.nest import Access, LoopColumns, Nest, Statement, common, plainly
from searchlab.ir.algebra import poly
from searchlab.ir.expr import Expr, Var
from searchlab.ir.walk import iterators

LINE = 64  # bytes of a cache line


@dataclass(frozen=True, eq=False)
class Reuse:
    """Where an element is met again first, from the inside outwards.

    In a loop that does not move the access (`by_loop`), or in another statement of a common loop (`by_statement`), or
    nowhere.  `iterations` and `bytes` lie between, `times` says how often.
    """

    by_loop: Node
    by_statement: Node
    iterations: Node
    bytes: Node
    times: Node


@dataclass(frozen=True)
class AccessColumns:
    """One buffer as one statement uses it."""

    nest: Nest
    statement: Statement
    access: Access

    def moves(self, lp: LoopColumns) -> Node:
        """1 where a loop, running alone, leads to another element."""
        return self._known(("moves", lp.var), lambda: self._moves(lp))

    def _known(self, key: Hashable, make: Callable[[], Node]) -> Node:
        """What was made before for this access: several columns ask for the same."""
        return self.nest.made((id(self), key), make)

    def _moves(self, lp: LoopColumns) -> Node:
        ranges, g = self.nest.ranges, self.nest.graph
        moved = [e for at in self.access.indices for e in at if lp.var in iterators(e)]
        if any(plainly(e, lp) for e in moved):
            return lp.alive
        return g.total(ranges.span(e, frozenset({lp.var})) for e in moved).least(1)

    def stride(self, lp: LoopColumns) -> Node:
        """Elements that the first step of a loop skips, 0 if it stays or never steps; the largest of all accesses."""
        return self._step(lp) * lp.alive

    def _step(self, lp: LoopColumns) -> Node:
        """The same, if the loop runs more than once."""
        largest = self.nest.graph.largest
        return self._known(("step", lp.var), lambda: largest(self._step_of(at, lp) for at in self.access.indices))

    def _step_of(self, indices: tuple[Expr, ...], lp: LoopColumns) -> Node:
        ranges, g = self.nest.ranges, self.nest.graph
        total, size = g.zero, g.one
        for e, extent in zip(reversed(indices), reversed(self.access.buffer.shape), strict=True):
            total = total + ranges.step(e, lp.var) * size
            size = size * ranges.value(extent)
        constant = total.constant
        if constant is not None:
            return g.const(abs(constant))
        return total if _grows(indices) else total.most(0 - total)

    def different(self, lp: LoopColumns) -> Node:
        """Elements met while one loop runs alone."""
        return self.nest.graph.largest(self.nest.ranges.different_places(at, lp.var) for at in self.access.indices)

    def counted(self, lp: LoopColumns) -> tuple[Node, Node]:
        """The product of this loop and those inside that move the access, and of those that do not."""
        g = self.nest.graph
        count, reuse = g.one, g.one
        for inner in reversed(self.statement.loops[lp.depth :]):
            moves = self.moves(inner)
            count, reuse = count * g.choose(moves, inner.extent, 1), reuse * g.choose(moves, 1, inner.extent)
        return count, reuse

    # --- through the whole nest ---------------------------------------------------------------------------------------

    @cached_property
    def bytes(self) -> Node:
        """Bytes of all accesses, repeated ones included."""
        return self.nest.iterations(self.statement) * self.access.bytes

    @cached_property
    def unique_bytes(self) -> Node:
        """Bytes of the elements that are accessed, each counted once."""
        return self.nest.touched(self.access, self.statement.running(0))

    @cached_property
    def innermost_stride(self) -> Node:
        """The stride of the innermost loop that runs more than once."""
        pairs = zip(self.statement.loops, innermost(self.nest, self.statement), strict=True)
        return self.nest.graph.total(mask * self._step(lp) for lp, mask in pairs)

    @cached_property
    def lines(self) -> Node:
        """Cache lines over all iterations, if a line is kept only while the innermost loop that moves steps on it."""
        g, s = self.nest.graph, self.statement
        found = g.zero
        for lp in s.loops:
            moves = self.moves(lp)
            if moves is not g.zero:
                share = (self._step(lp) * (self.access.bytes / LINE)).least(1)
                found = g.choose(moves, self.nest.iterations(s, 0, lp.depth + 1) * share, found)
        return found.most(1)

    @cached_property
    def unique_lines(self) -> Node:
        """Cache lines of the touched box: a run of neighbouring elements goes on where inner dimensions are whole."""
        g = self.nest.graph
        sides = self.nest.region(self.access, self.statement.running(0))
        run, whole = g.one, g.one
        for side, extent in zip(reversed(sides), reversed(self.access.buffer.shape), strict=True):
            run = run * g.choose(whole, side, 1)
            whole = whole * side.equals(self.nest.ranges.value(extent))
        return (self.unique_bytes / (run * self.access.bytes).least(LINE)).most(1)

    # --- reuse --------------------------------------------------------------------------------------------------------

    @cached_property
    def reuse(self) -> Reuse:
        """When what is accessed is accessed again, and how much lies between."""
        g, nest, s = self.nest.graph, self.nest, self.statement
        shared, others = self._shared()
        by_loop, by_statement, iterations, size, times = (g.zero,) * 5
        if others:
            by_statement, times = g.one, g.const(len(others))
            iterations = nest.iterations(s, shared + 1)
            size = g.total(nest.footprint(x, shared + 1) for x in self._inside(shared))
        for depth in range(max(shared, 0), len(s.loops)):
            lp = s.loops[depth]
            still = lp.alive - self.moves(lp)
            by_loop, by_statement = g.choose(still, 1, by_loop), g.choose(still, 0, by_statement)
            iterations = g.choose(still, nest.iterations(s, depth + 1), iterations)
            size = g.choose(still, nest.footprint(s, depth + 1), size)
            times = g.choose(still, lp.extent, times)
        return Reuse(by_loop, by_statement, iterations, size, times)

    def _shared(self) -> tuple[int, list[Statement]]:
        """The depth of the innermost loop in which other statements use the buffer, -1 if there is none, and those."""
        others = [s for s, _ in self.nest.touching(self.access.buffer.name) if s is not self.statement]
        depths = [common(self.statement, s) - 1 for s in others]
        deepest = max(depths, default=-1)
        return deepest, [s for s, d in zip(others, depths, strict=True) if d == deepest >= 0]

    def _inside(self, depth: int) -> list[Statement]:
        loop = self.statement.loops[depth]
        return [s for s in self.nest.statements if loop in s.loops]


def innermost(nest: Nest, s: Statement) -> list[Node]:
    """For every loop whether it is the innermost that runs more than once."""

    def make() -> list[Node]:
        found, none_inside = [], nest.graph.one
        for lp in reversed(s.loops):
            found.append(lp.alive * none_inside)
            none_inside = none_inside * (1 - lp.alive)
        return found[::-1]

    return nest.made(("innermost", id(s)), make)


def access_columns(nest: Nest, s: Statement, access: Access) -> AccessColumns:
    """The columns of one buffer of one statement, the same object for every view."""
    return nest.made(("access", id(s), access.buffer.name), lambda: AccessColumns(nest, s, access))


def _grows(indices: tuple[Expr, ...]) -> bool:
    """Whether no index can fall: no term is negative, and there are no rests."""
    terms = [(m, c) for e in indices for m, c in poly(e).items() if m]
    return all(c > 0 and all(isinstance(atom, Var) for atom in m) for m, c in terms)
