"""Loop partitioning: splits iteration ranges so that the main part of a loop is free of conditions.

A rounded-up split leaves `i_0*f + i_1 < n`, padding leaves `0 <= h - 1 < height`.  Each such condition holds for all
inner iterations on some interval of an outer loop: that interval becomes the main loop, without the condition, and the
few iterations at either end become separate loops (or single iterations), whose inner loops are cut in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from searchlab.ir.bounds import Facts
from searchlab.ir.evaluate import evaluate
from searchlab.ir.expr import (
    FALSE,
    ONE,
    TRUE,
    ZERO,
    And,
    Compare,
    Const,
    Expr,
    Select,
    Var,
    all_of,
    conditions,
    value_of,
)
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.statement_tree import below, statements
from searchlab.ir.stmt import If, Loop, Seq, Stmt, Store, Tensorized, Update, seq
from searchlab.ir.visitor import Visitor
from searchlab.ir.walk import Substitution, iterators, transform, variables, walk
from searchlab.lower.cuts import Segment, bound, cuts, is_empty, moving
from searchlab.lower.digits import digits
from searchlab.lower.flatten import is_unit, is_whole, with_serial_sums
from searchlab.lower.remainders import remainder

# limit on the copies of innermost statements after a cut; beyond it conditions stay, which bounds compile time
LIMIT = 3000
# limit on the size of a bound: bounds derived from other bounds keep growing, and end up costlier than conditions
LONGEST = 24
# limit on the cuts of a loop that depend on outer loops: ordering more of them takes too long
MOST_MOVING = 4
# limits on the parts that all cuts create together, and on the statements in them after unrolling
MOST_PARTS = 256
MOST_STATEMENTS = 16384
# the same if vectors need no cut, where a condition that stays costs little: 20 of 24 candidates for a 3x3 convolution
# had half as many instructions, and of six that were raced none was slower beyond the noise
MOST_UNIFORM = 1024


def partition(body: Stmt) -> Stmt:
    """The body with its loops partitioned."""
    result = _Partition(body).visit(body, _Here(Facts()))
    return result if result is not None else Seq(())


@dataclass(frozen=True)
class _Here:
    """The context in which a statement is visited; statements are kept in their original form until they are emitted.

    `put` maps original loop variables to expressions of the emitted loops, `known` maps original conditions that are
    decided to their values, and `simpler` those that can be said without a run-time size to that form.
    """

    facts: Facts
    put: Substitution = field(default_factory=lambda: Substitution({}))
    known: Mapping[Expr, Expr] = field(default_factory=dict)
    refuted: frozenset[Expr] = frozenset()
    simpler: Mapping[Expr, Expr] = field(default_factory=dict)

    def at(self, var: Var, value: Expr) -> _Here:
        put = Substitution({**self.put.mapping, var: value})
        return _Here(self.facts, put, self.known, self.refuted, self.simpler)

    def inside(self, var: Var, extent: Expr) -> _Here:
        return _Here(self.facts.having({var: extent}), self.put, self.known, self.refuted, self.simpler)

    def knowing(self, known: Mapping[Expr, Expr]) -> _Here:
        if not known:
            return self
        refuted = self.refuted.union(c for c, value in known.items() if value == FALSE)
        return _Here(self.facts, self.put, {**self.known, **known}, refuted, self.simpler)

    def told(self, c: Expr) -> Expr:
        """A condition in terms of the emitted loops."""
        return self.put(self.simpler.get(c, c))

    def condition(self, e: Expr) -> Expr:
        """A condition, simplified by what is known in this context."""
        return all_of(self.known[c] if c in self.known else self.facts.simplify(self.told(c)) for c in conditions(e))

    def value(self, e: Expr) -> Expr:
        """An expression, with the conditions inside it replaced where they are known."""
        if not self.known or not any(isinstance(x, Compare) for x in walk(e)):
            return self.put(e)
        return self.put(transform(e, lambda x: self.known.get(x) if isinstance(x, Compare) else None))


@dataclass(frozen=True)
class _Guard:
    """Conditions evaluated together, and the enclosing ones under which they are evaluated."""

    own: tuple[Expr, ...]
    around: tuple[Expr, ...] = ()


class _Partition(Visitor[["_Here"], Stmt | None]):
    """Partitions the loops of one body, caching properties of its statements."""

    def __init__(self, body: Stmt) -> None:
        self._guards: dict[int, tuple[_Guard, ...]] = {}
        self._gates: dict[int, frozenset[frozenset[Expr]]] = {}
        self._loops: dict[int, tuple[Loop, ...]] = {}
        self._weights: dict[int, int] = {}
        self._digits: dict[Var, int] = {}  # the digits of fused loops, with their extents if known
        self._sums, self._summed = _sums(body)
        self._kept: list[Stmt] = []  # bodies made here: what is known about statements goes by their ids
        most = MOST_UNIFORM if self.uniform(body) else MOST_STATEMENTS
        self.left = min(MOST_PARTS, most // max(1, self.weight(body)))  # remaining budget of parts

    def other(self, s: Stmt, here: _Here) -> Stmt | None:
        """Handles statements without conditions: only their expressions and children may change."""
        if s.children():
            left = s.map_children(lambda child: self.visit(child, here))
            return None if left is None else left.rebuild(here.put)
        if not self.guards(s):
            return s.rebuild(here.put)
        return s.rebuild(lambda e: here.facts.simplify(here.value(e)))

    def visit_seq(self, s: Seq, here: _Here) -> Stmt | None:
        return s.map_children(lambda child: self.visit(child, here))

    def visit_if(self, s: If, here: _Here) -> Stmt | None:
        condition = here.condition(s.condition)
        if condition == FALSE:
            return None
        body = self.visit(s.body, here)
        return body if condition == TRUE or body is None else If(condition, body)

    def visit_tensorized(self, s: Tensorized, here: _Here) -> Stmt | None:
        """Keeps an intrinsic where its loops are whole; where a condition cut them, they run as loops."""
        body = self.visit(s.body, here)
        if body is None or not is_whole(s.body, body):
            return None if body is None else with_serial_sums(body)
        return Tensorized(s.intrinsic, body)

    def visit_loop(self, loop: Loop, here: _Here) -> Stmt | None:
        extent = here.put(loop.extent)
        if extent == ZERO or (here.refuted and not any(map(here.refuted.isdisjoint, self.gates(loop)))):
            return None
        if extent == ONE and loop.kind != LoopKind.PARALLEL:
            return self.visit(loop.body, self.at(loop, ZERO, here))
        if loop.kind == LoopKind.PARALLEL:
            return self.visit_parallel(loop, extent, here)
        asked = self.asked(loop, here)
        if loop.var in self._sums and self.lone_tail(loop, asked, here):
            asked = []
        segments = self.segments(loop, extent, asked, here)
        if segments is None:
            return self.keep(loop, extent, here)
        made = _main_first(segments, lambda segment: self.part(loop, segment, here))
        return seq(*made) if made else None

    def keep(self, loop: Loop, extent: Expr, here: _Here, partial: tuple[Expr, ...] = ()) -> Stmt | None:
        body = self.inside(loop.body, here.inside(loop.var, extent), partial)
        return None if body is None else Loop(loop.var, extent, body, loop.kind, loop.annotations)

    def part(self, loop: Loop, segment: Segment, here: _Here) -> Stmt | None:
        """One segment as a separate loop, or without a loop if it is a single iteration."""
        here = here.knowing(segment.known)
        count = here.facts.simplify(segment.high - segment.low)
        if count == ONE:
            return self.visit(loop.body, self.at(loop, segment.low, here))
        if (lone := self.lone(segment, here)) is not None:
            (digit, value), *_ = lone.items()
            put = Substitution(lone)
            inside = self.part(loop, Segment(put(segment.low), put(segment.high), {}), here.at(digit, value))
            return None if inside is None else If(digit.equals(value), inside)
        if segment.low != ZERO:
            here = self.at(loop, loop.var + segment.low, here)
        return self.keep(loop, count, here, segment.partial)

    def inside(self, body: Stmt, here: _Here, partial: tuple[Expr, ...]) -> Stmt | None:
        """The body of a loop; where a tile is only a part of a whole one, a branch for each number of its rows."""
        loops = self.loops(body)
        found = next((r for c in partial if (r := remainder(c, loops))), None)
        if found is None or self.left < found.tile or self.weight(body) * found.tile > LIMIT:
            return self.visit(body, here)
        self.left -= found.tile
        made = []
        for rows in range(1, found.tile):
            simpler = {**here.simpler, **found.where(rows, partial, loops)}
            case = self.visit(body, replace(here, simpler=simpler))
            made += [] if case is None else [If(found.size.equals(here.put(found.base + rows)), case)]
        return seq(*made)

    def visit_parallel(self, loop: Loop, extent: Expr, here: _Here) -> Stmt | None:
        """Keeps all iterations in one parallel loop, so that threads share the boundary iterations too.

        A fused one branches on its digits: the tail of each of its axes is a range of one of them.
        """
        found = digits(replace(loop, extent=extent), self.tails(loop, here))
        if found is None:
            body = self.branch([loop], self.asked(loop, here), here)
        else:
            self._kept.append(found.body)
            self._digits |= {var: n for var, size in found.extents.items() if (n := value_of(size)) is not None}
            nest = [Loop(var, size, found.body) for var, size in found.extents.items()]
            tails = [c for c in self.tails(nest[0], here) if not self.cut_inside(c, nest[0])]
            cut = self.branch(nest, tails, here)
            body = None if cut is None else found.restored(cut, here.facts)
        return None if body is None else replace(loop, extent=extent, body=body)

    def branch(self, nest: list[Loop], asked: list[Expr], here: _Here, partial: tuple[Expr, ...] = ()) -> Stmt | None:
        """The body that loops have in common, with a branch for each segment of each of them."""
        if not nest:
            return None
        loop, *rest = nest
        extent = here.put(loop.extent)
        inside = here.inside(loop.var, extent)
        own = [c for c in asked if loop.var in variables(c)]
        segments = self.segments(loop, extent, own, here) or [Segment(ZERO, extent, {})]

        def branch(segment: Segment) -> Stmt | None:
            inner = inside.knowing(segment.known)
            if here.facts.simplify(segment.high - segment.low) == ONE:
                inner = self.at(loop, segment.low, inner)
            part = (*partial, *segment.partial)
            done = self.branch(rest, asked, inner, part) if rest else self.inside(loop.body, inner, part)
            condition = inside.facts.simplify(all_of((segment.low <= loop.var, loop.var < segment.high)))
            return done if done is None or condition == TRUE else If(condition, done)

        parts = _main_first(segments, branch)
        return seq(*parts) if parts else None

    def lone(self, segment: Segment, here: _Here) -> dict[Var, Expr] | None:
        """The digit of a parallel loop on which a segment depends, if it is empty for all its values but one."""
        moving = variables(segment.low) | variables(segment.high)
        if len(moving) != 1 or not moving <= self._digits.keys():
            return None
        (digit,) = moving
        values = np.arange(self._digits[digit])
        counts = np.broadcast_to(evaluate(segment.high - segment.low, {digit.name: values}), values.shape)
        filled = np.flatnonzero(counts > 0)
        return {digit: ONE * int(filled[0])} if len(filled) == 1 else None

    def at(self, loop: Loop, value: Expr, here: _Here) -> _Here:
        """The context with a value for the loop's variable, and the conditions it decides."""
        here = here.at(loop.var, value)
        found = {c: here.told(c) for c in self.asked(loop, here)}
        return here.knowing({c: now for c, now in found.items() if isinstance(now, Const)})

    # --- where to cut -------------------------------------------------------------------------------------------------

    def segments(self, loop: Loop, extent: Expr, asked: list[Expr], here: _Here) -> list[Segment] | None:
        """The loop's range cut where the conditions asked in it change, or None if cutting does not help."""
        # a vectorised loop is cut regardless: with a condition left inside, it would run element by element
        # rows of a remainder that are left out only make it smaller
        rows = any(c in here.simpler for c in asked)
        if not asked or (self.left <= 0 and loop.kind != LoopKind.VECTORIZED and not rows):
            return None
        inner = {lp.var: here.put(lp.extent) for lp in self.loops(loop.body)}
        everything = here.facts.having({loop.var: extent, **inner})
        bounds = []
        for c in asked:
            now = here.told(c)
            if not everything.proves(now):
                found = bound(c, now, loop.var, inner, everything)
                if found is not None:
                    bounds.append(found)
        if not bounds or moving(bounds) > MOST_MOVING:
            return None
        left = [x for x in cuts(bounds, extent, here.facts) if not is_empty(x, here.facts)]
        if not self.worthwhile(loop, extent, left):
            return None
        self.left -= 0 if rows else len(left) - 1
        return left

    def worthwhile(self, loop: Loop, extent: Expr, segments: list[Segment]) -> bool:
        constant = all(value_of(x.low) is not None and value_of(x.high) is not None for x in segments)
        if loop.kind == LoopKind.UNROLLED and not constant:
            return False
        if len(segments) == 1 and not segments[0].known:
            return False
        if any(sum(1 for _ in walk(e)) > LONGEST for x in segments for e in (x.low, x.high)):
            return False
        copies = len(segments) if loop.kind != LoopKind.UNROLLED else value_of(extent) or 1
        return self.weight(loop.body) * copies <= LIMIT

    # --- properties of original statements ----------------------------------------------------------------------------

    def asked(self, loop: Loop, here: _Here) -> list[Expr]:
        """The undecided conditions inside a loop that depend on its variable, without those in dead code."""
        no = here.refuted
        live = (g for g in self.guards(loop.body) if no.isdisjoint(g.around) and no.isdisjoint(g.own))
        found = dict.fromkeys(c for g in live for c in g.own)
        return [c for c in found if loop.var in variables(c) and c not in here.known]

    def tails(self, loop: Loop, here: _Here) -> list[Expr]:
        """The undecided conditions inside a loop under which statements run at all, as those of tails."""
        inside = (s.condition for s in statements(loop.body) if isinstance(s, If))
        return [c for c in dict.fromkeys(c for e in inside for c in _atoms(e)) if c not in here.known]

    def cut_inside(self, condition: Expr, loop: Loop) -> bool:
        """Whether a condition is better left to a serial loop inside, outside of all sums: there is a part less then.

        That loop is cut where the condition begins to fail, which depends on the outer loop.
        """
        inside = (lp for lp in self.loops(loop.body) if lp.kind == LoopKind.SERIAL and lp.extent != ONE)
        return any(lp.var in variables(condition) and lp.var not in self._summed for lp in inside)

    def lone_tail(self, loop: Loop, asked: list[Expr], here: _Here) -> bool:
        """Whether all that is asked of a sum is the end of a serial loop inside, which then ends there."""
        if len(asked) != 1 or asked != [c for c in self.tails(loop, here) if c in asked]:
            return False
        parts = {lp.var: lp for lp in self.loops(loop.body) if lp.var in variables(asked[0])}
        others = [c for c in self.tails(loop, here) if c not in asked and variables(c) & parts.keys()]
        inner = next(iter(parts.values())) if len(parts) == 1 else None
        return inner is not None and inner.kind == LoopKind.SERIAL and inner.extent != ONE and not others

    def guards(self, s: Stmt) -> tuple[_Guard, ...]:
        found = self._guards.get(id(s))
        if found is None:
            inside = [g for child in s.children() for g in self.guards(child)]
            if isinstance(s, If):
                own = tuple(_atoms(s.condition))
                inside = [_Guard(own), *(_Guard(g.own, (*own, *g.around)) for g in inside)]
            found = self._guards[id(s)] = tuple(dict.fromkeys((*_own_guards(s), *inside)))
        return found

    def gates(self, s: Stmt) -> frozenset[frozenset[Expr]]:
        """For every store inside, the set of conditions inside `s` that guard it."""
        found = self._gates.get(id(s))
        if found is None:
            found = frozenset(g for child in s.children() for g in self.gates(child))
            if isinstance(s, If):
                own = frozenset(_atoms(s.condition))
                found = frozenset(g | own for g in found)
            elif not s.children():
                found = frozenset((frozenset(),))
            self._gates[id(s)] = found
        return found

    def uniform(self, body: Stmt) -> bool:
        """Whether every condition is the same for all lanes of a vector, so that it costs little where it stays."""
        lanes = {lp.var for lp in self.loops(body) if lp.kind == LoopKind.VECTORIZED}
        return all(lanes.isdisjoint(variables(c)) for g in self.guards(body) for c in (*g.own, *g.around))

    def loops(self, s: Stmt) -> tuple[Loop, ...]:
        found = self._loops.get(id(s))
        if found is None:
            inside = (lp for child in s.children() for lp in self.loops(child))
            found = self._loops[id(s)] = ((s,) if isinstance(s, Loop) else ()) + tuple(inside)
        return found

    def weight(self, s: Stmt) -> int:
        """The number of innermost statements after unrolling."""
        found = self._weights.get(id(s))
        if found is None:
            found = self._weights[id(s)] = _weight(s, sum(self.weight(c) for c in s.children()))
        return found


# --- where to cut -----------------------------------------------------------------------------------------------------


def _main_first(segments: list[Segment], make: Callable[[Segment], Stmt | None]) -> list[Stmt]:
    """The segments, made in order of the conditions that hold in them: where most time is spent, parts are not left out
    because the ends of the loop have used them up."""
    order = sorted(range(len(segments)), key=lambda n: -list(segments[n].known.values()).count(TRUE))
    made = {n: make(segments[n]) for n in order}
    return [part for _, part in sorted(made.items()) if part is not None]


def _sums(body: Stmt) -> tuple[frozenset[Var], frozenset[Var]]:
    """The variables of loops over reductions, and those of all loops inside such ones."""
    inside = statements(body)
    sums = frozenset(v for s in inside if isinstance(s, Update) for v in iterators(s.first))
    around = [s for s in inside if isinstance(s, Loop) and s.var in sums]
    return sums, frozenset(x.var for lp in around for x in below(lp) if isinstance(x, Loop))


def _own_guards(s: Stmt) -> Iterator[_Guard]:
    """The conditions in the expressions of a statement."""
    if isinstance(s, Store):
        for e in s.own_expressions()[: len(s.indices) + 1]:
            yield from _asked_in(e, ())


def _asked_in(e: Expr, around: tuple[Expr, ...]) -> Iterator[_Guard]:
    if isinstance(e, Select):
        own = tuple(_atoms(e.condition))
        if own:
            yield _Guard(own, around)
        yield from _asked_in(e.a, (*around, *own))
        yield from _asked_in(e.b, around)
        return
    for child in e.children():
        yield from _asked_in(child, around)


def _atoms(e: Expr) -> Iterator[Expr]:
    for part in e.args if isinstance(e, And) else (e,):
        if isinstance(part, Compare) and part.a.dtype == "index":
            yield part


def _weight(s: Stmt, inside: int) -> int:
    if is_unit(s):
        return 1
    if isinstance(s, Loop):
        extent = value_of(s.extent)
        if s.kind == LoopKind.UNROLLED and extent is not None:
            return inside * extent
        if s.kind == LoopKind.VECTORIZED and extent is not None:
            return inside * min(8, extent // 8 + 1)
    return inside
