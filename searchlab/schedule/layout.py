"""transform_layout: another order of a buffer's elements (packing, also of constant weights ahead of time)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from searchlab.errors import ScheduleError
from searchlab.ir.algebra import ceildiv
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ONE, TRUE, ZERO, Binary, Expr, Like, Load, Var, all_of, const, index, select
from searchlab.ir.program import Layout, Program
from searchlab.ir.statement_tree import kept, path_to, read
from searchlab.ir.stmt import Block, Iter, Loop, Stmt, Store
from searchlab.ir.walk import Substitution, transform, variables
from searchlab.schedule.primitive import (
    MadeNames,
    check,
    fresh,
    is_leaf,
    loops_around,
    nearest,
    primitive,
    producers,
)

Map = Callable[..., Sequence[Like]] | tuple[tuple[Var, ...], tuple[Expr, ...]]


@dataclass(frozen=True, slots=True)
class _LayoutDigit:
    """One new dimension: (x // low) % extent, x one or several fused old indices; the leading digit has no extent."""

    source: tuple[Var, ...]
    low: Expr
    extent: Expr | None


@primitive
def transform_layout(program: Program, buffer: str, mapping: Map) -> MadeNames:
    """Change the layout of a buffer; `mapping` takes the old indices and returns the new ones.

        B[k, j]   =>   B[j // 16, k, j % 16]        with mapping = lambda k, j: (j // 16, k, j % 16)

    Each new index is an old one, its quotient, its remainder, or the remainder of a quotient; adjacent indices may be
    fused, as in `lambda i, j: (i * n + j,)`.  The stage that fills the buffer then iterates in the new order.  Callers
    still pass an input in its old shape: it is packed before the kernel runs, only once if bound as a constant.
    """
    check(buffer in program.buffers, lambda: nearest("buffer", buffer, program.buffers))
    check(buffer not in program.outputs, f"'{buffer}' is an output, which keeps its shape; cache_write it first")
    old = program.buffers[buffer]
    olds, news = evaluated_map(mapping, len(old.shape), f"'{buffer}' has {len(old.shape)} dimensions")
    sizes = dict(zip(olds, old.shape, strict=True))
    digits = [_digit(e, sizes, buffer) for e in news]
    facts = program.facts.having(sizes)
    shape = tuple(_extent(d, sizes) for d in digits)
    fresh_vars = tuple(Var(f"u{n}") for n in range(len(digits)))
    inverse, guard = _invert(digits, sizes, fresh_vars, buffer, facts)

    def access(indices: tuple[Expr, ...], block: Block) -> tuple[Expr, ...]:
        put = Substitution(dict(zip(olds, indices, strict=True)))
        known = facts.having({it.var: it.extent for it in block.iters})
        return tuple(known.simplify(put(e)) for e in news)

    refill = {
        b.name: _reiterate(program, b, fresh_vars, shape, inverse, guard)
        for b in producers(program, buffer)
        if _is_plain_copy(program, b)
    }
    body = _rewrite_accesses(program, buffer, access, refill)
    buffers = {**program.buffers, buffer: replace(old, shape=shape)}
    layouts = program.layouts
    if buffer in program.inputs:
        given = next((la for la in layouts if la.buffer == buffer), None)
        in_order = given is None or given.source == given.iters  # as `widen` leaves it
        check(in_order, f"input '{buffer}' has been given another layout already")
        original = old if given is None else given.original
        layouts = (*(la for la in layouts if la is not given), Layout(buffer, original, fresh_vars, inverse, guard))
    changed = program.with_body(body, buffers=buffers, layouts=layouts)
    return MadeNames(changed, recorded=(("mapping", (olds, news)),))


def evaluated_map(mapping: Map, rank: int, said: str) -> tuple[tuple[Var, ...], tuple[Expr, ...]]:
    """A mapping of indices as variables and expressions of them; `said` begins the message if it takes others."""
    if isinstance(mapping, tuple):
        olds, news = mapping
        check(len(olds) == rank, f"{said}, the mapping takes {len(olds)}")
        return tuple(olds), tuple(news)
    olds = tuple(Var(f"x{n}") for n in range(rank))
    try:
        return olds, tuple(index(e) for e in mapping(*olds))
    except TypeError as e:
        raise ScheduleError(f"{said}: {e}") from None


def _digit(e: Expr, sizes: dict[Var, Expr], buffer: str) -> _LayoutDigit:
    if e == ZERO:  # the result of x % 1
        return _LayoutDigit((), ONE, ONE)
    inner, extent = (e.a, e.b) if isinstance(e, Binary) and e.op == "mod" else (e, None)
    inner, low = (inner.a, inner.b) if isinstance(inner, Binary) and inner.op == "floordiv" else (inner, ONE)
    source = tuple(v for v in sizes if v in variables(inner))
    fused: Expr = ZERO
    for v in source:
        fused = fused * sizes[v] + v
    accepted = "x, x // c, x % c, (x // c) % d, with x an index or neighbouring ones fused"
    check(bool(source) and inner == fused, f"'{e}' is not a digit of an index of '{buffer}'; accepted: {accepted}")
    return _LayoutDigit(source, low, extent)


def _whole(source: tuple[Var, ...], sizes: dict[Var, Expr]) -> Expr:
    total: Expr = ONE
    for v in source:
        total = total * sizes[v]
    return total


def _extent(d: _LayoutDigit, sizes: dict[Var, Expr]) -> Expr:
    return d.extent if d.extent is not None else ceildiv(_whole(d.source, sizes), d.low)


def _invert(
    digits: list[_LayoutDigit], sizes: dict[Var, Expr], news: tuple[Var, ...], buffer: str, facts: Facts
) -> tuple[tuple[Expr, ...], Expr]:
    """The old indices in terms of the new ones, and the condition that they are inside the old shape."""
    found: dict[Var, Expr] = {}
    guards = []
    for source in dict.fromkeys(d.source for d in digits):
        parts = [(d, n) for d, n in zip(digits, news, strict=True) if d.source == source]
        total, covered = _compose(parts, _whole(source, sizes), buffer)
        enough = any(d.extent is None for d, _ in parts) or facts.proves(_whole(source, sizes) <= covered)
        names = ", ".join(v.name for v in source)
        check(enough, f"the mapping of '{buffer}' loses '{names}' from {covered} on; add '{names} // {covered}'")
        if covered != _whole(source, sizes):
            guards.append(total < _whole(source, sizes))
        for v in reversed(source):
            check(v not in found, f"the mapping of '{buffer}' uses the index '{v}' twice")
            found[v] = total % sizes[v] if v != source[0] else total
            total = total // sizes[v]
    for v in sizes:
        check(v in found, f"the mapping of '{buffer}' loses the index '{v}'")
    return tuple(found[v] for v in sizes), all_of(guards)


def _compose(parts: list[tuple[_LayoutDigit, Var]], whole: Expr, buffer: str) -> tuple[Expr, Expr]:
    """The number that the digits represent, and the size of their range."""
    covered: Expr = ONE
    total: Expr = ZERO
    left = list(parts)
    while left:
        part = next((p for p in left if p[0].low == covered), None)
        names = ", ".join(v.name for v in parts[0][0].source)
        check(
            part is not None,
            f"the mapping of '{buffer}' does not take '{names}' apart completely: no part begins at {covered}",
        )
        assert part is not None
        left.remove(part)
        digit, new = part
        total = total + new * digit.low
        check(digit.extent is not None or not left, f"the mapping of '{buffer}' uses digits of '{names}' twice")
        covered = covered * digit.extent if digit.extent is not None else ceildiv(whole, digit.low) * digit.low
    return total, covered


def _is_plain_copy(program: Program, b: Block) -> bool:
    """Whether a stage fills its whole buffer in a plain loop nest of its own, which can therefore be regenerated."""
    nest, path = loops_around(program, b.name), path_to(program.body, b)
    alone = bool(nest) and all(isinstance(s, Loop) for s in path[path.index(nest[0]) : -1])
    adds = b.init is not None or b.store.buffer in read(b)
    plain = not adds and not b.reduces and all(isinstance(i, Var) for i in b.store.indices)
    sizes: dict[Expr, Expr] = {it.var: it.extent for it in b.iters}
    plain = plain and sizes.keys() == set(b.store.indices)
    plain = plain and tuple(sizes[i] for i in b.store.indices) == program.buffers[b.store.buffer].shape
    return alone and plain and b.predicate == TRUE and tuple(lp.var for lp in nest) == b.bindings


def _rewrite_accesses(
    program: Program,
    buffer: str,
    access: Callable[[tuple[Expr, ...], Block], tuple[Expr, ...]],
    refill: dict[str, Stmt],
) -> Stmt:
    """The body with accesses to the buffer in new indices; stages in `refill` are replaced as a whole."""

    def rewrite(b: Block) -> Stmt:
        def load(e: Expr) -> Expr | None:
            return Load(buffer, access(e.indices, b), e.type) if isinstance(e, Load) and e.buffer == buffer else None

        def store(s: Store) -> Store:
            value = transform(s.value, load)
            return Store(s.buffer, access(s.indices, b) if s.buffer == buffer else s.indices, value)

        return replace(b, body=store(b.store), init=None if b.init is None else store(b.init))

    tops = {loops_around(program, name)[0].name: nest for name, nest in refill.items()}

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Loop) and s.name in tops:
            return tops[s.name]
        if isinstance(s, Block) and is_leaf(s):
            return rewrite(s)
        return kept(s.map_children(visit))

    return visit(program.body)


def _reiterate(
    program: Program, b: Block, news: tuple[Var, ...], shape: tuple[Expr, ...], inverse: tuple[Expr, ...], guard: Expr
) -> Stmt:
    """The filling stage with one loop per new dimension; outside the old shape it stores zero."""
    at = dict(zip(b.store.indices, inverse, strict=True))
    iters = tuple(Iter(Var(f"v{n}"), e) for n, e in enumerate(shape))
    to_iters = Substitution({u: it.var for u, it in zip(news, iters, strict=True)})
    put = Substitution({v: to_iters(e) for v, e in at.items()})
    value = put(b.store.value)
    if guard != TRUE:
        value = select(to_iters(guard), value, const(0, value.dtype))
    loops = [(Var(fresh(program, f"{b.name}_u{n}")), e) for n, e in enumerate(shape)]
    store = Store(b.store.buffer, tuple(it.var for it in iters), value)
    body: Stmt = Block(b.name, iters, tuple(v for v, _ in loops), store, None, TRUE, b.annotations)
    for var, extent in reversed(loops):
        body = Loop(var, extent, body)
    return body
