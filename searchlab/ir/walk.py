"""Traversal and rewriting of expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from searchlab.ir.algebra import add_into, arithmetic, floordiv, from_poly, mod
from searchlab.ir.expr import (
    LOOKED_UP,
    And,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Lookup,
    Monomial,
    Poly,
    Select,
    Var,
    all_of,
    cast,
    compare,
    extreme,
    lookup,
)


def walk(e: Expr) -> Iterator[Expr]:
    """The expression and all its parts, outermost first."""
    stack = [e]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(top.children()))


def variables(e: Expr) -> frozenset[Var]:
    """All variables of an expression, cached on it."""
    try:
        return e._variables  # type: ignore[attr-defined, no-any-return]
    except AttributeError:
        if isinstance(e, Var):
            found = frozenset((e,))
        else:
            parts = e.children()
            found = variables(parts[0]) if len(parts) == 1 else frozenset().union(*map(variables, parts))
        object.__setattr__(e, "_variables", found)
        return found


def iterators(e: Expr) -> frozenset[Var]:
    """The iteration variables of an expression, cached on it."""
    try:
        return e._iterators  # type: ignore[attr-defined, no-any-return]
    except AttributeError:
        found = frozenset(v for v in variables(e) if v.role == "iter")
        object.__setattr__(e, "_iterators", found)
        return found


def loads(e: Expr) -> tuple[Load, ...]:
    """All loads in an expression, outermost first, cached on it."""
    try:
        return e._loads  # type: ignore[attr-defined, no-any-return]
    except AttributeError:
        inside = tuple(ld for part in e.children() for ld in loads(part))
        found = (e, *inside) if isinstance(e, Load) else inside
        object.__setattr__(e, "_loads", found)
        return found


def lookups(e: Expr) -> tuple[Lookup, ...]:
    """All indices that are looked up in an expression; most have none, and are not searched."""
    if not any(ld.type in LOOKED_UP for ld in loads(e)):
        return ()
    return tuple(x for x in walk(e) if isinstance(x, Lookup))


Rewrite = Callable[[Expr], "Expr | None"]


def rebuild(e: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """The same expression with `f` applied to its children; index arithmetic is normalised again."""
    return _REBUILDERS[type(e)](e, f)


def _rebuild_binary(e: Binary, f: Callable[[Expr], Expr]) -> Expr:
    a, b = f(e.a), f(e.b)
    if a is e.a and b is e.b:
        return e
    if e.op == "floordiv":
        return floordiv(a, b)
    if e.op == "mod":
        return mod(a, b)
    if e.op in ("min", "max"):
        return extreme(e.op, a, b)
    return Binary(e.op, a, b)


def _rebuild_poly(e: Poly, f: Callable[[Expr], Expr]) -> Expr:
    terms: dict[Monomial, int] = {}
    changed = False
    for monomial, coefficient in e.terms:
        new = [f(atom) for atom in monomial]
        if all(n is o for n, o in zip(new, monomial, strict=True)):
            terms[monomial] = terms.get(monomial, 0) + coefficient
            continue
        changed = True
        product: Expr = Const(coefficient)
        for atom in new:
            product = arithmetic("mul", product, atom)
        add_into(terms, product, 1)
    return from_poly(terms) if changed else e


def _rebuild_select(e: Select, f: Callable[[Expr], Expr]) -> Expr:
    condition = f(e.condition)
    if isinstance(condition, Const):
        return f(e.a) if condition.value else f(e.b)
    return Select(condition, f(e.a), f(e.b))


_REBUILDERS: dict[type[Expr], Callable[[Any, Callable[[Expr], Expr]], Expr]] = {
    Const: lambda e, f: e,
    Var: lambda e, f: e,
    Poly: _rebuild_poly,
    Binary: _rebuild_binary,
    Load: lambda e, f: Load(e.buffer, tuple(map(f, e.indices)), e.type),
    Lookup: lambda e, f: lookup(f(e.load), f(e.below), f(e.expected)),
    Compare: lambda e, f: compare(e.op, f(e.a), f(e.b)),
    And: lambda e, f: all_of(map(f, e.args)),
    Select: _rebuild_select,
    Cast: lambda e, f: cast(f(e.a), e.type),
    Call: lambda e, f: Call(e.function, tuple(map(f, e.args))),
}


def expected(e: Expr) -> Expr:
    """The expression with what is expected in place of the indices that it looks up."""
    return transform(e, lambda x: x.expected if isinstance(x, Lookup) else None) if lookups(e) else e


def substitute(e: Expr, mapping: Mapping[Var, Expr]) -> Expr:
    """The expression with variables replaced."""
    return Substitution(mapping)(e)


class Substitution:
    """Replaces variables, memoised: programs share most of their subexpressions."""

    def __init__(self, mapping: Mapping[Any, Expr]) -> None:
        self.mapping = mapping
        self._memo: dict[Expr, Expr] = dict(mapping)
        self._names = mapping.keys()

    def __call__(self, e: Expr) -> Expr:
        if self._names.isdisjoint(variables(e)):
            return e
        known = self._memo.get(e)
        if known is None:
            known = self._memo[e] = rebuild(e, self)
        return known


def transform(e: Expr, rewrite: Rewrite) -> Expr:
    """Rewrites bottom-up; `rewrite` returns the replacement, or None to keep the expression."""
    new = rebuild(e, lambda child: transform(child, rewrite))
    replaced = rewrite(new)
    return new if replaced is None else replaced
