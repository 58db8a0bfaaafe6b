"""Cuts loops so that their main part is free of conditions.

A rounded-up split leaves `i_0*f + i_1 < n`, padding leaves `0 <= h - 1 < height`.  Each such condition holds for all
inner iterations on some interval of an outer loop: that interval becomes the main loop, without the condition, and the
few iterations at its ends become loops (or single iterations) of their own, where inner loops are cut in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from searchlab.codegen.plain import map_plain, own_expressions
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import (
    FALSE,
    ONE,
    TRUE,
    ZERO,
    And,
    Compare,
    Expr,
    Select,
    Substitution,
    Var,
    all_of,
    floordiv,
    maximum,
    minimum,
    poly,
    transform,
    value_of,
    variables,
    walk,
)
from searchlab.ir.program import Alloc, If, Loop, Prefetch, Seq, Stmt, Store, children, seq

# the most copies of innermost statements a cut may lead to; beyond it conditions stay, and compile time stays bounded
LIMIT = 3000
# the longest expression a cut may be at: bounds cut at other bounds grow without end, and cost more than conditions
LONGEST = 24


def partition(body: Stmt) -> Stmt:
    """The body with its loops cut."""
    result = _visit(body, Facts())
    return result if result is not None else Seq(())


@dataclass(frozen=True)
class _Segment:
    """Iterations [low, high) of a loop, in which some conditions are known."""

    low: Expr
    high: Expr
    known: dict[Expr, Expr]


def _visit(s: Stmt, facts: Facts) -> Stmt | None:
    if isinstance(s, Seq):
        parts = [p for p in (_visit(x, facts) for x in s.body) if p is not None]
        return seq(*parts) if parts else None
    if isinstance(s, If):
        condition = facts.simplify(s.condition)
        if condition == FALSE:
            return None
        body = _visit(s.body, facts)
        return body if condition == TRUE or body is None else If(condition, body)
    if isinstance(s, Alloc):
        body = _visit(s.body, facts)
        return None if body is None else replace(s, body=body)
    if isinstance(s, Loop):
        return _loop(s, facts)
    if isinstance(s, Prefetch):
        return s
    assert isinstance(s, Store)
    return map_plain(s, facts.simplify) if any(True for _ in _own_conditions(s)) else s


def _loop(loop: Loop, facts: Facts) -> Stmt | None:
    extent = value_of(loop.extent)
    if extent == 0:
        return None
    if extent == 1 and loop.kind != "parallel":
        return _visit(map_plain(loop.body, Substitution({loop.var: ZERO})), facts)
    segments = _segments(loop, facts)
    if segments is None:
        return _keep(loop, facts)
    if loop.kind == "parallel":
        return _cut_parallel(loop, segments, facts)
    made = [p for p in (_part(loop, segment, facts) for segment in segments) if p is not None]
    return seq(*made) if made else None


def _keep(loop: Loop, facts: Facts) -> Stmt | None:
    body = _visit(loop.body, facts.having({loop.var: loop.extent}))
    return None if body is None else replace(loop, body=body)


def _part(loop: Loop, segment: _Segment, facts: Facts) -> Stmt | None:
    """One segment as a loop of its own, or without a loop if it is a single iteration."""
    count = facts.simplify(segment.high - segment.low)
    body = _settle(loop.body, segment.known)
    if count == ONE:
        return _visit(map_plain(body, Substitution({loop.var: segment.low})), facts)
    if segment.low != ZERO:
        body = map_plain(body, Substitution({loop.var: loop.var + segment.low}))
    return _keep(replace(loop, extent=count, body=body), facts)


def _cut_parallel(loop: Loop, segments: list[_Segment], facts: Facts) -> Stmt | None:
    """All iterations stay in one parallel loop, so that the threads share the ends too."""
    v, inner = loop.var, facts.having({loop.var: loop.extent})
    parts: list[Stmt] = []
    for segment in segments:
        body = _settle(loop.body, segment.known)
        if facts.simplify(segment.high - segment.low) == ONE:
            body = map_plain(body, Substitution({v: segment.low}))
        done = _visit(body, inner)
        if done is not None:
            condition = inner.simplify(all_of((segment.low <= v, v < segment.high)))
            parts.append(done if condition == TRUE else If(condition, done))
    return replace(loop, body=seq(*parts)) if parts else None


def _settle(s: Stmt, known: dict[Expr, Expr]) -> Stmt:
    """The statement with conditions replaced by what is known of them."""
    if not known:
        return s
    return map_plain(s, lambda e: transform(e, lambda x: known.get(x) if isinstance(x, Compare) else None))


# --- where to cut -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bound:
    """A condition as a bound on a loop variable: above (below) `sure` it holds always, below (above) `maybe` never."""

    condition: Expr
    from_below: bool
    sure: Expr
    maybe: Expr


def _segments(loop: Loop, facts: Facts) -> list[_Segment] | None:
    """The loop's range cut where its conditions change, or None if cutting does not help."""
    inner = {lp.var: lp.extent for lp in _loops(loop.body)}
    everything = facts.having({loop.var: loop.extent, **inner})
    bounds = []
    for c in dict.fromkeys(_conditions(loop.body)):
        if loop.var in variables(c) and not everything.proves(c):
            bound = _bound(c, loop.var, inner, everything)
            if bound is not None:
                bounds.append(bound)
    if not bounds:
        return None
    below, above = [b for b in bounds if b.from_below], [b for b in bounds if not b.from_below]
    clamp = _Clamp(facts, loop.extent)
    never_low, low = clamp.maximum(b.maybe for b in below), clamp.maximum(b.sure for b in below)
    never_high, high = clamp.minimum(b.maybe for b in above), clamp.minimum(b.sure for b in above)
    if (value_of(high - low) if value_of(high - low) is not None else 1) <= 0:  # type: ignore[operator]
        low = high = never_high  # never all at once: inner loops will have to be cut
    else:
        high = facts.simplify(maximum(low, high))
    never_low, never_high = facts.simplify(minimum(never_low, low)), facts.simplify(maximum(never_high, high))
    segments = [
        _Segment(ZERO, never_low, _all_false(below)),
        _Segment(never_low, low, {}),
        _Segment(low, high, {b.condition: TRUE for b in bounds}),
        _Segment(high, never_high, {}),
        _Segment(never_high, loop.extent, _all_false(above)),
    ]
    left = [x for x in segments if not _is_empty(x, facts)]
    return left if _worthwhile(loop, left) else None


@dataclass(frozen=True)
class _Clamp:
    """Largest and smallest of several bounds, kept inside a loop's range."""

    facts: Facts
    extent: Expr

    def maximum(self, bounds: Iterable[Expr]) -> Expr:
        result: Expr = ZERO
        for b in bounds:
            result = maximum(result, b)
        return self.facts.simplify(minimum(result, self.extent))

    def minimum(self, bounds: Iterable[Expr]) -> Expr:
        result = self.extent
        for b in bounds:
            result = minimum(result, b)
        return self.facts.simplify(maximum(result, ZERO))


def _all_false(bounds: list[_Bound]) -> dict[Expr, Expr]:
    """Beyond the last place where a condition may hold it is false; with several bounds one cannot tell which."""
    return {b.condition: FALSE for b in bounds} if len({b.maybe for b in bounds}) == 1 else {}


def _is_empty(segment: _Segment, facts: Facts) -> bool:
    count = value_of(facts.simplify(segment.high - segment.low))
    return count is not None and count <= 0


def _worthwhile(loop: Loop, segments: list[_Segment]) -> bool:
    constant = all(value_of(x.low) is not None and value_of(x.high) is not None for x in segments)
    if loop.kind == "unrolled" and not constant:
        return False
    if len(segments) == 1 and not segments[0].known:
        return False
    if any(sum(1 for _ in walk(e)) > LONGEST for x in segments for e in (x.low, x.high)):
        return False
    copies = len(segments) if loop.kind != "unrolled" else value_of(loop.extent) or 1
    return _weight(loop.body) * copies <= LIMIT


def _bound(c: Expr, v: Var, inner: dict[Var, Expr], facts: Facts) -> _Bound | None:
    if not isinstance(c, Compare) or c.op not in ("lt", "le"):
        return None
    gap = c.b - c.a if c.op == "le" else c.b - c.a - 1  # c holds where gap >= 0
    scale = poly(gap).get((v,), 0)
    rest = gap - v * scale
    if scale == 0 or v in variables(rest):
        return None
    worst, best = facts.lower(rest, inner), facts.upper(rest, inner)
    if scale > 0:
        return _Bound(
            c, True, floordiv(-worst + (scale - 1), _const(scale)), floordiv(-best + (scale - 1), _const(scale))
        )
    return _Bound(c, False, floordiv(worst, _const(-scale)) + 1, floordiv(best, _const(-scale)) + 1)


def _const(n: int) -> Expr:
    return ONE * n


def _loops(s: Stmt) -> Iterator[Loop]:
    if isinstance(s, Loop):
        yield s
    for child in children(s):
        yield from _loops(child)


def _conditions(s: Stmt) -> Iterator[Expr]:
    yield from _own_conditions(s)
    for child in children(s):
        yield from _conditions(child)


def _own_conditions(s: Stmt) -> Iterator[Expr]:
    if isinstance(s, If):
        yield from _atoms(s.condition)
    elif isinstance(s, Store):
        for e in own_expressions(s)[: len(s.indices) + 1]:
            for x in walk(e):
                if isinstance(x, Select):
                    yield from _atoms(x.condition)


def _atoms(e: Expr) -> Iterator[Expr]:
    for part in e.args if isinstance(e, And) else (e,):
        if isinstance(part, Compare) and part.a.dtype == "index":
            yield part


def _weight(s: Stmt) -> int:
    """How many innermost statements the code will hold once loops are written out."""
    if isinstance(s, Store):
        return 1
    inside = sum(_weight(c) for c in children(s))
    if isinstance(s, Loop):
        extent = value_of(s.extent)
        if s.kind == "unrolled" and extent is not None:
            return inside * extent
        if s.kind == "vectorized" and extent is not None:
            return inside * min(8, extent // 8 + 1)
    return inside
