"""Tiles inside of arrays are free of predicates: a nest with conditions gets a copy for where all of them hold.

    for i in 8 unrolled:                              if 0 <= 872 - blockIdx.y*128:
      if i + threadIdx.y*8 + blockIdx.y*128 < 1000:     for i in 8 unrolled: C[...] = ...
        C[...] = ...                            =>    if 872 - blockIdx.y*128 < 0:
                                                        for i in 8 unrolled: if i + ... < 1000: C[...] = ...

The least that is left of each condition, over all threads and inner loops, is an expression of blocks and of loops that
all threads run together; so threads of a block agree on which copy they run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from searchlab.ir.bounds import Facts
from searchlab.ir.expr import FALSE, TRUE, ZERO, Compare, Expr, Var, compare, minimum, value_of
from searchlab.ir.loopkind import BLOCKS, THREADS, LoopKind
from searchlab.ir.statement_tree import expressions, kept, statements
from searchlab.ir.stmt import Alloc, If, Loop, Seq, Stmt, seq
from searchlab.ir.visitor import Rewriter
from searchlab.ir.walk import transform, variables, walk

MOST = 128  # stores, after unrolling, of a nest that is worth a second copy
_AXES = frozenset(Var(axis.value) for axis in THREADS)


def with_interiors(body: Stmt) -> Stmt:
    """The body of a kernel with second copies of nests for tiles in which all conditions hold."""
    return kept(_Interiors().visit(body, Facts()))


@dataclass(frozen=True)
class _Interiors(Rewriter[[Facts]]):
    """Visits nests from outside, with what is known of the loops around them."""

    def visit_loop(self, s: Loop, facts: Facts) -> Stmt | None:
        inside = facts.having({s.var: s.extent})
        if s.kind in BLOCKS or s.kind in THREADS:
            return s.map_children(lambda body: self.visit(body, inside))
        made = self.split(s, facts)
        if made is None and s.kind == LoopKind.SERIAL:
            made = s.map_children(lambda body: self.visit(body, inside))
        return made or s

    def visit_if(self, s: If, facts: Facts) -> Stmt | None:
        return self.split(s, facts) or s

    def visit_seq(self, s: Seq, facts: Facts) -> Stmt | None:
        return s.map_children(lambda part: self.visit(part, facts))

    def split(self, s: Stmt, facts: Facts) -> Stmt | None:
        """Both copies of a nest, or None if it has no conditions that inner loops ask, or is too long."""
        if any(isinstance(x, Alloc) and x.buffer.scope == "shared" for x in statements(s)) or _weight(s) > MOST:
            return None
        inner: dict[Var, Expr] = {}
        for lp in (x for x in statements(s) if isinstance(x, Loop)):
            if inner.setdefault(lp.var, lp.extent) != lp.extent:
                return None  # two loops with one name
        asked = [c for c in dict.fromkeys(_conditions(s)) if variables(c) & inner.keys()]
        everything = facts.having(inner)
        moving = {v: e for v, e in everything.extents.items() if v in inner or v in _AXES}
        known: dict[Compare, Expr] = {}
        least: Expr | None = None
        for c in asked:
            left = everything.simplify(everything.lower(c.b - c.a - (1 if c.op == "lt" else 0), moving))
            if variables(left) <= facts.extents.keys() - _AXES:
                known[c] = TRUE
                least = left if least is None else minimum(least, left)
        if least is None:
            return None
        holds = facts.simplify(compare("le", ZERO, least))
        if holds == FALSE or facts.proves(compare("lt", least, ZERO)):
            return None
        free = _without(s, known)
        if holds == TRUE:
            return free
        return seq(If(holds, free), If(compare("lt", least, ZERO), s))


def _conditions(s: Stmt) -> Iterator[Compare]:
    """The conditions on indices, of statements and of values, that bound something."""
    for e in expressions(s):
        for c in walk(e):
            if isinstance(c, Compare) and c.op in ("lt", "le") and c.a.dtype == "index":
                yield c


def _without(s: Stmt, known: dict[Compare, Expr]) -> Stmt:
    """The nest without conditions that hold."""

    def visit(x: Stmt) -> Stmt:
        inside = x.rebuild(lambda e: transform(e, lambda c: known.get(c) if isinstance(c, Compare) else None), visit)
        return inside.body if isinstance(inside, If) and inside.condition == TRUE else inside

    return visit(s)


def _weight(s: Stmt) -> int:
    """Stores after unrolling; vectors count as one."""
    inside = sum(1 for x in s.own_stores()) + sum(map(_weight, s.children()))
    return inside * (value_of(s.extent) or 1) if isinstance(s, Loop) and s.kind == LoopKind.UNROLLED else inside
