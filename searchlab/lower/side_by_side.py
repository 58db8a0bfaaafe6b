"""Short vectors side by side: groups of a few lanes that one loop stores next to each other become whole vectors.

    for w in 56:                                      for w_0 in 7:
      for u in 2 vectorized:                            for w in 16 vectorized:
        P[w, u] = X[u, w]                     =>          P[w_0*8 + w//2, w%2] = X[w%2, w_0*8 + w//2]

Code generation then loads a vector for each member of the groups and interleaves them (`llvm.interleaves`), instead of
assembling every group of its elements.  Stages that lay data out for dot products of bytes are like this.
"""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.ir.algebra import flat_index, poly
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import Const, Expr, Load, Var, value_of
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.statement_tree import kept, map_expressions
from searchlab.ir.stmt import Loop, Stmt, Store, seq
from searchlab.ir.walk import Substitution, loads, variables
from searchlab.lower.lane_nests import Buffers, LaneRewriter, outer_variable, repeated
from searchlab.targets import Target

GROUPS = (2, 4, 8)  # lanes of the groups that are joined


def join_groups(body: Stmt, buffers: Buffers, target: Target) -> Stmt:
    """The body with short vectors that are stored side by side joined; `buffers` are those it does not allocate."""
    return kept(_GroupJoiner(target).visit(body, buffers))


class _GroupJoiner(LaneRewriter):
    def visit_loop(self, s: Loop, buffers: Buffers) -> Stmt | None:
        found = _groups_of(s)
        lanes = 0 if found is None else self.target.lanes(buffers[found.store.buffer].dtype)
        if found is None or 2 * found.size > lanes or not found.are_side_by_side(buffers):
            return self.other(s, buffers)
        return found.joined(lanes)


@dataclass(frozen=True)
class _Groups:
    """A loop over groups of a few lanes, each of which one store fills."""

    loop: Loop
    group: Loop
    store: Store
    count: int
    size: int

    def are_side_by_side(self, buffers: Buffers) -> bool:
        """Whether groups follow each other in memory, and vectors can be loaded for their members."""
        read = loads(self.store.value)
        if self.store.buffer in {ld.buffer for ld in read} or self._moves_beside_loads(self.store.value):
            return False
        if self._steps(self.store.buffer, self.store.indices, buffers) != (self.size, 1):
            return False
        steps = [self._steps(ld.buffer, ld.indices, buffers) for ld in read]
        return all(x is not None and (x[0] == 1 or x in ((0, 0), (self.size, 1))) for x in steps)

    def _steps(self, buffer: str, indices: tuple[Expr, ...], buffers: Buffers) -> tuple[int, int] | None:
        """How far an address moves from group to group, and from lane to lane; None if not by constants."""
        terms = dict(poly(flat_index(indices, buffers[buffer].shape)))
        steps = terms.pop((self.loop.var,), 0), terms.pop((self.group.var,), 0)
        moving = {self.loop.var, self.group.var}
        return None if any(variables(atom) & moving for m in terms for atom in m) else steps

    def _moves_beside_loads(self, e: Expr) -> bool:
        """Whether a value depends on the position other than through what it loads."""
        if isinstance(e, Load | Var):
            return e in (self.loop.var, self.group.var)
        return any(self._moves_beside_loads(x) for x in e.children())

    def joined(self, lanes: int) -> Stmt:
        """Vectors of `lanes`, then shorter ones for the groups that are left."""
        width, start = lanes // self.size, 0
        parts: list[Stmt] = []
        while start < self.count:
            while width > self.count - start:
                width //= 2
            times = (self.count - start) // width
            parts.append(self._vectors(start, width, times))
            start += times * width
        return seq(*parts)

    def _vectors(self, start: int, width: int, times: int) -> Stmt:
        """So many vectors of `width` groups, from a group on."""
        group, lane, lanes = self.loop.var, self.group.var, width * self.size
        outer = outer_variable(self.loop, self.store)
        facts = Facts({lane: Const(lanes), outer: Const(times)})
        moved = Substitution({group: outer * width + start + lane // self.size, lane: lane % self.size})
        store = map_expressions(self.store, lambda e: facts.simplify(moved(e)))
        body = Loop(lane, Const(lanes), store, LoopKind.VECTORIZED)
        return repeated(outer, times, body)


def _groups_of(s: Loop) -> _Groups | None:
    """The groups of a serial loop whose body is nothing but one store in a few lanes."""
    inner = s.body
    if s.kind != LoopKind.SERIAL or not isinstance(inner, Loop) or inner.kind != LoopKind.VECTORIZED:
        return None
    count, size = value_of(s.extent), value_of(inner.extent)
    if type(inner.body) is not Store or count is None or size not in GROUPS or count < 2:
        return None
    return _Groups(s, inner, inner.body, count, size)
