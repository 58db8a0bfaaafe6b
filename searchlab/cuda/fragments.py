"""Results of tensor cores in fragments: a warp holds a tile of 16 x 8 elements, four in the registers of each lane.

    C_local[i, j]     =>     C_local.w[lane(i, j), i // 16, j // 8, register(i, j)]        in the memory of a warp

Buffers in the memory of a warp have the lane as first index.  Outside of calls every thread accesses what it holds
itself, which is proved here; inside, the instruction says which lane holds what.  So each thread needs its own part,
and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from searchlab.errors import BuildError
from searchlab.intrinsics import Match, find_intrinsic, match
from searchlab.ir.alpha import Difference
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ZERO, Expr, Var, index, value_of
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.program import Program
from searchlab.ir.stmt import (
    Alloc,
    Buffer,
    If,
    Loop,
    Stmt,
    Store,
    Tensorized,
    Update,
    kept,
    map_accesses,
    seq,
    statements,
    stores,
    swap,
    touches,
)
from searchlab.ir.visitor import Rewriter
from searchlab.ir.walk import Substitution, variables
from searchlab.targets.cuda import WARP

SCOPE = "warp"
REGISTERS = 4
_ROWS, _COLUMNS = 16, 8
_LANE = Var(LoopKind.THREAD_X.value)


def with_fragments(where: str, program: Program, body: Stmt) -> tuple[Stmt, dict[str, Buffer]]:
    """What a thread does, with the results of calls in fragments, and the buffers of these."""
    calls = [s for s in statements(body) if isinstance(s, Tensorized)]
    made: dict[str, Buffer] = {}
    if not calls:
        return body, made
    lanes = next((lp.extent for lp in statements(body) if isinstance(lp, Loop) and lp.var == _LANE), index(1))
    if value_of(lanes) != WARP:
        raise BuildError(f"{where}: instructions of warps need {WARP} threads along threadIdx.x, not {lanes}")
    for call in calls:
        found = _matched(where, call, program.buffers)
        name = found.operands[find_intrinsic(call.intrinsic).output].buffer
        old = program.buffers[name]
        if old.scope != "local" or len(old.shape) != 2:
            raise BuildError(
                f"{where}: '{name}' is a result of '{call.intrinsic}'; keep it in two dimensions in local memory"
            )
        made[name] = _fragments(old)
    body = kept(_Calls().visit(body, ()))
    for name, new in made.items():
        body = kept(_Places(where, name, new.name).visit(body, Facts()))
    return body, {b.name: b for b in made.values()}


def without_lanes(body: Stmt) -> Stmt:
    """A kernel in which each thread has its own part of the buffers of warps."""
    names = {s.buffer.name for s in statements(body) if isinstance(s, Alloc) and s.buffer.scope == SCOPE}

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Alloc) and s.buffer.name in names:
            return Alloc(replace(s.buffer, shape=s.buffer.shape[1:], scope="local"), visit(s.body))
        return kept(s.map_children(visit)) if s.children() else s

    return map_accesses(visit(body), lambda p: (p[0], p[1][1:]) if p[0] in names else p) if names else body


def _matched(where: str, call: Tensorized, buffers: Mapping[str, Buffer]) -> Match:
    facts = Facts({lp.var: lp.extent for lp in statements(call.body) if isinstance(lp, Loop)})
    found = match(find_intrinsic(call.intrinsic), call.body, buffers, facts)
    if isinstance(found, Difference):
        raise BuildError(f"{where}: intrinsic '{call.intrinsic}' does not fit the lowered loops: {found.words}")
    return found


def _fragments(old: Buffer) -> Buffer:
    rows, columns = ((value_of(e) or 1) for e in old.shape)
    shape = (WARP, -(-rows // _ROWS), -(-columns // _COLUMNS), REGISTERS)
    return Buffer(f"{old.name}.w", tuple(map(index, shape)), old.dtype, SCOPE)


def _place(i: Expr, j: Expr) -> tuple[Expr, ...]:
    """Where an element is: lane, tile and register."""
    return (i % 8) * 4 + j % 8 // 2, i // _ROWS, j // _COLUMNS, (i % _ROWS // 8) * 2 + j % 2


@dataclass(frozen=True)
class _Calls(Rewriter[[tuple[Loop, ...]]]):
    """Takes the inits of sums out of calls, to before the outermost loop that carries the sum."""

    def visit_loop(self, s: Loop, around: tuple[Loop, ...]) -> Stmt | None:
        body = kept(self.visit(s.body, (*around, s)))
        before = []
        for call in (x for x in statements(body) if isinstance(x, Tensorized)):
            (update,) = stores(call)
            outer = [lp for lp in around if isinstance(update, Update) and lp.var in variables(update.first)]
            if isinstance(update, Update) and s.var in variables(update.first) and not outer:
                before.append(_init(s.with_body(body), call, update))
                body = kept(swap(body, call, _plain(call, update)))
        return seq(*before, s.with_body(body))

    def visit_tensorized(self, s: Tensorized, around: tuple[Loop, ...]) -> Stmt | None:
        (update,) = stores(s)
        carried = isinstance(update, Update) and any(lp.var in variables(update.first) for lp in around)
        if carried or not isinstance(update, Update):
            return s
        return seq(_init(s, s, update), _plain(s, update))


def _plain(call: Tensorized, update: Update) -> Tensorized:
    """The call without its init; its loops are not unrolled where they run as loops, and so not kept elsewhere."""
    body = kept(swap(call.body, update, Store(update.buffer, update.indices, update.value)))

    def visit(s: Stmt) -> Stmt:
        s = kept(s.map_children(visit)) if s.children() else s
        return replace(s, kind=LoopKind.SERIAL) if isinstance(s, Loop) else s

    return Tensorized(call.intrinsic, visit(body))


def _init(outer: Stmt, call: Tensorized, update: Update) -> Stmt:
    """Each thread initialises its part of all tiles that the calls in a loop add to."""
    inside = {lp.var: ZERO for lp in statements(call.body) if isinstance(lp, Loop)}
    i, j = (Substitution(inside)(e) for e in update.indices)
    r, c = Var("fragment.r"), Var("fragment.c")
    mine = (i + r * 8 + _LANE // 4, j + (_LANE % 4) * 2 + c)
    nest: Stmt = Store(update.buffer, mine, update.init)
    moving = variables(i) | variables(j)
    tiles = [lp for lp in statements(outer) if isinstance(lp, Loop) and lp.var in moving and touches(lp, update.buffer)]
    for var in (c, r):
        nest = Loop(var, index(2), nest, LoopKind.UNROLLED)
    for lp in reversed(tiles):
        nest = lp.with_body(nest)
    return nest


@dataclass(frozen=True)
class _Places(Rewriter[[Facts]]):
    """Accesses to a buffer as accesses to its fragments."""

    where: str
    old: str
    new: str

    def visit_loop(self, s: Loop, facts: Facts) -> Stmt | None:
        return s.with_body(kept(self.visit(s.body, facts.having({s.var: s.extent}))))

    def visit_if(self, s: If, facts: Facts) -> Stmt | None:
        return If(s.condition, kept(self.visit(s.body, facts)))

    def visit_tensorized(self, s: Tensorized, facts: Facts) -> Stmt | None:
        inside = facts.having({lp.var: lp.extent for lp in statements(s.body) if isinstance(lp, Loop)})
        return Tensorized(s.intrinsic, self.placed(s.body, inside, own=False))

    def visit_store(self, s: Store, facts: Facts) -> Stmt | None:
        return self.placed(s, facts, own=True)

    def placed(self, s: Stmt, facts: Facts, *, own: bool) -> Stmt:
        def place(p: tuple[str, tuple[Expr, ...]]) -> tuple[str, tuple[Expr, ...]]:
            if p[0] != self.old:
                return p
            lane, *rest = (facts.simplify(facts.simplify(e)) for e in _place(*p[1]))
            if own and lane != _LANE:
                raise BuildError(
                    f"{self.where}: '{self.old}' is held by a warp in fragments, but a thread accesses what lane "
                    f"{lane} has; give lane g*4 + q rows g, g + 8 and columns 2*q, 2*q + 1"
                )
            return self.new, (lane if not own else _LANE, *rest)

        return map_accesses(s, place)
