"""Cuts loops so that their main part is free of conditions.

A rounded-up split leaves `i_0*f + i_1 < n`, padding leaves `0 <= h - 1 < height`.  Each such condition holds for all
inner iterations on some interval of an outer loop: that interval becomes the main loop, without the condition, and the
few iterations at its ends become loops (or single iterations) of their own, where inner loops are cut in turn.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from searchlab.ir.program import Alloc, If, Loop, Seq, Stmt, Store, children, seq

# the most copies of innermost statements a cut may lead to; beyond it conditions stay, and compile time stays bounded
LIMIT = 3000


def partition(body: Stmt) -> Stmt:
    """The body with its loops cut."""
    result = _visit(body, Facts())
    return result if result is not None else Seq(())


@dataclass(frozen=True)
class _Cut:
    """Where a loop's conditions hold: [low, high); outside, those in `false_below`/`false_above` do not."""

    low: Expr
    high: Expr
    conditions: tuple[Expr, ...]
    false_below: tuple[Expr, ...]
    false_above: tuple[Expr, ...]


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
    assert isinstance(s, Store)
    return map_plain(s, facts.simplify) if any(True for _ in _own_conditions(s)) else s


def _loop(loop: Loop, facts: Facts) -> Stmt | None:
    extent = value_of(loop.extent)
    if extent == 0:
        return None
    if extent == 1 and loop.kind != "parallel":
        return _visit(map_plain(loop.body, Substitution({loop.var: ZERO})), facts)
    cut = _find_cut(loop, facts)
    if cut is None:
        return _keep(loop, facts)
    if loop.kind == "parallel":
        return _cut_parallel(loop, cut, facts)
    main = {c: TRUE for c in cut.conditions}
    parts = (
        _part(loop, ZERO, cut.low, {c: FALSE for c in cut.false_below}, facts, main=False),
        _part(loop, cut.low, cut.high, main, facts, main=True),
        _part(loop, cut.high, loop.extent, {c: FALSE for c in cut.false_above}, facts, main=False),
    )
    made = [p for p in parts if p is not None]
    return seq(*made) if made else None


def _keep(loop: Loop, facts: Facts) -> Stmt | None:
    body = _visit(loop.body, facts.having({loop.var: loop.extent}))
    return None if body is None else replace(loop, body=body)


def _part(loop: Loop, low: Expr, high: Expr, known: dict[Expr, Expr], facts: Facts, *, main: bool) -> Stmt | None:
    """The iterations [low, high) of a loop, in which some conditions are known."""
    count = facts.simplify(high - low)
    if (value_of(count) if value_of(count) is not None else 1) <= 0:  # type: ignore[operator]
        return None
    body = _settle(loop.body, known)
    if count == ONE:
        return _visit(map_plain(body, Substitution({loop.var: low})), facts)
    if low != ZERO:
        body = map_plain(body, Substitution({loop.var: loop.var + low}))
    new = replace(loop, extent=count, body=body)
    return _loop(new, facts) if main else _keep(new, facts)


def _cut_parallel(loop: Loop, cut: _Cut, facts: Facts) -> Stmt | None:
    """All iterations stay in one parallel loop, so that the threads share the ends too."""
    v, inner = loop.var, facts.having({loop.var: loop.extent})
    parts: list[Stmt] = []
    ends = (
        (v < cut.low, ZERO, cut.low, cut.false_below),
        (cut.high <= v, cut.high, loop.extent, cut.false_above),
    )
    for condition, low, high, known in ends:
        if inner.simplify(condition) == FALSE:
            continue
        body = _settle(loop.body, {c: FALSE for c in known})
        if facts.simplify(high - low) == ONE:
            body = map_plain(body, Substitution({v: low}))
        done = _visit(body, inner)
        if done is not None:
            parts.append(If(condition, done))
    main = _visit(_settle(loop.body, {c: TRUE for c in cut.conditions}), inner)
    if main is not None:
        condition = inner.simplify(all_of((cut.low <= v, v < cut.high)))
        parts.insert(0, main if condition == TRUE else If(condition, main))
    return replace(loop, body=seq(*parts)) if parts else None


def _settle(s: Stmt, known: dict[Expr, Expr]) -> Stmt:
    """The statement with conditions replaced by what is known of them."""
    if not known:
        return s
    return map_plain(s, lambda e: transform(e, lambda x: known.get(x) if isinstance(x, Compare) else None))


# --- where to cut -----------------------------------------------------------------------------------------------------


def _find_cut(loop: Loop, facts: Facts) -> _Cut | None:
    inner = {lp.var: lp.extent for lp in _loops(loop.body)}
    everything = facts.having({loop.var: loop.extent, **inner})
    low: Expr = ZERO
    high: Expr = loop.extent
    held: list[Expr] = []
    below: dict[Expr, Expr] = {}
    above: dict[Expr, Expr] = {}
    blurred = {"below": False, "above": False}
    for c in dict.fromkeys(_conditions(loop.body)):
        if loop.var not in variables(c) or everything.proves(c):
            continue
        bound = _bound(c, loop.var, inner, everything)
        if bound is None:
            continue
        is_low, at, sharp = bound
        held.append(c)
        side, name = (below, "below") if is_low else (above, "above")
        blurred[name] |= not sharp or (bool(side) and at not in side.values())
        side[c] = at
        low, high = (maximum(low, at), high) if is_low else (low, minimum(high, at))
    if not held:
        return None
    outer = facts.having({})
    low = outer.simplify(minimum(low, loop.extent))
    high = outer.simplify(maximum(high, low))
    if not _worthwhile(loop, low, high):
        return None
    return _Cut(low, high, tuple(held), () if blurred["below"] else tuple(below), () if blurred["above"] else tuple(above))


def _worthwhile(loop: Loop, low: Expr, high: Expr) -> bool:
    constant = value_of(low) is not None and value_of(high) is not None
    if loop.kind == "unrolled" and not constant:
        return False
    # conditions that never hold for all inner iterations: an inner loop will have to be cut
    if constant and value_of(high - low) == 0 and (low != loop.extent or any(True for _ in _loops(loop.body))):
        return False
    return _weight(loop.body) * (3 if loop.kind != "unrolled" else value_of(loop.extent) or 1) <= LIMIT


def _bound(c: Expr, v: Var, inner: dict[Var, Expr], facts: Facts) -> tuple[bool, Expr, bool] | None:
    """(is it a lower bound, the bound on v from which (below which) c holds for all inner iterations, is it exact)."""
    if not isinstance(c, Compare) or c.op not in ("lt", "le"):
        return None
    gap = c.b - c.a if c.op == "le" else c.b - c.a - 1  # c holds where gap >= 0
    scale = poly(gap).get((v,), 0)
    rest = gap - v * scale
    if scale == 0 or v in variables(rest):
        return None
    worst = facts.lower(rest, inner)
    sharp = not variables(rest) & inner.keys()
    if scale > 0:
        return True, floordiv(-worst + (scale - 1), _const(scale)), sharp
    return False, floordiv(worst, _const(-scale)) + 1, sharp


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
