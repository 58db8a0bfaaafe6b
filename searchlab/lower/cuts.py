"""Where loops are cut: conditions as bounds on a loop variable, and the segments of its range between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from searchlab.ir.algebra import floordiv, poly
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import FALSE, ONE, TRUE, ZERO, Binary, Compare, Expr, Var, maximum, minimum, value_of
from searchlab.ir.walk import variables


@dataclass(frozen=True)
class Segment:
    """Iterations [low, high) of a loop, and the conditions decided in them.

    `partial` has the conditions that hold for some of the iterations inside and not for others, if they are equal ones,
    such as those of several stages on the rows of one tile.
    """

    low: Expr
    high: Expr
    known: dict[Expr, Expr]
    partial: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class Bound:
    """A condition as a bound on a loop variable: above (below) `sure` it always holds, below (above) `maybe` never."""

    condition: Expr
    from_below: bool
    sure: Expr
    maybe: Expr


def cuts(bounds: list[Bound], extent: Expr, facts: Facts) -> list[Segment]:
    """The range of a loop as five segments in which the conditions hold never, sometimes, always, sometimes, never."""
    below, above = [b for b in bounds if b.from_below], [b for b in bounds if not b.from_below]
    clamp = _Clamp(facts, extent)
    never_low, low = clamp.maximum(b.maybe for b in below), clamp.maximum(b.sure for b in below)
    never_high, high = clamp.minimum(b.maybe for b in above), clamp.minimum(b.sure for b in above)
    if (value_of(high - low) if value_of(high - low) is not None else 1) <= 0:  # type: ignore[operator]
        low = high = never_high  # no iteration satisfies all conditions: inner loops will have to be cut
    else:
        high = facts.simplify(_larger(low, high))
    equal = len({(b.from_below, b.sure, b.maybe) for b in bounds}) == 1
    partial = tuple(b.condition for b in bounds) if equal else ()
    never_low, never_high = facts.simplify(_smaller(never_low, low)), facts.simplify(_larger(never_high, high))
    return [
        Segment(ZERO, never_low, _all_false(below)),
        Segment(never_low, low, {}, partial),
        Segment(low, high, {b.condition: TRUE for b in bounds}),
        Segment(high, never_high, {}, partial),
        Segment(never_high, extent, _all_false(above)),
    ]


@dataclass(frozen=True)
class _Clamp:
    """Maximum and minimum of several bounds, clamped to the range of a loop."""

    facts: Facts
    extent: Expr

    def maximum(self, bounds: Iterable[Expr]) -> Expr:
        result: Expr = ZERO
        for b in bounds:
            result = _larger(result, b)
        return self.facts.simplify(_smaller(result, self.extent))

    def minimum(self, bounds: Iterable[Expr]) -> Expr:
        result = self.extent
        for b in bounds:
            result = _smaller(result, b)
        return self.facts.simplify(_larger(result, ZERO))


def _larger(a: Expr, b: Expr) -> Expr:
    return b if _at_most(a, b) else a if _at_most(b, a) else maximum(a, b)


def _smaller(a: Expr, b: Expr) -> Expr:
    return a if _at_most(a, b) else b if _at_most(b, a) else minimum(a, b)


def _at_most(a: Expr, b: Expr) -> bool:
    """Whether a <= b, as both are quotients by one number and the first dividend is not larger.

    Whole tiles of a run-time size end at n // 6, all of them at (n + 5) // 6.
    """
    if not isinstance(a, Binary) or not isinstance(b, Binary) or not a.op == b.op == "floordiv" or a.b != b.b:
        return a == b
    gap = value_of(b.a - a.a)
    return gap is not None and gap >= 0 and (value_of(a.b) or 0) > 0


def moving(bounds: list[Bound]) -> int:
    """The number of distinct cuts that depend on other loops."""
    return len({e for b in bounds for e in (b.sure, b.maybe) if any(v.role == "iter" for v in variables(e))})


def _all_false(bounds: list[Bound]) -> dict[Expr, Expr]:
    """The conditions that are false beyond their common bound; with different bounds, it is not known which are."""
    return {b.condition: FALSE for b in bounds} if len({b.maybe for b in bounds}) == 1 else {}


def is_empty(segment: Segment, facts: Facts) -> bool:
    count = value_of(facts.simplify(segment.high - segment.low))
    return count is not None and count <= 0


def bound(came: Expr, c: Expr, v: Var, inner: dict[Var, Expr], facts: Facts) -> Bound | None:
    """The bound on `v` given by the condition `c`, whose original form is `came`."""
    if not isinstance(c, Compare) or c.op not in ("lt", "le"):
        return None
    gap = c.b - c.a if c.op == "le" else c.b - c.a - 1  # c holds where gap >= 0
    scale = poly(gap).get((v,), 0)
    rest = gap - v * scale
    if scale == 0 or v in variables(rest):
        return None
    worst, best = facts.lower(rest, inner), facts.upper(rest, inner)
    if scale > 0:
        return Bound(
            came, True, floordiv(-worst + (scale - 1), _const(scale)), floordiv(-best + (scale - 1), _const(scale))
        )
    return Bound(came, False, floordiv(worst, _const(-scale)) + 1, floordiv(best, _const(-scale)) + 1)


def _const(n: int) -> Expr:
    return ONE * n
