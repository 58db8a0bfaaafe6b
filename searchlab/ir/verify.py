"""The verifier: checks after every schedule primitive that the program is well formed.

Rules: names are defined once and before use; bindings use only loop variables; accesses match the buffer's rank and
dtype; every read follows a write; reductions do not run in parallel.  (Bounds are proved where the facts allow; the
interpreter and the code generator rely on block predicates for the rest.)

A primitive changes a few statements and shares the others with its input program.  So each statement caches a summary
of its own (`_Summary`), and a program is checked by combining these; only if that fails is the whole program visited,
to find the error message.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from searchlab.dtype import BOOL, DTYPES, INDEX
from searchlab.errors import IRError
from searchlab.ir.affine import parallel_reduction
from searchlab.ir.expr import Expr, Load, Lookup, Var
from searchlab.ir.program import Layout, Program
from searchlab.ir.statement_tree import read, written
from searchlab.ir.stmt import Block, Loop, Seq, Stmt, Store
from searchlab.ir.visitor import Visitor
from searchlab.ir.walk import iterators, loads, lookups, variables, walk


def verify(program: Program) -> None:
    """Raises IRError if the program is not well formed."""
    if not _adds_up(program):
        _Verifier(program).run()


# --- cached summaries -------------------------------------------------------------------------------------------------

_NOTHING: frozenset[Any] = frozenset()


@dataclass(slots=True, eq=False)
class _Summary:
    """The properties of a statement that its context depends on; `sound` means that the statement itself has no errors.

    `open` are iteration variables it uses but does not define, `summed` those among them that its reductions run over,
    `ahead` loops that it prefetches along; `needs` are buffers it reads before it writes them.  `loaded` and `stored`
    list the accesses to buffers: name, number of indices, dtype; `looked_up` the buffers that hold indices, and what
    these are less than.
    """

    sound: bool
    open: frozenset[Var] = _NOTHING
    summed: frozenset[Var] = _NOTHING
    ahead: frozenset[str] = _NOTHING
    needs: frozenset[str] = _NOTHING
    gives: frozenset[str] = _NOTHING
    loaded: frozenset[tuple[str, int, str]] = _NOTHING
    stored: frozenset[tuple[str, int, str]] = _NOTHING
    looked_up: frozenset[tuple[str, Expr]] = _NOTHING
    loops: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()


def _adds_up(program: Program) -> bool:
    """Whether a program is well formed, according to the summaries of its statements."""
    s, buffers = _summary(program.body), program.buffers
    given = (*program.inputs, *program.outputs)
    return (
        s.sound
        and not s.open
        and not s.ahead
        and len(set(given)) == len(given)
        and buffers.keys() >= set(given)
        and set(program.outputs).issuperset(program.updates)
        and s.needs.issubset((*program.inputs, *program.updates))
        and {name for name, _ in s.looked_up}.issubset(program.inputs)
        and len({name for name, _ in s.looked_up}) == len(s.looked_up)
        and s.gives.issuperset(program.outputs)
        and s.gives.isdisjoint(program.inputs)
        and len(set(s.loops)) == len(s.loops)
        and len(set(s.blocks)) == len(s.blocks)
        and all(
            name in buffers and len(buffers[name].shape) == rank and buffers[name].dtype == dtype
            for name, rank, dtype in s.loaded | s.stored
        )
        and not any(_loses(program, la) for la in program.layouts)
    )


def _loses(program: Program, layout: Layout) -> bool:
    """Whether a parameter is kept in a type that lacks some of its values, or not at all."""
    held, given = program.buffers.get(layout.buffer), layout.original.dtype
    return held is None or (held.dtype != given and not DTYPES[held.dtype].holds(DTYPES[given]))


def _summary(s: Stmt) -> _Summary:
    try:
        return s._sound  # type: ignore[no-any-return]
    except AttributeError:
        found = _SUMMARIES.visit(s)
        object.__setattr__(s, "_sound", found)
        return found


def _own(s: Stmt) -> _Summary:
    """The summary of a statement without those inside it."""
    used: set[Var] = set()
    read: dict[Load, None] = {}
    for e in s.own_expressions():
        used |= iterators(e)
        read.update(dict.fromkeys(loads(e)))
    held = frozenset((x.load.buffer, x.below) for e in s.own_expressions() for x in lookups(e))
    kept = s.own_stores()
    own = written(s) if isinstance(s, Block) or not s.children() else ()
    return _Summary(
        all(i.dtype in (INDEX, BOOL) for ld in read for i in ld.indices),
        open=frozenset(used),
        needs=frozenset(ld.buffer for ld in read).difference(own),
        gives=frozenset(st.buffer for st in kept),
        loaded=frozenset((ld.buffer, len(ld.indices), ld.type) for ld in read),
        stored=frozenset((st.buffer, len(st.indices), st.value.dtype) for st in kept),
        looked_up=held,
    )


def _joined(parts: list[_Summary]) -> _Summary:
    """The summary of statements in sequence, or of a statement with its children."""
    needs: frozenset[str] = _NOTHING
    gives: frozenset[str] = _NOTHING
    for p in parts:
        needs, gives = needs | (p.needs - gives), gives | p.gives
    return _Summary(
        all([p.sound for p in parts]),
        _NOTHING.union(*[p.open for p in parts]),
        _NOTHING.union(*[p.summed for p in parts]),
        _NOTHING.union(*[p.ahead for p in parts]),
        needs,
        gives,
        _NOTHING.union(*[p.loaded for p in parts]),
        _NOTHING.union(*[p.stored for p in parts]),
        _NOTHING.union(*[p.looked_up for p in parts]),
        tuple(chain.from_iterable([p.loops for p in parts])),
        tuple(chain.from_iterable([p.blocks for p in parts])),
    )


class _Summaries(Visitor[[], _Summary]):
    """The summary of each kind of statement."""

    def other(self, s: Stmt) -> _Summary:
        return _joined([_own(s), *map(_summary, s.children())])

    def visit_seq(self, s: Seq) -> _Summary:
        return _joined([_summary(child) for child in s.body])

    def visit_loop(self, s: Loop) -> _Summary:
        return _of_loop(s)

    def visit_block(self, s: Block) -> _Summary:
        return _of_block(s)


_SUMMARIES = _Summaries()


def _of_loop(s: Loop) -> _Summary:
    body, own = _summary(s.body), {s.var}
    if loads(s.extent):  # looked up, as are all loads in indices
        body = _joined([_own(s), body])
    extent = iterators(s.extent)
    shared = s.var in body.summed and any(k.is_apart for k in s.kinds)
    return _Summary(
        body.sound and not shared,
        (body.open - own) | extent,
        body.summed - own if body.summed else _NOTHING,
        body.ahead - {s.name} if body.ahead else _NOTHING,
        body.needs,
        body.gives,
        body.loaded,
        body.stored,
        body.looked_up,
        (s.name, *body.loops),
        body.blocks,
    )


def _of_block(s: Block) -> _Summary:
    whole = _joined([_own(s), _summary(s.body)])
    fits = all(note.buffer in read(s) and note.buffer not in written(s) for note in s.ahead)
    pairs = zip(s.iters, s.bindings, strict=False)
    return replace(
        whole,
        sound=whole.sound and fits and len(s.iters) == len(s.bindings) and not _misses_init(s),
        open=whole.open - {it.var for it in s.iters},
        summed=whole.summed.union(*(variables(e) for it, e in pairs if it.kind == "reduce")),
        ahead=whole.ahead | {note.loop for note in s.ahead},
        blocks=(s.name, *whole.blocks),
    )


def _misses_init(b: Block) -> bool:
    """Whether a block might not begin with its init, since data decide how long its sums are."""
    return b.init is not None and any(it.kind == "reduce" and lookups(it.extent) for it in b.iters)


# --- the whole program ------------------------------------------------------------------------------------------------


@dataclass
class _Verifier(Visitor[[frozenset[Var], dict[Var, Loop]], None]):
    program: Program
    loops: set[str] = field(default_factory=set)
    blocks: set[str] = field(default_factory=set)
    ready: set[str] = field(default_factory=set)
    limits: dict[str, Expr] = field(default_factory=dict)

    def run(self) -> None:
        p = self.program
        for name in (*p.inputs, *p.outputs):
            if name not in p.buffers:
                self.fail(f"parameter '{name}' is not a buffer")
            if (*p.inputs, *p.outputs).count(name) > 1:
                self.fail(f"parameter '{name}' is named twice")
        for name in p.updates:
            if name not in p.outputs:
                self.fail(f"'{name}' is updated, but no output")
        self.ready = {*p.inputs, *p.updates}
        self.visit(p.body, _NOTHING, {})
        for la in (x for x in p.layouts if _loses(p, x)):
            held = p.buffers[la.buffer].dtype if la.buffer in p.buffers else "nothing"
            self.fail(f"parameter '{la.buffer}' is {la.original.dtype} and would be kept as {held}")
        for name in p.outputs:
            if name not in self.ready:
                self.fail(f"output '{name}' is never written")

    def fail(self, message: str) -> None:
        raise IRError(f"{self.program.name}: {message}")

    def visit_loop(self, s: Loop, scope: frozenset[Var], loops: dict[Var, Loop]) -> None:
        self.check_own(s, scope)
        self.check_loop(s)
        self.visit(s.body, scope | {s.var}, {**loops, s.var: s})

    def visit_block(self, s: Block, scope: frozenset[Var], loops: dict[Var, Loop]) -> None:
        inner = scope.union(it.var for it in s.iters)
        self.check_own(s, inner)
        self.check_block(s, loops)
        self.visit(s.body, inner, loops)
        self.ready |= set(written(s))

    def other(self, s: Stmt, scope: frozenset[Var], loops: dict[Var, Loop]) -> None:
        self.check_own(s, scope)
        for store in s.own_stores():
            self.check_store(store)
        for child in s.children():
            self.visit(child, scope, loops)

    def check_own(self, s: Stmt, scope: frozenset[Var]) -> None:
        for e in s.own_expressions():
            self.check(e, scope, s)

    def check_loop(self, loop: Loop) -> None:
        if loop.name in self.loops:
            self.fail(f"two loops are called '{loop.name}'")
        self.loops.add(loop.name)

    def check_block(self, b: Block, loops: dict[Var, Loop]) -> None:
        if b.name in self.blocks:
            self.fail(f"two blocks are called '{b.name}'")
        self.blocks.add(b.name)
        if len(b.iters) != len(b.bindings):
            self.fail(f"block '{b.name}' has {len(b.iters)} iteration variables and {len(b.bindings)} bindings")
        if b.init is not None:
            self.check_store(b.init)
        self.check_ahead(b, loops)
        if _misses_init(b):
            self.fail(f"block '{b.name}' has an init, but data may leave it nothing to sum: a block before it sets it")
        shared = {v for v, lp in loops.items() if any(kind.is_apart for kind in lp.kinds)}
        words = parallel_reduction(b.iters, b.bindings, shared)
        if words is not None:
            self.fail(f"block '{b.name}': {words}")

    def check_ahead(self, b: Block, loops: dict[Var, Loop]) -> None:
        for note in b.ahead:
            if note.loop not in {lp.name for lp in loops.values()}:
                self.fail(f"block '{b.name}' prefetches along loop '{note.loop}', which is not around it")
            if note.buffer not in read(b) or note.buffer in written(b):
                self.fail(f"block '{b.name}' prefetches '{note.buffer}', which it does not read")

    def check_store(self, s: Store) -> None:
        buffer = self.program.buffers.get(s.buffer)
        if buffer is None:
            self.fail(f"store to unknown buffer '{s.buffer}'")
            return
        if s.buffer in self.program.inputs:
            self.fail(f"store to input '{s.buffer}'")
        if len(s.indices) != len(buffer.shape):
            self.fail(f"'{s.buffer}' has {len(buffer.shape)} dimensions, stored with {len(s.indices)} indices")
        if s.value.dtype != buffer.dtype:
            self.fail(f"'{s.buffer}' holds {buffer.dtype}, the stored value '{s.value}' is {s.value.dtype}")
        self.ready.add(s.buffer)

    def check(self, e: Expr, scope: frozenset[Var], s: Stmt) -> None:
        own = set(written(s)) if isinstance(s, Block) or not s.children() else set()
        for x in walk(e):
            if isinstance(x, Var) and x.role == "iter" and x not in scope:
                self.fail(f"'{x}' is used outside the loop or block that defines it, in {_where(s)}")
            if isinstance(x, Load):
                self.check_load(x, own, s)
            if isinstance(x, Lookup):
                self.check_lookup(x)

    def check_load(self, ld: Load, own: set[str], s: Stmt) -> None:
        buffer = self.program.buffers.get(ld.buffer)
        if buffer is None:
            self.fail(f"load from unknown buffer '{ld.buffer}' in {_where(s)}")
            return
        if len(ld.indices) != len(buffer.shape) or ld.type != buffer.dtype:
            self.fail(f"'{ld}' does not fit '{ld.buffer}' ({len(buffer.shape)} dimensions of {buffer.dtype})")
        if any(i.dtype not in (INDEX, BOOL) for i in ld.indices):
            self.fail(f"'{ld}' is indexed with a value that is not an index")
        if ld.buffer not in self.ready and ld.buffer not in own:
            self.fail(f"'{ld.buffer}' is read in {_where(s)} before anything writes it")

    def check_lookup(self, x: Lookup) -> None:
        name = x.load.buffer
        if name not in self.program.inputs:
            self.fail(f"indices are looked up in '{name}', which is no input: it must not change while they are in use")
        if self.limits.setdefault(name, x.below) != x.below:
            self.fail(f"the indices in '{name}' are less than {x.below} here, and than {self.limits[name]} elsewhere")


def _where(s: Stmt) -> str:
    kind, stored = type(s).__name__.lower(), s.own_stores()
    if isinstance(s, (Block, Loop)):
        return f"{kind} '{s.name}'"
    return f"a store to '{stored[0].buffer}'" if stored else f"a {kind}"
