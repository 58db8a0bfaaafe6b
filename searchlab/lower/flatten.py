"""Blocks become plain stores: iteration variables are replaced by their bindings, predicates become conditions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from searchlab.errors import BuildError
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ONE, TRUE, ZERO, Binary, Expr, Load, Select, Var, all_of, conditions, value_of
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import kept, statements, stores
from searchlab.ir.stmt import Ahead, Block, If, Loop, Prefetch, Seq, Stmt, Store, Tensorized, Update, seq
from searchlab.ir.sums import as_sum, identity
from searchlab.ir.visitor import Visitor
from searchlab.ir.walk import Substitution, loads, variables

# limit on the copies of innermost statements created by unrolling, which compile time grows with
MOST_COPIES = 1024
DOUBLE_BUFFER = "double_buffer"  # of a loop: what it copies for its next iteration arrives during this one
REGISTERS = "thread_registers"  # of a loop of blocks: what a thread of a GPU gets along with
VECTOR = 16  # approximate number of elements that one statement handles in a vectorised loop
FARTHEST = 1 << 31  # iterations; addresses further ahead could not be computed safely


def flatten(program: Program) -> Stmt:
    """The program's body without blocks, with the annotations `unroll_up_to` and `prefetch` applied."""
    return _Flattener().visit(program.body, Substitution({}), program.facts, ())


@dataclass(frozen=True)
class _InCall:
    """The inside of a tensorised statement, whose loops stay as they are: prefetches go before it."""

    depth: int  # the number of loops around it
    before: list[Stmt] = field(default_factory=list)


@dataclass(frozen=True)
class _Flattener(Visitor[[Substitution, Facts, tuple[Loop, ...]], Stmt]):
    before: dict[Var, list[Stmt]] = field(default_factory=dict)  # statements to insert before a loop
    call: _InCall | None = None

    def other(self, s: Stmt, put: Substitution, facts: Facts, around: tuple[Loop, ...]) -> Stmt:
        return s.rebuild(lambda e: facts.simplify(put(e)), lambda inner: self.visit(inner, put, facts, around))

    def visit_seq(self, s: Seq, put: Substitution, facts: Facts, around: tuple[Loop, ...]) -> Stmt:
        return seq(*(self.visit(p, put, facts, around) for p in s.body))

    def visit_loop(self, s: Loop, put: Substitution, facts: Facts, around: tuple[Loop, ...]) -> Stmt:
        kind = LoopKind.UNROLLED if s.kind == LoopKind.SERIAL and _fits(s) else s.kind
        if self.call is not None:
            loop = replace(s, extent=put(s.extent), annotations=())
            return loop.with_body(self.visit(s.body, put, facts, (*around, loop)))
        if kind == LoopKind.PARALLEL and value_of(s.extent) == 1:  # else parallel loops inside it would run inline
            kind = LoopKind.SERIAL
        if kind == LoopKind.UNROLLED and (value_of(s.extent) or 1) * _copies(s.body) > MOST_COPIES:
            kind = LoopKind.SERIAL
        notes = tuple(note for note in s.annotations if note[0] in (DOUBLE_BUFFER, REGISTERS))
        loop = replace(s, extent=put(s.extent), kind=kind, annotations=notes)
        body = self.visit(s.body, put, facts, (*around, loop))
        return seq(*self.before.pop(s.var, ()), loop.with_body(body))

    def visit_tensorized(self, s: Tensorized, put: Substitution, facts: Facts, around: tuple[Loop, ...]) -> Stmt:
        inside = _InCall(len(around))
        body = replace(self, call=inside).visit(s.body, put, facts, around)
        return seq(*inside.before, Tensorized(s.intrinsic, body))

    def visit_block(self, b: Block, put: Substitution, facts: Facts, around: tuple[Loop, ...]) -> Stmt:
        bound = {it.var: facts.simplify(put(e)) for it, e in zip(b.iters, b.bindings, strict=True)}
        inner = Substitution({**put.mapping, **bound})
        condition = facts.simplify(put(b.predicate))
        if not isinstance(b.body, Store):
            body = self.visit(b.body, inner, facts, around)
            return body if condition == TRUE else If(condition, body)
        asked, body = _guarded_term(b)
        condition = facts.simplify(all_of((condition, inner(asked))))
        store = _store(body, inner, facts)
        here = [p for note in b.ahead for p in self.prefetch(note, store.value, facts, around)]
        if b.init is not None:
            init = _store(b.init, inner, facts)
            first = all_of(bound[it.var].equals(0) for it in b.iters if it.kind == "reduce")
            store = Update(store.buffer, store.indices, store.value, init.value, facts.simplify(first))
        if self.call is not None:
            self.call.before.extend(here)
            here = []
        whole = seq(*here, store)
        return whole if condition == TRUE else If(condition, whole)

    # --- prefetching --------------------------------------------------------------------------------------------------

    def prefetch(self, note: Ahead, value: Expr, facts: Facts, around: tuple[Loop, ...]) -> list[Stmt]:
        """The prefetches to place next to the store; those that belong before a loop are queued in `before`."""
        at = next(n for n, lp in enumerate(around) if lp.name == note.loop)
        distance, extent = value_of(note.distance), value_of(around[at].extent)
        if distance is None:
            raise BuildError(f"'{note.buffer}' is prefetched {note.distance} iterations ahead, which is not a number")
        if distance >= (FARTHEST if extent is None else extent):
            return []
        ahead = Substitution({around[at].var: around[at].var + distance})
        here: list[Stmt] = []
        for indices in dict.fromkeys(ld.indices for ld in loads(value) if ld.buffer == note.buffer):
            far = tuple(facts.simplify(ahead(i)) for i in indices)
            if far != indices:  # else the access is invariant in the loop
                here += self.place(Prefetch(note.buffer, far), around, at + 1)
        return here

    def place(self, s: Prefetch, around: tuple[Loop, ...], begin: int) -> list[Stmt]:
        """Limits a prefetch to the last iteration of invariant serial loops; hoists it out of invariant tile loops.

        The loops inside a tensorised statement that it moves with are repeated around it.
        """
        moving = {v for i in s.indices for v in variables(i)}
        end = len(around) if self.call is None else self.call.depth
        inside, inner = around[begin:end], around[end:]
        whole: Stmt = s
        for lp in reversed([lp for lp in inner if lp.var in moving]):
            whole = lp.with_body(whole)
        start = len(inside)
        while start and inside[start - 1].kind in (LoopKind.UNROLLED, LoopKind.VECTORIZED):
            start -= 1
        last = all_of(lp.extent - 1 <= lp.var for lp in inside[:start] if lp.var not in moving)
        nest = whole if last == TRUE else If(last, whole)
        stop = next((n for n in range(start, len(inside)) if inside[n].var not in moving), None)
        if stop is None:
            return [nest]
        for lp in reversed([lp for lp in inside[stop:] if lp.var in moving]):
            nest = lp.with_body(nest)
        self.before.setdefault(inside[stop].var, []).append(nest)
        return []


def _guarded_term(b: Block) -> tuple[Expr, Store]:
    """The condition under which a reduction has a term, and the store without it.

        x = x + select(c, term, 0)   =>   if c: x = x + term

    Only where the first iteration has one, for every element: it carries the init.
    """
    assert isinstance(b.body, Store)
    found = as_sum(b.body) if b.init is not None else None
    if found is None or not isinstance(found.term, Select) or found.term.b != identity(found.op, found.term.dtype):
        return TRUE, b.body
    first = Substitution({it.var: ZERO for it in b.iters if it.kind == "reduce"})
    facts = Facts({it.var: it.extent for it in b.iters})
    if not all(facts.proves(first(c)) for c in conditions(found.term.condition)):
        return TRUE, b.body
    own = Load(b.body.buffer, b.body.indices, found.term.dtype)
    return found.term.condition, replace(b.body, value=Binary(found.op, own, found.term.a))


def _store(s: Store, put: Substitution, facts: Facts) -> Store:
    return Store(s.buffer, tuple(facts.simplify(put(i)) for i in s.indices), facts.simplify(put(s.value)))


def is_unit(s: Stmt) -> bool:
    """Whether a statement counts as one where code size is estimated, whatever it holds."""
    return isinstance(s, (Store, Tensorized))


def is_whole(before: Stmt, after: Stmt) -> bool:
    """Whether a nest has all its iterations, and nothing but its loops is left around its one store."""
    ours, theirs = ([s for s in statements(x) if isinstance(s, Loop) and s.extent != ONE] for x in (before, after))
    whole = [lp.extent for lp in ours] == [lp.extent for lp in theirs]
    return whole and sum(not isinstance(s, Loop) for s in statements(after)) == 1


def with_serial_sums(s: Stmt) -> Stmt:
    """The nest of an intrinsic as loops to run: those that carry the sum are not unrolled, since they may be long."""
    space = {v for x in stores(s) for i in x.indices for v in variables(i)}

    def visit(x: Stmt) -> Stmt:
        x = kept(x.map_children(visit))
        return replace(x, kind=LoopKind.SERIAL) if isinstance(x, Loop) and x.var not in space else x

    return visit(s)


def _copies(s: Stmt) -> int:
    """The number of innermost statements after unrolling."""
    if is_unit(s):
        return 1
    inside = sum(map(_copies, s.children()))
    if isinstance(s, Loop):
        extent = value_of(s.extent) or 1
        if s.kind == LoopKind.UNROLLED or (s.kind == LoopKind.SERIAL and _fits(s)):
            return inside * extent if inside * extent <= MOST_COPIES else inside
        return inside * -(-extent // VECTOR) if s.kind == LoopKind.VECTORIZED else inside
    return inside


def _fits(loop: Loop) -> bool:
    """Whether a block's `unroll_up_to` covers this loop: its extent times those of its inner loops is at most that."""
    product, s = 1, loop
    while True:
        extent = value_of(s.extent)
        if extent is None:
            return False
        product *= extent
        if isinstance(s.body, Loop):
            s = s.body
            continue
        notes = dict(s.body.annotations) if isinstance(s.body, Block) else {}
        limit = notes.get("unroll_up_to", 0)
        return product <= (value_of(limit) or 0 if isinstance(limit, Expr) else int(limit))
