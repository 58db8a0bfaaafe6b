"""Indices from buffers are looked up within the bounds of these, even where a condition keeps them from being used.

Code generation loads them early, as it computes other indices early, ahead of the conditions around their uses.  So
every place that is not proved to lie inside of its buffer is clamped to it.
"""

from __future__ import annotations

from collections.abc import Mapping

from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ZERO, Expr, Load, Lookup, maximum, minimum
from searchlab.ir.stmt import Buffer, Loop, Stmt, kept
from searchlab.ir.visitor import Rewriter
from searchlab.ir.walk import lookups, transform


def look_up_inside(body: Stmt, buffers: Mapping[str, Buffer]) -> Stmt:
    """The body with indices looked up inside of buffers; most bodies look up none, and stay as they are."""
    return kept(_LookedUp(buffers).visit(body, Facts()))


class _LookedUp(Rewriter[[Facts]]):
    def __init__(self, buffers: Mapping[str, Buffer]) -> None:
        self.buffers = buffers

    def visit_loop(self, s: Loop, facts: Facts) -> Stmt | None:
        inner = facts.having({s.var: s.extent})
        if not lookups(s.extent):
            return s.map_children(lambda child: self.visit(child, inner))
        return Loop(s.var, self._clamped(s.extent, facts), kept(self.visit(s.body, inner)), s.kind, s.annotations)

    def other(self, s: Stmt, facts: Facts) -> Stmt | None:
        if not any(lookups(e) for e in s.own_expressions()):
            return s.map_children(lambda child: self.visit(child, facts))
        return s.rebuild(lambda e: self._clamped(e, facts), lambda child: kept(self.visit(child, facts)))

    def _clamped(self, e: Expr, facts: Facts) -> Expr:
        return transform(e, lambda x: self._inside(x, facts) if isinstance(x, Lookup) else None) if lookups(e) else e

    def _inside(self, x: Lookup, facts: Facts) -> Expr:
        shape = self.buffers[x.load.buffer].shape
        at = tuple(_between(i, extent, facts) for i, extent in zip(x.load.indices, shape, strict=True))
        return Lookup(Load(x.load.buffer, at, x.load.type), x.below, x.expected)


def _between(i: Expr, extent: Expr, facts: Facts) -> Expr:
    low = i if facts.nonnegative(i) else maximum(i, ZERO)
    return low if facts.proves(i < extent) else minimum(low, extent - 1)
