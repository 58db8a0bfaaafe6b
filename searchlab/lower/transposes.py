"""Transposed reads: lanes that read a column of a buffer, whose rows lie along another loop, take both in squares.

    for c in 32:                             for c_0 in 2:
      for x in 44 vectorized:                  for x_0 in 2:
        Y[c, x] = T[x, c]            =>          for c in 16 unrolled:
                                                   for x in 16 vectorized: ...x_0*16 + x...
                                               for c in 16 unrolled:
                                                 for x in 12 vectorized: ...x + 32...

Code generation then loads rows and shuffles them (`llvm.squares`), instead of one element after another.  The stage
that brings channels back into order behind a convolution is like this, and so are many that pack a transposed operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from searchlab.dtype import DTYPES
from searchlab.ir.algebra import divides, flat_index, poly
from searchlab.ir.apart import told_apart
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import TRUE, Const, Expr, Load, Var, value_of
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.statement_tree import kept, map_expressions
from searchlab.ir.stmt import Loop, Stmt, Store, seq
from searchlab.ir.walk import Substitution, loads, variables
from searchlab.lower.lane_nests import Buffers, LaneRewriter, outer_variable, repeated
from searchlab.targets import Target

SMALLEST = 4  # the sides of squares are this or a larger power of two
BITS = 32  # of the elements that squares are shuffled of


def read_in_squares(body: Stmt, buffers: Buffers, target: Target) -> Stmt:
    """The body with vectorised copies that read along columns rewritten; `buffers` are those it does not allocate."""
    return kept(_Squares(target).visit(body, buffers))


class _Squares(LaneRewriter):
    def visit_loop(self, s: Loop, buffers: Buffers) -> Stmt | None:
        nest = _nest_of(s)
        side = 0 if nest is None else self.side(nest, buffers)
        return self.other(s, buffers) if nest is None or not side else nest.in_squares(side)

    def side(self, nest: _TransposedNest, buffers: Buffers) -> int:
        """The largest side of squares along the outermost loop and the lanes of a nest; 0 if there are none."""
        rows, lanes = (value_of(lp.extent) or 0 for lp in (nest.rows, nest.lanes))
        if min(rows, lanes) < SMALLEST or not nest.may_be_reordered():
            return 0
        found = 0
        for ld in loads(nest.store.value):
            most = self.target.lanes(ld.type)
            while most >= SMALLEST and (rows % most or not _is_column(ld, nest, buffers, most)):
                most //= 2
            found = max(found, most if most >= SMALLEST else 0)
        return found


@dataclass(frozen=True)
class _TransposedNest:
    """A nest of loops around one store: the outermost loop, the innermost one in lanes, and those between."""

    rows: Loop
    between: Sequence[Loop]
    lanes: Loop
    store: Store

    def may_be_reordered(self) -> bool:
        """Whether every iteration stores an element of its own, and reads none of these."""
        loops = {lp.var: lp.extent for lp in (self.rows, *self.between, self.lanes)}
        apart = self.store.buffer not in {ld.buffer for ld in loads(self.store.value)}
        fixed = not any(variables(extent) & loops.keys() for extent in loops.values())
        return apart and fixed and told_apart(self.store.indices, loops, TRUE, Facts())

    def in_squares(self, side: int) -> Stmt:
        """The nest in squares, and in what is left of these where the lanes end."""
        rows, lanes = value_of(self.rows.extent), value_of(self.lanes.extent)
        assert rows is not None and lanes is not None
        whole, above = lanes // side, self.outer(self.rows)
        parts = [self.square(side, above, 0, side, whole)] if whole else []
        parts += [self.square(side, above, whole * side, lanes % side)] if lanes % side else []
        body = seq(*parts)
        for lp in reversed(self.between):
            body = lp.with_body(body)
        return repeated(above, rows // side, body)

    def square(self, side: int, above: Var, start: int, width: int, count: int = 1) -> Stmt:
        """So many rows of `width` lanes, `count` times from a lane on; `above` counts squares along the rows."""
        row, lane, before = self.rows.var, self.lanes.var, self.outer(self.lanes)
        moved = Substitution({lane: before * side + start + lane})
        store = map_expressions(self.store, lambda e: self.by_rows(moved(e), side))
        body: Stmt = Loop(lane, Const(width), store, LoopKind.VECTORIZED)
        return repeated(before, count, Loop(row, Const(side), body, LoopKind.UNROLLED))

    def by_rows(self, e: Expr, side: int) -> Expr:
        """An expression in terms of the squares and of the rows inside these, of which panels know the quotients."""
        row, above = self.rows.var, self.outer(self.rows)
        facts = Facts({row: Const(side), above: self.rows.extent // side})
        return facts.simplify(Substitution({row: above * side + row})(e))

    def outer(self, loop: Loop) -> Var:
        """A variable that no statement of the nest has, for a loop around the squares of another."""
        return outer_variable(loop, self.store, (lp.name for lp in self.between))


def _nest_of(s: Loop) -> _TransposedNest | None:
    """The loops from `s` to the only store inside, if the innermost alone is in lanes and no other is shared."""
    loops: list[Loop] = []
    inner: Stmt = s
    while isinstance(inner, Loop):
        loops.append(inner)
        inner = inner.body
    *outer, lanes = loops
    serial = all(lp.kind in (LoopKind.SERIAL, LoopKind.UNROLLED) for lp in outer)
    if type(inner) is not Store or not outer or not serial or lanes.kind != LoopKind.VECTORIZED:
        return None
    return _TransposedNest(outer[0], outer[1:], lanes, inner)


def _is_column(ld: Load, nest: _TransposedNest, buffers: Buffers, side: int) -> bool:
    """Whether lanes load a column of whole squares, whose rows lie along the outermost loop and begin at multiples."""
    if DTYPES[ld.type].bits != BITS or not divides(side, buffers[ld.buffer].shape):
        return False
    terms = dict(poly(nest.by_rows(flat_index(ld.indices, buffers[ld.buffer].shape), side)))
    row, stride = terms.pop((nest.rows.var,), 0), terms.get((nest.lanes.var,), 0)
    moving = {nest.rows.var, nest.lanes.var}
    alone = all(m == (nest.lanes.var,) or not any(variables(atom) & moving for atom in m) for m in terms)
    return row == 1 and stride > 0 and alone and not any(c % side for c in terms.values())
