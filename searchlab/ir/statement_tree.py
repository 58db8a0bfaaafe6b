"""Trees of statements: what is inside a statement, what it accesses, and the statement with parts of it replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from searchlab.ir.expr import Expr, Load
from searchlab.ir.stmt import Indices, Place, Stmt, Store
from searchlab.ir.walk import loads, rebuild

_set = object.__setattr__  # statements are frozen, and have slots for what is cached on them


def statements(s: Stmt) -> tuple[Stmt, ...]:
    """The statement and all inside it, in program order (a block's init is not counted as a statement)."""
    return (s, *below(s))


def below(s: Stmt) -> tuple[Stmt, ...]:
    """The statements inside a statement, cached on it."""
    try:
        return s._below
    except AttributeError:
        inside = s.children()
        found = statements(inside[0]) if len(inside) == 1 else tuple(x for child in inside for x in statements(child))
        _set(s, "_below", found)
        return found


def holds(s: Stmt, inner: Stmt) -> bool:
    """Whether a statement contains another, compared by identity."""
    try:
        return id(inner) in s._ids
    except AttributeError:
        _set(s, "_ids", frozenset(map(id, below(s))))  # valid as long as the statement that contains them
        return id(inner) in s._ids


def expressions(s: Stmt) -> Iterator[Expr]:
    """All expressions in a statement."""
    for part in statements(s):
        yield from part.own_expressions()


def stores(s: Stmt) -> Iterator[Store]:
    """All stores in a statement, including inits."""
    for part in statements(s):
        yield from part.own_stores()


def accesses(s: Stmt) -> Iterator[Load]:
    """All loads in a statement, including a reduction's load of its own output."""
    for e in expressions(s):
        yield from loads(e)


def written(s: Stmt) -> tuple[str, ...]:
    """Names of the buffers a statement writes, in order; cached on the statement."""
    try:
        return s._written
    except AttributeError:
        own = [st.buffer for st in s.own_stores()]
        found = tuple(dict.fromkeys((*own, *(name for child in s.children() for name in written(child)))))
        _set(s, "_written", found)
        return found


def read(s: Stmt) -> tuple[str, ...]:
    """Names of the buffers a statement reads, in order; cached on the statement."""
    try:
        return s._read
    except AttributeError:
        own = (ld.buffer for e in s.own_expressions() for ld in loads(e))
        found = tuple(dict.fromkeys((*own, *(name for child in s.children() for name in read(child)))))
        _set(s, "_read", found)
        return found


def own_accesses(s: Stmt, buffer: str) -> Iterator[Indices]:
    """The indices at which one statement itself reads or writes a buffer."""
    for st in s.own_stores():
        if st.buffer == buffer:
            yield st.indices
    for e in s.own_expressions():
        yield from (ld.indices for ld in loads(e) if ld.buffer == buffer)


def touches(s: Stmt, buffer: str) -> bool:
    """Whether a statement reads or writes a buffer."""
    return buffer in written(s) or buffer in read(s)


# --- rewriting --------------------------------------------------------------------------------------------------------


def kept(s: Stmt | None) -> Stmt:
    """Asserts that a rewritten statement is not empty, and returns it."""
    assert s is not None
    return s


def map_expressions(s: Stmt, f: Callable[[Expr], Expr]) -> Stmt:
    """The statement with `f` applied to every whole expression in it (indices, values, extents, bindings)."""

    def visit(x: Stmt) -> Stmt:
        return x.rebuild(f, visit)

    return visit(s)


def map_accesses(s: Stmt, f: Callable[[Place], Place]) -> Stmt:
    """The statement with `f` applied to every access: loads, stores and prefetches."""

    def mapped(e: Expr) -> Expr:
        if not loads(e):
            return e
        new = rebuild(e, mapped)
        return Load(*f((new.buffer, new.indices)), new.type) if isinstance(new, Load) else new

    def visit(x: Stmt) -> Stmt:
        return x.rebuild(mapped, visit).map_places(f)

    return visit(s)


def reindexed(s: Stmt, buffer: str, f: Callable[[Indices], Indices]) -> Stmt:
    """The statement with `f` applied to the indices of every access to a buffer."""
    return map_accesses(s, lambda place: (buffer, f(place[1])) if place[0] == buffer else place)


def rename_buffer(s: Stmt, old: str, new: str) -> Stmt:
    """The statement with every access to `old` replaced by one to `new`."""
    return map_accesses(s, lambda place: (new, place[1]) if place[0] == old else place)


def path_to(root: Stmt, target: Stmt) -> list[Stmt]:
    """The statements from the root down to the target, both included; empty if the target is not in it."""
    if root is not target and not holds(root, target):
        return []
    path, s = [root], root
    while s is not target:
        inside = s.children()
        s = inside[0] if len(inside) == 1 else next(c for c in inside if c is target or holds(c, target))
        path.append(s)
    return path


def swap(root: Stmt, old: Stmt, new: Stmt | None) -> Stmt | None:
    """The tree with one statement (found by identity) replaced or, if `new` is None, removed and the tree pruned."""
    if root is old:
        return new
    inner = next((child for child in root.children() if child is old or holds(child, old)), None)
    return root if inner is None else root.map_children(lambda c: swap(inner, old, new) if c is inner else c)
