"""Blocks become plain stores: bindings are put in place of iteration variables, predicates become conditions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from searchlab.ir.bounds import Facts
from searchlab.ir.expr import TRUE, Expr, Substitution, all_of, value_of
from searchlab.ir.program import Block, If, Loop, Program, Seq, Stmt, Store, seq


@dataclass(frozen=True, slots=True)
class Update(Store):
    """A store that adds to its element, which holds `init` before the iteration in which `first` is true."""

    init: Expr
    first: Expr


def flatten(program: Program) -> Stmt:
    """The program's body without blocks, with `unroll_up_to` notes carried out."""
    return _Flattener(program).visit(program.body, Substitution({}), program.facts)


@dataclass(frozen=True)
class _Flattener:
    program: Program

    def visit(self, s: Stmt, put: Substitution, facts: Facts) -> Stmt:
        if isinstance(s, Seq):
            return seq(*(self.visit(p, put, facts) for p in s.body))
        if isinstance(s, Loop):
            body = self.visit(s.body, put, facts)
            kind = "unrolled" if s.kind == "serial" and self._fits(s) else s.kind
            return replace(s, extent=put(s.extent), body=body, kind=kind, annotations=())
        if isinstance(s, Block):
            return self.block(s, put, facts)
        assert isinstance(s, Store)
        return self.store(s, put, facts)

    def block(self, b: Block, put: Substitution, facts: Facts) -> Stmt:
        bound = {it.var: facts.simplify(put(e)) for it, e in zip(b.iters, b.bindings, strict=True)}
        inner = Substitution({**put.mapping, **bound})
        condition = facts.simplify(put(b.predicate))
        if not isinstance(b.body, Store):
            body = self.visit(b.body, inner, facts)
            return body if condition == TRUE else If(condition, body)
        store = self.store(b.body, inner, facts)
        if b.init is not None:
            init = self.store(b.init, inner, facts)
            first = all_of(bound[it.var].equals(0) for it in b.iters if it.kind == "reduce")
            store = Update(store.buffer, store.indices, store.value, init.value, facts.simplify(first))
        return store if condition == TRUE else If(condition, store)

    def store(self, s: Store, put: Substitution, facts: Facts) -> Store:
        return Store(s.buffer, tuple(facts.simplify(put(i)) for i in s.indices), facts.simplify(put(s.value)))

    def _fits(self, loop: Loop) -> bool:
        """Whether a block's `unroll_up_to` covers this loop: it and the loops inside it multiply to at most that."""
        product, s = 1, loop
        while True:
            extent = value_of(s.extent)
            if extent is None:
                return False
            product *= extent
            if isinstance(s.body, Loop):
                s = s.body
                continue
            notes = dict(s.body.annotations) if isinstance(s.body, Block) else {}
            limit = notes.get("unroll_up_to", 0)
            return product <= (value_of(limit) or 0 if isinstance(limit, Expr) else int(limit))
