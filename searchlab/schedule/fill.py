"""decompose_padding: a padding stage becomes one that fills with the pad value, and one that copies the inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ONE, ZERO, Compare, Const, Expr, Select, Var, all_of, compare, conditions
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import path_to
from searchlab.ir.stmt import Block, Iter, Loop, Stmt, Store, seq
from searchlab.ir.walk import Substitution, loads, variables
from searchlab.schedule.primitive import (
    MadeNames,
    check,
    find_block,
    find_loop,
    fresh,
    is_leaf,
    primitive,
    replaced,
)
from searchlab.schedule.stages import check_only_writer


@primitive
def decompose_padding(program: Program, block: str, loop: str) -> MadeNames:
    """Fill with the pad value before a loop, which then copies only the inside, without a condition.

        for i in 10: P[i] = X[i - 1] if 1 <= i < 9 else 0
        =>  for i in 10: P[i] = 0
            for i in 8: P[i + 1] = X[i]

    Loops that run over an iteration variable alone are shortened; the others are masked by predicates.
    """
    b = find_block(program, block)
    lp = find_loop(program, loop)
    check(is_leaf(b) and not b.reduces and b.init is None, f"block '{block}' is not a stage that pads")
    nest = [s for s in path_to(lp, b)[:-1] if isinstance(s, Loop)]
    check(bool(nest), f"loop '{loop}' is not around block '{block}'")
    alone = len(nest) == len(path_to(lp, b)) - 1
    check(alone, f"'{block}' shares loop '{loop}' with other statements or blocks; decompose its padding before that")
    check_only_writer(program, b)
    value = b.store.value
    pads = isinstance(value, Select) and isinstance(value.b, Const) and not loads(value.condition)
    check(pads, f"block '{block}' does not store a constant where a condition on indices fails: '{value}'")
    assert isinstance(value, Select)
    check(b.store.buffer not in {ld.buffer for ld in loads(value)}, f"block '{block}' reads what it stores")
    name = fresh(program, f"{block}_fill")
    fill = _filled(program, b, nest, value.b, name)
    inside = _inside(program, replace(b, body=replace(b.store, value=value.a)), nest, value.condition)
    return MadeNames(program.with_body(replaced(program, lp, seq(fill, inside))), (name,))


def _filled(program: Program, b: Block, nest: list[Loop], pad: Expr, name: str) -> Stmt:
    """The same loops under other names, storing the pad value."""
    renamed: dict[Var, Expr] = {lp.var: Var(fresh(program, f"{name}_{lp.name}")) for lp in nest}
    put = Substitution(renamed)
    store = Store(b.store.buffer, b.store.indices, pad)
    body: Stmt = Block(name, b.iters, tuple(map(put, b.bindings)), store, None, put(b.predicate))
    for lp in reversed(nest):
        var = renamed[lp.var]
        assert isinstance(var, Var)
        body = replace(lp, var=var, body=body)
    return body


@dataclass(frozen=True, slots=True)
class _Span:
    """The values of an iteration variable that are inside: [low, high)."""

    low: Expr
    high: Expr


def _inside(program: Program, b: Block, nest: list[Loop], condition: Expr) -> Stmt:
    """The block on the part of its domain where the condition holds, in loops that are shortened where they can be."""
    known = program.facts.having({it.var: it.extent for it in b.iters})
    spans = {it.var: _Span(ZERO, it.extent) for it in b.iters}
    for c in conditions(condition):
        spans |= _narrowed(c, spans, known)
    iters = tuple(
        Iter(it.var, known.simplify(s.high - s.low), it.kind) for it, s in zip(b.iters, spans.values(), strict=True)
    )
    shift = Substitution({v: v + s.low for v, s in spans.items() if s.low != ZERO})
    extents = {lp.var: lp.extent for lp in nest}
    bindings: list[Expr] = []
    guards = list(conditions(b.predicate))
    for it, new, e in zip(b.iters, iters, b.bindings, strict=True):
        users = sum(e in variables(x) for x in (*b.bindings, *guards)) if isinstance(e, Var) else 0
        if isinstance(e, Var) and e in extents and extents[e] == it.extent and users == 1:
            extents[e] = new.extent  # the loop now begins at the first element inside
            bindings.append(e)
            continue
        moved = e - spans[it.var].low
        guards += [c for c in (compare("le", ZERO, moved), moved < new.extent) if not program.facts.proves(c)]
        bindings.append(moved)
    simple = Facts({it.var: it.extent for it in iters}, program.assumptions).simplify
    store = b.store.rebuild(lambda e: simple(shift(e)))
    body: Stmt = replace(b, iters=iters, bindings=tuple(bindings), body=store, predicate=all_of(guards))
    for lp in reversed(nest):
        body = replace(lp, extent=extents[lp.var], body=body)
    return body


def _narrowed(c: Expr, spans: Mapping[Var, _Span], facts: Facts) -> dict[Var, _Span]:
    """The span of the iteration variable that a condition is about, narrowed by it."""
    found = [v for v in variables(c) if v in spans]
    accepted = "accepted: bounds of one iteration variable each"
    check(isinstance(c, Compare) and c.op in ("lt", "le") and len(found) == 1, f"cannot cut along '{c}'; {accepted}")
    assert isinstance(c, Compare)
    v, gap = found[0], c.b - c.a + (ONE if c.op == "le" else ZERO)  # holds where gap > 0
    span = spans[v]
    if v not in variables(gap + v):  # v < limit
        new = _Span(span.low, gap + v)
        tighter = facts.proves(compare("le", new.high, span.high))
    else:  # v > -limit
        check(v not in variables(gap - v), f"cannot cut along '{c}'; {accepted}")
        new = _Span(v - gap + 1, span.high)
        tighter = facts.proves(compare("le", span.low, new.low))
    check(tighter and facts.proves(compare("lt", new.low, new.high)), f"'{c}' may leave nothing, or all, of '{v}'")
    return {v: new}
