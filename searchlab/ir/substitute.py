"""Substitution of integers for symbols in statements, and of the conditions they decide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ZERO, Const, Expr
from searchlab.ir.statement_tree import kept, map_expressions, statements
from searchlab.ir.stmt import Ahead, Block, Buffer, Loop, Stmt, Store
from searchlab.ir.visitor import Rewriter
from searchlab.ir.walk import Substitution


def put_statement(s: Stmt, put: Substitution, assumptions: tuple[Expr, ...]) -> Stmt:
    """A program's body with integers in place of symbols; conditions that these decide are dropped."""
    body = map_expressions(kept(_Notes().visit(s, put)), put)
    loops = {lp.var: lp.extent for lp in statements(body) if isinstance(lp, Loop)}
    return kept(_Settled().visit(body, Facts(loops, assumptions)))


def put_buffer(buffer: Buffer, put: Substitution) -> Buffer:
    """The buffer with symbols in its shape replaced."""
    return replace(buffer, shape=tuple(put(e) for e in buffer.shape))


class _Settled(Rewriter[[Facts]]):
    """Drops conditions that the integers decide, so that a tile size that divides its extent leaves no predicate."""

    def visit_block(self, b: Block, facts: Facts) -> Stmt | None:
        inner = facts.having({it.var: it.extent for it in b.iters})
        bindings = tuple(facts.simplify(e) for e in b.bindings)
        b = replace(b, bindings=bindings, predicate=facts.simplify(b.predicate))
        if not isinstance(b.body, Store):
            return self.other(b, facts)
        init = None if b.init is None else b.init.rebuild(inner.simplify)
        return replace(b, body=b.body.rebuild(inner.simplify), init=init)


class _Notes(Rewriter[[Substitution]]):
    """Replaces symbols in annotations; a loop whose choice of kind has become a number gets that kind."""

    def visit_loop(self, lp: Loop, put: Substitution) -> Stmt | None:
        new = self.other(lp, put)
        assert isinstance(new, Loop)
        if not new.annotations:
            return new
        new = replace(new, annotations=_put_notes(new.annotations, put))
        choice = dict(new.annotations).get("kind")
        if not isinstance(choice, Const):
            return new
        notes = tuple((k, v) for k, v in new.annotations if k not in ("kind", "kinds"))
        return replace(new, kind=new.kinds[int(choice.value)], annotations=notes)

    def visit_block(self, b: Block, put: Substitution) -> Stmt | None:
        new = self.other(b, put)
        assert isinstance(new, Block)
        return replace(new, annotations=_put_notes(new.annotations, put)) if new.annotations else new


def _put_notes(notes: tuple[tuple[str, Any], ...], put: Substitution) -> tuple[tuple[str, Any], ...]:
    found = ((key, _put_note(note, put)) for key, note in notes)
    return tuple((key, note) for key, note in found if note is not None)


def _put_note(note: Any, put: Substitution) -> Any:
    """The annotation with integers in place of symbols, or None if it has no effect: prefetching 0 iterations ahead."""
    if isinstance(note, Ahead):
        distance = put(note.distance)
        return None if distance == ZERO else replace(note, distance=distance)
    return put(note) if isinstance(note, Expr) else note
