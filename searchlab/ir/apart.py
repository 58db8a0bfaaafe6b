"""Injectivity of index maps: whether no two iterations of a loop nest access the same element."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from searchlab.ir.algebra import floordiv, from_poly, poly, without
from searchlab.ir.bounds import Facts, Ranges
from searchlab.ir.expr import ONE, ZERO, Binary, Compare, Expr, conditions
from searchlab.ir.walk import variables


def told_apart(places: Iterable[Expr], loops: Ranges, where: Expr, facts: Facts) -> bool:
    """Whether the values of `places` determine the variables of `loops`, wherever the condition `where` holds.

    The proof treats indices as mixed-radix numbers: `i*8 + j` determines i and j if j < 8, and `f // 5` with `f % 5`
    determines f.  False means 'not proved'.
    """
    loops = {v: extent for v, extent in loops.items() if extent != ONE}
    known: set[Expr] = set()
    new = {_moving_part(e, loops) for e in places}
    while new - known:
        known |= new
        new = {part for e in known for part in _digits(e, loops, where, facts)}
        new |= {joined for e in known for joined in _joined(e, known, loops, facts)}
    return all(v in known for v in loops)


def _moving_part(e: Expr, loops: Ranges) -> Expr:
    """The expression without its loop-invariant terms."""
    return from_poly({m: c for m, c in poly(e).items() if any(variables(a) & loops.keys() for a in m)})


def _digits(e: Expr, loops: Ranges, where: Expr, facts: Facts) -> list[Expr]:
    """The atoms that a sum determines: all of them, if each scale exceeds the range of all smaller terms together."""
    terms: list[tuple[Expr, Expr]] = []
    for monomial, c in poly(e).items():
        mine = tuple(a for a in monomial if variables(a) & loops.keys())
        if len(mine) != 1:
            return []
        scale = from_poly({without(monomial, mine) or (): abs(c)})
        at = next((n for n, (s, _) in enumerate(terms) if facts.proves(scale <= s)), len(terms))
        terms.insert(at, (scale, from_poly({monomial: c})))
    inner: Expr = ZERO
    for scale, term in terms:
        room = scale + facts.lower(inner, loops)
        if not any(facts.proves(most < room) for most in _bounds(inner, loops, where, facts)):
            return []
        inner = inner + term
    return [a for m in poly(e) for a in m if variables(a) & loops.keys()]


def _bounds(e: Expr, loops: Ranges, where: Expr, facts: Facts) -> Iterator[Expr]:
    """Upper bounds of `e`, from the extents of the loops and from the conditions in `where`."""
    yield facts.upper(e, loops)
    for c in conditions(where):
        if isinstance(c, Compare) and c.op == "lt":
            limit = c.b - c.a + e
            if not variables(limit) & loops.keys():
                yield limit - 1


def _joined(e: Expr, known: set[Expr], loops: Ranges, facts: Facts) -> Iterator[Expr]:
    """The dividend, if `e` is a remainder whose quotient is known too."""
    if isinstance(e, Binary) and e.op == "mod":
        quotient = _moving_part(facts.simplify(floordiv(e.a, e.b)), loops)
        if quotient in known or all(a in known for m in poly(quotient) for a in m if variables(a) & loops.keys()):
            yield _moving_part(e.a, loops)
