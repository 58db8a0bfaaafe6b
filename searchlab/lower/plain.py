"""Walking and rewriting of plain (lowered) statements, where a store may be an Update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from searchlab.ir.expr import Expr, Load, loads, transform
from searchlab.ir.program import Alloc, If, Loop, Prefetch, Seq, Stmt, Store, children
from searchlab.lower.flatten import Update

Indices = tuple[Expr, ...]


def own_expressions(s: Stmt) -> tuple[Expr, ...]:
    """The expressions of one statement, without those of the statements inside it."""
    if isinstance(s, Update):
        return (*s.indices, s.value, s.init, s.first)
    if isinstance(s, Store):
        return (*s.indices, s.value)
    if isinstance(s, Prefetch):
        return s.indices
    if isinstance(s, Loop):
        return (s.extent,)
    if isinstance(s, If):
        return (s.condition,)
    return s.buffer.shape if isinstance(s, Alloc) else ()


def expressions(s: Stmt) -> Iterator[Expr]:
    """All expressions of a statement."""
    yield from own_expressions(s)
    for child in children(s):
        yield from expressions(child)


def own_accesses(s: Stmt, buffer: str) -> Iterator[Indices]:
    """The indices at which one statement itself touches a buffer."""
    if isinstance(s, Store) and s.buffer == buffer:
        yield s.indices
    for e in own_expressions(s):
        yield from (ld.indices for ld in loads(e) if ld.buffer == buffer)


def touches(s: Stmt, buffer: str) -> bool:
    """Whether a statement reads or writes a buffer."""
    return any(True for _ in own_accesses(s, buffer)) or any(touches(c, buffer) for c in children(s))


def map_plain(s: Stmt, f: Callable[[Expr], Expr]) -> Stmt:
    """The statement with `f` applied to every whole expression."""
    if isinstance(s, Update):
        return Update(s.buffer, tuple(map(f, s.indices)), f(s.value), f(s.init), f(s.first))
    if isinstance(s, Store):
        return Store(s.buffer, tuple(map(f, s.indices)), f(s.value))
    if isinstance(s, Prefetch):
        return replace(s, indices=tuple(map(f, s.indices)))
    if isinstance(s, Seq):
        return Seq(tuple(map_plain(p, f) for p in s.body))
    body = map_plain(s.body, f)
    if isinstance(s, Loop):
        return replace(s, extent=f(s.extent), body=body)
    if isinstance(s, If):
        return If(f(s.condition), body)
    assert isinstance(s, Alloc)
    return Alloc(replace(s.buffer, shape=tuple(map(f, s.buffer.shape))), body)


def map_access(s: Stmt, buffer: str, f: Callable[[Indices], Indices]) -> Stmt:
    """The statement with the indices of every access to a buffer changed."""

    def load(e: Expr) -> Expr | None:
        return Load(buffer, f(e.indices), e.type) if isinstance(e, Load) and e.buffer == buffer else None

    def store(x: Stmt) -> Stmt:
        if isinstance(x, (Store, Prefetch)):
            return replace(x, indices=f(x.indices)) if x.buffer == buffer else x
        if isinstance(x, Seq):
            return Seq(tuple(map(store, x.body)))
        return replace(x, body=store(x.body))

    return map_plain(store(s), lambda e: transform(e, load))
