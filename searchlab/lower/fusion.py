"""Loop fusion: a loop that reads what the same iteration of the loop before it wrote becomes part of that loop.

    for a in n: E[a] = exp(X[a])
    for b in n: S += E[b]          =>   for a in n: E[a] = exp(X[a]); S += E[a]

Fused are neighbours with the same number of serial iterations, if every buffer that one of them writes and the other
one accesses is divided among the iterations: each accesses a part of its own, the same in both loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from searchlab.ir.algebra import from_poly, poly
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import Expr, Var, compare
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.statement_tree import kept, map_expressions, own_accesses, read, statements, written
from searchlab.ir.stmt import Loop, Seq, Stmt, seq
from searchlab.ir.visitor import Rewriter
from searchlab.ir.walk import Substitution, variables


def fuse_loops(body: Stmt) -> Stmt:
    """The body with its loops fused, from the outermost inwards."""
    return kept(_Fusion().visit(body))


class _Fusion(Rewriter[[]]):
    def visit_seq(self, s: Seq) -> Stmt | None:
        parts: list[Stmt] = []
        for part in s.body:
            fused = _fused(parts[-1], part) if parts else None
            if fused is None:
                parts.append(part)
            else:
                parts[-1] = fused
        return seq(*(kept(self.visit(part)) for part in parts))


def _fused(first: Stmt, second: Stmt) -> Stmt | None:
    """One loop that does what two did, or None if they have to stay apart."""
    if not isinstance(first, Loop) or not isinstance(second, Loop):
        return None
    if not first.kind == second.kind == LoopKind.SERIAL or first.extent != second.extent:
        return None
    made, taken = set(written(first)), set(read(second))
    shared = (made & (taken | set(written(second)))) | (set(read(first)) & set(written(second)))
    if not made & taken or not all(divided(first, second, buffer) for buffer in shared):
        return None
    renamed = map_expressions(second.body, Substitution({second.var: first.var}))
    return first.with_body(seq(first.body, renamed))


@dataclass(frozen=True)
class _Part:
    """What one access reaches in an iteration, along one dimension: [low, high] beyond `step` times the iteration."""

    step: int
    start: Expr
    low: Expr
    high: Expr


def divided(first: Loop, second: Loop, buffer: str) -> bool:
    """Whether no iteration of either loop accesses elements of a buffer that belong to another iteration."""
    found = [tuple(_parts(lp, buffer)) for lp in (first, second)]
    for along in zip(*(parts for each in found for parts in each), strict=False):
        if all(p is not None for p in along) and _disjoint([p for p in along if p is not None]):
            return True
    return False


def _disjoint(parts: list[_Part]) -> bool:
    """Whether accesses of different iterations are disjoint: together they span less than one step."""
    if len({(p.step, p.start) for p in parts}) != 1:
        return False
    facts = Facts()
    return all(facts.proves(compare("lt", p.high - q.low, parts[0].step)) for p in parts for q in parts)


def _parts(loop: Loop, buffer: str) -> Iterator[tuple[_Part | None, ...]]:
    """For every access to a buffer in a loop, its part along each dimension, if it is one."""
    inner = {lp.var: lp.extent for lp in statements(loop.body) if isinstance(lp, Loop)}
    for s in statements(loop.body):
        for indices in own_accesses(s, buffer):
            yield tuple(_part(i, loop.var, inner) for i in indices)


def _part(e: Expr, var: Var, inner: dict[Var, Expr]) -> _Part | None:
    terms = poly(e)
    step = terms.get((var,), 0)
    moving = {m: c for m, c in terms.items() if m != (var,) and (not m or variables(from_poly({m: c})) & inner.keys())}
    start = from_poly({m: c for m, c in terms.items() if m != (var,) and m not in moving})
    rest = from_poly(moving)
    if step < 1 or var in variables(rest) or var in variables(start):
        return None
    facts = Facts(inner)
    low, high = facts.lower(rest, inner), facts.upper(rest, inner)
    return None if variables(low) & inner.keys() or variables(high) & inner.keys() else _Part(step, start, low, high)
