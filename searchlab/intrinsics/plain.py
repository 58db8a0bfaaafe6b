"""Loop nests reduced to what an intrinsic is matched by: loops, one store, and the strides of every access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from searchlab.errors import IRError
from searchlab.ir.algebra import flat_index, from_poly, poly, without
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ONE, TRUE, ZERO, Expr, Load, Monomial, Var, all_of, conditions
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import path_to
from searchlab.ir.stmt import Block, Buffer, If, Loop, Stmt, Store
from searchlab.ir.visitor import Visitor
from searchlab.ir.walk import Substitution, variables


@dataclass(frozen=True)
class PlainNest:
    """Nested loops around one store, whose indices are in loop variables; loops of one iteration are left out."""

    loops: tuple[Loop, ...]
    store: Store
    conditions: tuple[Expr, ...]

    @property
    def variables(self) -> tuple[Var, ...]:
        """The variables of the loops."""
        return tuple(lp.var for lp in self.loops)


def plain_nest(s: Stmt, facts: Facts, around: Substitution | None = None) -> PlainNest:
    """A nest of loops and blocks around one store, without its blocks; any other statement raises IRError.

    `around` replaces the variables of blocks that the nest is inside of.
    """
    return _Plain(facts).visit(s, (), around or Substitution({}), TRUE)


def blocks_around(program: Program, s: Stmt) -> Substitution:
    """The bindings of the variables of all blocks that a statement is inside of, in loop variables."""
    put = Substitution({})
    for block in (x for x in path_to(program.body, s)[:-1] if isinstance(x, Block)):
        bound = {it.var: program.facts.simplify(put(e)) for it, e in zip(block.iters, block.bindings, strict=True)}
        put = Substitution({**put.mapping, **bound})
    return put


@dataclass(frozen=True)
class _Plain(Visitor[[tuple[Loop, ...], Substitution, Expr], PlainNest]):
    facts: Facts

    def other(self, s: Stmt, loops: tuple[Loop, ...], put: Substitution, where: Expr) -> PlainNest:
        if len(s.children()) != 1:
            raise IRError(f"it holds a {type(s).__name__.lower()}, not one store")
        return self.visit(s.children()[0], loops, put, where)

    def visit_if(self, s: If, loops: tuple[Loop, ...], put: Substitution, where: Expr) -> PlainNest:
        return self.visit(s.body, loops, put, all_of((where, put(s.condition))))

    def visit_loop(self, s: Loop, loops: tuple[Loop, ...], put: Substitution, where: Expr) -> PlainNest:
        if s.extent == ONE:
            return self.visit(s.body, loops, Substitution({**put.mapping, s.var: ZERO}), where)
        return self.visit(s.body, (*loops, s), put, where)

    def visit_block(self, s: Block, loops: tuple[Loop, ...], put: Substitution, where: Expr) -> PlainNest:
        bound = {it.var: self.facts.simplify(put(e)) for it, e in zip(s.iters, s.bindings, strict=True)}
        inner = Substitution({**put.mapping, **bound})
        return self.visit(s.body, loops, inner, all_of((where, put(s.predicate))))

    def visit_store(self, s: Store, loops: tuple[Loop, ...], put: Substitution, where: Expr) -> PlainNest:
        indices = tuple(self.facts.simplify(put(i)) for i in s.indices)
        return PlainNest(loops, Store(s.buffer, indices, self.facts.simplify(put(s.value))), tuple(conditions(where)))


def strides(
    access: Store | Load, buffers: Mapping[str, Buffer], loops: Sequence[Var], facts: Facts
) -> dict[Var, Expr] | None:
    """How far an access moves in memory with each loop, in elements; None if it does not move evenly."""
    flat = facts.simplify(flat_index(access.indices, buffers[access.buffer].shape))
    found: dict[Var, dict[Monomial, int]] = {v: {} for v in loops}
    for monomial, c in poly(flat).items():
        moving = [a for a in monomial if variables(a) & found.keys()]
        if not moving:
            continue
        (first, *others) = moving
        rest = without(monomial, (first,))
        if others or not isinstance(first, Var) or rest is None:
            return None
        found[first][rest] = found[first].get(rest, 0) + c
    return {v: from_poly(terms) for v, terms in found.items()}
