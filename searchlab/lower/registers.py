"""Register blocking: decides where reductions are initialised and where they are accumulated.

A reduction tile that is indexed by unrolled and vectorised loops only is kept in registers during the serial loops that
accumulate into it: loaded (or initialised) before, stored after.  A vectorised reduction loop gets one partial result
per lane, combined at the end.  All other reductions are initialised before the outermost loop that carries them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial

from searchlab.ir.apart import told_apart
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import (
    FALSE,
    ONE,
    TRUE,
    ZERO,
    Binary,
    Compare,
    Expr,
    Load,
    Var,
    all_of,
    compare,
    conditions,
    index,
    value_of,
)
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.statement_tree import kept, own_accesses, swap, touches
from searchlab.ir.stmt import Alloc, Buffer, If, Loop, Seq, Stmt, Store, Tensorized, Update, seq
from searchlab.ir.sums import as_sum, identity
from searchlab.ir.visitor import Rewriter
from searchlab.ir.walk import Substitution, iterators, variables
from searchlab.targets import Target

REGISTER = "register"
# larger tiles would be spilled to memory anyway, and only cost compile time
MOST_VECTORS = 96


def place_reductions(body: Stmt, target: Target) -> Stmt:
    """The body without Updates: accumulators in registers where they fit, otherwise inits before the loops."""
    return kept(_Placer(target).visit(kept(_Lifted().visit(body)), Facts()))


class _Lifted(Rewriter[[]]):
    """Hoists loop-invariant conditions out of loops."""

    def visit_if(self, s: If) -> Stmt | None:
        body = self.visit(s.body)
        if isinstance(body, If):
            return If(all_of((s.condition, body.condition)), body.body)
        return If(s.condition, kept(body))

    def visit_loop(self, s: Loop) -> Stmt | None:
        body = kept(self.visit(s.body))
        if not isinstance(body, If):
            return s.with_body(body)
        parts = conditions(body.condition)
        changing = all_of(c for c in parts if s.var in variables(c))
        fixed = all_of(c for c in parts if s.var not in variables(c))
        return _guarded(fixed, s.with_body(_guarded(changing, body.body)))


@dataclass(frozen=True)
class _PlacedSum:
    """A store `x = x <op> term`, with or without an init."""

    store: Store
    op: str
    term: Expr
    first: Expr
    init: Expr | None
    path: tuple[Stmt, ...]  # from the promoted loop down to the store

    @cached_property
    def space(self) -> frozenset[Var]:
        return frozenset(v for i in self.store.indices for v in variables(i))

    @cached_property
    def loops(self) -> list[Loop]:
        return [s for s in self.path if isinstance(s, Loop)]

    @cached_property
    def around(self) -> list[Loop]:
        """The loops that are not inside an intrinsic."""
        inside = next((n for n, s in enumerate(self.path) if isinstance(s, Tensorized)), len(self.path))
        return [s for s in self.path[:inside] if isinstance(s, Loop)]

    @cached_property
    def tile(self) -> list[Loop]:
        """The loops that iterate over the elements."""
        return [lp for lp in self.loops if lp.var in self.space]

    @cached_property
    def lanes(self) -> list[Loop]:
        """The vectorised loops that reduce into one element, with one partial result per lane."""
        return [lp for lp in self.loops if lp.kind == LoopKind.VECTORIZED and lp.var not in self.space]

    @cached_property
    def asked(self) -> list[Expr]:
        """The conditions that guard the accumulation."""
        return [c for s in self.path if isinstance(s, If) for c in conditions(s.condition)]

    def repeats(self, lp: Loop) -> bool:
        """Whether a loop neither iterates over elements nor carries the sum: each iteration restarts the sum."""
        return lp.var not in self.space and lp.var not in variables(self.first)

    def masks(self, c: Expr, facts: Facts) -> bool:
        """Whether a condition may keep elements from being written at all: false for all terms, even the first."""
        if not variables(c) & self.space:
            return False
        start = Substitution({v: ZERO for v in iterators(self.first)})
        return not facts.having({lp.var: lp.extent for lp in self.tile}).proves(start(c))

    def may_skip(self, facts: Facts) -> bool:
        """Whether the reduction loops may be empty for some elements, which must then stay untouched."""
        moving = {v for v in self.space if v.role == "iter"}
        carrying = (lp.extent for lp in self.loops if lp.var not in self.space)
        return any(variables(e) & moving and not facts.proves(compare("le", ONE, e)) for e in carrying)


class _Placer(Rewriter[[Facts]]):
    def __init__(self, target: Target) -> None:
        self.target = target
        self.tiles: set[str] = set()

    def visit_loop(self, s: Loop, facts: Facts) -> Stmt | None:
        promoted = self.promote(s, facts) if s.kind in (LoopKind.SERIAL, LoopKind.UNROLLED) else None
        if promoted is not None:
            return promoted
        decomposed = self.decompose(s, facts)
        if decomposed is not None:
            return self.visit(decomposed, facts)
        return self.other(s, facts.having({s.var: s.extent}))

    def visit_update(self, s: Update, facts: Facts) -> Stmt | None:
        return in_place(s, facts)

    def visit_tensorized(self, s: Tensorized, facts: Facts) -> Stmt | None:
        """An intrinsic stays whole, so an init that no loop around it has taken goes right before it."""
        found = _sums(s, ())
        init = _init_nest(found[0], facts) if found and found[0].init is not None else Seq(())
        if not found or init is None:
            return self.visit(s.body, facts)
        store = found[0].store
        return seq(init, kept(swap(s, store, Store(store.buffer, store.indices, store.value))))

    # --- accumulators in registers ------------------------------------------------------------------------------------

    def promote(self, loop: Loop, facts: Facts) -> Stmt | None:
        """The loop with the sums it carries promoted to registers, or None if there are none."""
        found = [x for x in _sums(loop, ()) if self.fits(x, loop, facts)]
        if not found:
            return None
        before: list[Stmt] = []
        after: list[Stmt] = []
        allocs: list[Buffer] = []
        body: Stmt = loop
        for x in found:
            new, pre, post, buffer = self.accumulate(x, loop, facts)
            body = kept(swap(body, x.store, new))
            before.append(pre)
            after.append(post)
            allocs.append(buffer)
        assert isinstance(body, Loop)
        inner = body.with_body(kept(self.visit(body.body, facts.having({loop.var: loop.extent}))))
        result: Stmt = seq(*before, inner, *after)
        for buffer in allocs:
            result = Alloc(buffer, result)
        return result

    def fits(self, x: _PlacedSum, loop: Loop, facts: Facts) -> bool:
        if x.store.buffer in self.tiles or loop.var in x.space:
            return False
        if any(lp.kind == LoopKind.PARALLEL or (x.init is not None and x.repeats(lp)) for lp in x.loops):
            return False
        vectors = self.vectors(x)
        if vectors is None or vectors > MOST_VECTORS:
            return False
        if any(x.masks(c, facts) for c in x.asked) or x.may_skip(facts):
            return False  # elements that a condition masks must not be stored
        if x.lanes and identity(x.op, x.store.value.dtype) is None:
            return False
        return _injective(x) and _only_touched_by(loop, x.store)

    def vectors(self, x: _PlacedSum) -> int | None:
        """The number of vector registers that the tile of a sum needs, if its loops are all unrolled or vectorised."""
        count, lanes = 1, self.target.lanes(x.store.value.dtype)
        for lp in (*x.tile, *x.lanes):
            extent = value_of(lp.extent)
            if lp.kind not in (LoopKind.UNROLLED, LoopKind.VECTORIZED) or extent is None:
                return None
            count *= -(-extent // lanes) if lp.kind == LoopKind.VECTORIZED else extent
        return count

    def accumulate(self, x: _PlacedSum, loop: Loop, facts: Facts) -> tuple[Store, Stmt, Stmt, Buffer]:
        """The store to the register tile, the statements before and after the loop, and the tile."""
        dtype = x.store.value.dtype
        name = f"{x.store.buffer}.r{len(self.tiles)}"
        self.tiles.add(name)
        # adjacent lanes must be adjacent in the tile, whatever the loop order
        dims = sorted((*x.tile, *x.lanes), key=lambda lp: lp.kind == LoopKind.VECTORIZED)
        at = tuple(lp.var for lp in dims)
        buffer = Buffer(name, tuple(lp.extent for lp in dims) or (index(1),), dtype, REGISTER)
        cell = at or (ZERO,)
        held, own = Load(name, cell, dtype), Load(x.store.buffer, x.store.indices, dtype)
        inner = Substitution({lp.var: ZERO for lp in x.loops if lp.var not in x.space})
        first = facts.simplify(inner(x.first)) if x.init is not None else FALSE
        into = partial(Store, x.store.buffer, x.store.indices)
        start: Stmt
        if x.lanes:
            nothing = identity(x.op, dtype)
            assert nothing is not None
            start = _nest([*x.tile, *x.lanes], Store(name, cell, nothing))
            if x.init is not None and first != FALSE:
                start = seq(start, _guarded(first, _nest(x.tile, into(x.init))))
            end = _nest([*x.tile, *x.lanes], into(Binary(x.op, own, held)))
        else:
            fetch = _nest(x.tile, Store(name, cell, own))
            start = fetch
            if x.init is not None and first != FALSE:
                fresh = _nest(x.tile, Store(name, cell, x.init))
                # initialised unconditionally: otherwise the registers would appear live from one tile to the next
                start = fresh if first == TRUE else seq(fresh, If(_negation(first), fetch))
            end = _nest(x.tile, into(held))
        return Store(name, cell, Binary(x.op, held, x.term)), start, end, buffer

    # --- inits before loops -------------------------------------------------------------------------------------------

    def decompose(self, loop: Loop, facts: Facts) -> Stmt | None:
        """The loop preceded by the inits of the reductions whose outermost carrying loop it is, or None without any."""
        before: list[Stmt] = []
        body: Stmt = loop
        for x in _sums(loop, ()):
            if x.init is None or loop.var not in variables(x.first) or self.later(x, facts):
                continue
            init = _init_nest(x, facts)
            if init is None:
                continue
            before.append(init)
            body = kept(swap(body, x.store, Store(x.store.buffer, x.store.indices, x.store.value)))
        return seq(*before, body) if before else None

    def later(self, x: _PlacedSum, facts: Facts) -> bool:
        """Whether an inner loop will keep this reduction in registers, and initialise it there."""
        return any(
            lp.kind in (LoopKind.SERIAL, LoopKind.UNROLLED)
            and self.fits(replace(x, path=x.path[x.path.index(lp) :]), lp, facts)
            and lp.var in variables(x.first)
            for lp in x.around
        )


def in_place(u: Update, facts: Facts) -> Stmt:
    """An update with its init in place, guarded by the test for the first iteration."""
    first = facts.simplify(u.first)
    store = Store(u.buffer, u.indices, u.value)
    if first == FALSE:
        return store
    init = Store(u.buffer, u.indices, u.init)
    return seq(init if first == TRUE else If(first, init), store)


def _sum_at(s: Store, path: tuple[Stmt, ...]) -> _PlacedSum | None:
    """The store as a sum with its init, if it is one."""
    found = as_sum(s)
    if found is None:
        return None
    first, init = (s.first, s.init) if isinstance(s, Update) and s.first != FALSE else (FALSE, None)
    return _PlacedSum(s, found.op, found.term, first, init, path)


def _sums(s: Stmt, path: tuple[Stmt, ...]) -> list[_PlacedSum]:
    here = (*path, s)
    if isinstance(s, Store):
        found = _sum_at(s, here)
        return [found] if found is not None else []
    return [x for child in s.children() for x in _sums(child, here)]


def _only_touched_by(loop: Loop, store: Store) -> bool:
    """Whether nothing else in the loop accesses the store's buffer, and the store accesses only its own element."""

    def visit(s: Stmt) -> bool:
        if s is store:
            return all(i == store.indices for i in own_accesses(s, store.buffer))
        return not any(True for _ in own_accesses(s, store.buffer)) and all(visit(c) for c in s.children())

    return visit(loop) and touches(loop, store.buffer)


def _injective(x: _PlacedSum) -> bool:
    """Whether different iterations of the tile loops access different elements."""
    return told_apart(x.store.indices, {lp.var: lp.extent for lp in x.loops if lp.var in x.space}, TRUE, Facts())


def _nest(loops: list[Loop], body: Stmt) -> Stmt:
    for lp in reversed(loops):
        body = Loop(lp.var, lp.extent, body, lp.kind)
    return body


def _guarded(condition: Expr, body: Stmt) -> Stmt:
    return body if condition == TRUE else If(condition, body)


def _negation(first: Expr) -> Expr:
    """Not (a == 0 and b == 0), for nonnegative a and b."""
    total: Expr = ZERO
    for c in conditions(first):
        assert isinstance(c, Compare) and c.op == "eq"
        total = total + (c.a - c.b)
    return total > ZERO


def _separable(x: _PlacedSum, facts: Facts) -> bool:
    """Whether every loop of a sum either iterates over elements or carries it, and its buffer is allocated outside."""
    carried = variables(x.first)
    if carried & x.space or x.may_skip(facts) or any(map(x.repeats, x.loops)):
        return False
    if any(variables(lp.extent) & carried for lp in x.tile):
        return False
    return not any(isinstance(s, Alloc) and s.buffer.name == x.store.buffer for s in x.path)


def _init_nest(x: _PlacedSum, facts: Facts) -> Stmt | None:
    """The nest that initialises a reduction before the outermost loop of its path, or None if inseparable."""
    carried = variables(x.first).intersection(lp.var for lp in x.loops)
    reducing = [c for c in x.asked if variables(c) & carried]
    if x.init is None or not _separable(x, facts) or any(variables(c) & x.space for c in reducing):
        return None
    first = facts.simplify(Substitution({v: ZERO for v in carried})(x.first))
    guards = all_of(c for c in x.asked if c not in reducing)
    body: Stmt = _guarded(guards, Store(x.store.buffer, x.store.indices, x.init))
    return _guarded(first, _nest(x.tile, body)) if first != FALSE else Seq(())
