"""Renaming of the buffers, blocks, loops and symbols of programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from searchlab.ir.expr import Expr, Load, Var
from searchlab.ir.program import Layout, Program
from searchlab.ir.stmt import Ahead, Block, Buffer, Iter, Loop, Place, Stmt, Store
from searchlab.ir.visitor import Visitor
from searchlab.ir.walk import loads, rebuild, variables


@dataclass(frozen=True)
class Renaming:
    """New names by old ones; `symbols` are the free variables, bound by neither a loop nor a block."""

    buffers: Mapping[str, str] = field(default_factory=dict)
    blocks: Mapping[str, str] = field(default_factory=dict)
    loops: Mapping[str, str] = field(default_factory=dict)
    symbols: Mapping[str, str] = field(default_factory=dict)


def rename(program: Program, names: Renaming) -> Program:
    """The program with names replaced; names not given are kept.  The trace is dropped: it uses the old names."""
    symbols = {*program.symbols, *(v for a in program.assumptions for v in variables(a))}
    put = RenamedExpression({v: Var(names.symbols.get(v.name, v.name), v.role) for v in symbols}, names.buffers)
    buffers = [_buffer(b, put) for b in program.buffers.values()]
    return replace(
        program,
        inputs=tuple(put.buffers.get(n, n) for n in program.inputs),
        outputs=tuple(put.buffers.get(n, n) for n in program.outputs),
        updates=tuple(put.buffers.get(n, n) for n in program.updates),
        buffers={b.name: b for b in buffers},
        body=_Renamed(names).visit(program.body, put),
        assumptions=tuple(map(put, program.assumptions)),
        layouts=tuple(_layout(la, put) for la in program.layouts),
        trace=(),
    )


class RenamedExpression:
    """Renames variables and buffers in expressions."""

    def __init__(self, variables: Mapping[Var, Var], buffers: Mapping[str, str]) -> None:
        self.variables = {v: w for v, w in variables.items() if v != w}
        self.buffers = buffers

    def __call__(self, e: Expr) -> Expr:
        if isinstance(e, Var):
            return self.variables.get(e, e)
        if isinstance(e, Load):
            return Load(self.buffers.get(e.buffer, e.buffer), tuple(map(self, e.indices)), e.type)
        if self.variables.keys().isdisjoint(variables(e)) and not loads(e):
            return e
        return rebuild(e, self)

    def inside(self, bound: Iterable[tuple[Var, Var]]) -> RenamedExpression:
        """The renaming in a scope with further bound variables, which shadow outer ones of the same name."""
        return RenamedExpression({**self.variables, **dict(bound)}, self.buffers)


class _Renamed(Visitor[[RenamedExpression], Stmt]):
    def __init__(self, names: Renaming) -> None:
        self.names = names

    def other(self, s: Stmt, put: RenamedExpression) -> Stmt:
        def move(place: Place) -> Place:
            return put.buffers.get(place[0], place[0]), place[1]

        return s.rebuild(put, lambda child: self.visit(child, put)).map_places(move)

    def visit_loop(self, s: Loop, put: RenamedExpression) -> Stmt:
        var = Var(self.names.loops.get(s.name, s.name))
        body = self.visit(s.body, put.inside([(s.var, var)]))
        return Loop(var, put(s.extent), body, s.kind, self.notes(s.annotations, put))

    def visit_block(self, s: Block, put: RenamedExpression) -> Stmt:
        taken = {*(put(v) for v in put.variables), *(it.var for it in s.iters)}
        own = [(it.var, _apart(it.var, taken - {it.var})) for it in s.iters]
        inner = put.inside(own)
        init = self.visit(s.init, inner) if s.init is not None else None
        assert init is None or isinstance(init, Store)
        return replace(
            s,
            name=self.names.blocks.get(s.name, s.name),
            iters=tuple(Iter(new, put(it.extent), it.kind) for it, (_, new) in zip(s.iters, own, strict=True)),
            bindings=tuple(map(put, s.bindings)),
            predicate=put(s.predicate),
            body=self.visit(s.body, inner),
            init=init,
            annotations=self.notes(s.annotations, put),
        )

    def notes(self, notes: tuple[tuple[str, Any], ...], put: RenamedExpression) -> tuple[tuple[str, Any], ...]:
        return tuple((key, self.note(value, put)) for key, value in notes)

    def note(self, value: Any, put: RenamedExpression) -> Any:
        if isinstance(value, Ahead):
            buffer = put.buffers.get(value.buffer, value.buffer)
            return Ahead(buffer, self.names.loops.get(value.loop, value.loop), put(value.distance))
        return put(value) if isinstance(value, Expr) else value


def _apart(v: Var, taken: set[Expr]) -> Var:
    """A block variable, renamed if a renamed outer variable would collide with it."""
    while v in taken:
        v = Var(f"{v.name}_")
    return v


def _buffer(b: Buffer, put: RenamedExpression) -> Buffer:
    return replace(b, name=put.buffers.get(b.name, b.name), shape=tuple(map(put, b.shape)))


def _layout(la: Layout, put: RenamedExpression) -> Layout:
    inner = put.inside((v, v) for v in la.iters)
    buffer, source = put.buffers.get(la.buffer, la.buffer), tuple(map(inner, la.source))
    return Layout(buffer, _buffer(la.original, put), la.iters, source, inner(la.predicate))
