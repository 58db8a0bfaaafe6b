"""Injectivity of index maps: whether no two iterations of a loop nest access the same element, and the inverse map."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial

from searchlab.ir.algebra import floordiv, from_poly, poly, without
from searchlab.ir.bounds import Facts, Ranges
from searchlab.ir.expr import ONE, ZERO, Binary, Compare, Const, Expr, Poly, Var, conditions
from searchlab.ir.walk import variables

Value = Callable[[], Expr]  # computed only where it is wanted: most callers need no inverse
Known = dict[Expr, Value]


def told_apart(places: Iterable[Expr], loops: Ranges, where: Expr, facts: Facts) -> bool:
    """Whether the values of `places` determine the variables of `loops`, wherever the condition `where` holds.

    The proof treats indices as mixed-radix numbers: `i*8 + j` determines i and j if j < 8, and `f // 5` with `f % 5`
    determines f.  False means 'not proved'.
    """
    loops = {v: extent for v, extent in loops.items() if extent != ONE}
    known = _determined(((e, lambda: ZERO) for e in places), loops, where, facts)
    return all(v in known for v in loops)


def recovered(
    places: Iterable[tuple[Expr, Expr]],
    loops: Ranges,
    where: Expr,
    facts: Facts,
    wanted: Collection[Var] | None = None,
) -> dict[Var, Expr]:
    """The variables of `loops` that the values of places determine, as expressions of these values.

    If some are `wanted`, only those.

    `places` pairs each place with its value: (i*8 + j, x) gives i = x // 8 and j = x % 8.
    """
    known = _determined(((e, _constantly(value)) for e, value in places), loops, where, facts)
    return {v: known[v]() for v in (loops if wanted is None else wanted) if v in known}


def _constantly(value: Expr) -> Value:
    return lambda: value


def _determined(places: Iterable[tuple[Expr, Value]], loops: Ranges, where: Expr, facts: Facts) -> Known:
    """All expressions that the places determine, with their values."""
    known: Known = {}
    new: Known = dict(_moving(e, value, loops) for e, value in places)
    while new:
        known.update(new)
        sums = [(e, value) for e, value in new.items() if isinstance(e, Poly)]
        found = [part for e, value in sums for part in _digits(e, value, loops, where, facts)]
        rests = [e for e in known if isinstance(e, Binary) and e.op == "mod"]
        found += [joined for e in rests for joined in _joined(e, known, loops, facts)]
        new = {e: value for e, value in found if e not in known}
    return known


def _moving_part(e: Expr, loops: Ranges) -> Expr:
    """The expression without its loop-invariant terms."""
    return from_poly({m: c for m, c in poly(e).items() if any(variables(a) & loops.keys() for a in m)})


def _moving(e: Expr, value: Value, loops: Ranges) -> tuple[Expr, Value]:
    part = _moving_part(e, loops)
    return part, lambda: value() - (e - part)


def _digits(e: Expr, value: Value, loops: Ranges, where: Expr, facts: Facts) -> Iterator[tuple[Expr, Value]]:
    """The atoms that a sum determines: all of them, if each scale exceeds the range of all smaller terms together."""
    terms: list[tuple[Expr, Expr, Expr]] = []  # scale, term, atom; smallest scale first
    for monomial, c in poly(e).items():
        mine = tuple(a for a in monomial if variables(a) & loops.keys())
        if len(mine) != 1:
            return
        scale = from_poly({without(monomial, mine) or (): abs(c)})
        at = next((n for n, (s, _, _) in enumerate(terms) if _at_most(scale, s, facts)), len(terms))
        terms.insert(at, (scale, from_poly({monomial: c}), mine[0]))
    inner: Expr = ZERO
    low: Expr = ZERO
    high: Expr = ZERO
    lows: list[Expr] = []
    for scale, term, _ in terms:
        lows.append(low)
        if not any(_at_most(most + 1, scale + low, facts) for most in _bounds(inner, high, loops, where)):
            return
        inner, low, high = inner + term, low + facts.lower(term, loops), high + facts.upper(term, loops)
    stack = [(scale, low, term) for (scale, term, _), low in zip(terms, lows, strict=True)]
    for n, (_, _, atom) in enumerate(terms):
        yield atom, partial(_digit, stack[n:], value)


def _at_most(a: Expr, b: Expr, facts: Facts) -> bool:
    """Whether a <= b, of which most are numbers."""
    if isinstance(a, Const) and isinstance(b, Const):
        return a.value <= b.value
    return facts.proves(a <= b)


def _digit(terms: list[tuple[Expr, Expr, Expr]], value: Value) -> Expr:
    """The atom of the first of these terms (scale, least sum of those below it, term), from the value of the sum."""
    total = value()
    for scale, low, _ in reversed(terms[1:]):
        total = low + (total - low) % scale
    scale, low, term = terms[0]
    digit = (total - low) // scale
    return digit if all(c > 0 for c in poly(term).values()) else -digit


def _bounds(e: Expr, high: Expr, loops: Ranges, where: Expr) -> Iterator[Expr]:
    """Upper bounds of `e`: what it is at most by the extents of the loops, and by the conditions in `where`."""
    yield high
    for c in conditions(where):
        if isinstance(c, Compare) and c.op == "lt":
            limit = c.b - c.a + e
            if not variables(limit) & loops.keys():
                yield limit - 1


def _joined(e: Binary, known: Known, loops: Ranges, facts: Facts) -> Iterator[tuple[Expr, Value]]:
    """The dividend of a remainder whose quotient is known, too."""
    quotient = facts.simplify(floordiv(e.a, e.b))
    part = _moving_part(quotient, loops)
    if part in known or all(a in known for m in poly(part) for a in m if variables(a) & loops.keys()):
        rest, divisor = known[e], e.b
        yield _moving(e.a, lambda: _evaluated(quotient, part, known) * divisor + rest(), loops)


def _evaluated(e: Expr, part: Expr, known: Known) -> Expr:
    """The value of an expression whose moving part, or all atoms of it, are known."""
    if part in known:
        return known[part]() + (e - part)
    total: Expr = ZERO
    for monomial, c in poly(e).items():
        product: Expr = Const(c)
        for atom in monomial:
            product = product * (known[atom]() if atom in known else atom)
        total = total + product
    return total
