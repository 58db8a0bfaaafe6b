"""Programs: buffers, loops, blocks and stores, as immutable values.

A block isolates one computation from the loops around it by a signature: iteration variables (space or reduce), each
bound to an expression of loop variables.  Schedule primitives change loops and bindings; what a block computes stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from searchlab.errors import IRError
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import TRUE, Expr, Load, Var, loads, variables

IterKind = Literal["space", "reduce"]
LOOP_KINDS = ("serial", "parallel", "vectorized", "unrolled")
THREAD_AXES = tuple(f"{space}.{axis}" for space in ("blockIdx", "threadIdx", "vthread") for axis in "xyz")
SCOPES = ("global", "shared", "local")

_set = object.__setattr__


@dataclass(frozen=True, slots=True)
class Buffer:
    """A dense row-major array; `scope` says which memory it should live in."""

    name: str
    shape: tuple[Expr, ...]
    dtype: str
    scope: str = "global"


@dataclass(frozen=True, slots=True)
class Iter:
    """An iteration variable of a block: its domain is [0, extent)."""

    var: Var
    extent: Expr
    kind: IterKind = "space"


class _Remembering:
    """Gives every statement slots for what is worked out about it once: programs share most of their statements."""

    __slots__ = ("_below", "_ids", "_read", "_sound", "_written")
    _below: tuple[Stmt, ...]
    _ids: frozenset[int]
    _read: tuple[str, ...]
    _sound: Any
    _written: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Store(_Remembering):
    """buffer[indices] = value"""

    buffer: str
    indices: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Prefetch(_Remembering):
    """Brings the cache line of an element near, which need not exist (only in lowered programs)."""

    buffer: str
    indices: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Ahead:
    """A block's note that it prefetches what it will read of a buffer some iterations of a loop later."""

    buffer: str
    loop: str
    distance: Expr

    def __str__(self) -> str:
        return f"{self.buffer}({self.loop} + {self.distance})"


@dataclass(frozen=True, slots=True)
class Seq(_Remembering):
    """Statements in order."""

    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Loop(_Remembering):
    """for var in range(extent): body"""

    var: Var
    extent: Expr
    body: Stmt
    kind: str = "serial"
    annotations: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        return self.var.name

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds it may yet become: its own, or those among which the note `kind` chooses."""
        listed = dict(self.annotations).get("kinds") if self.annotations else None
        return (self.kind,) if listed is None else tuple(listed.split("|"))


@dataclass(frozen=True, slots=True)
class Block(_Remembering):
    """One computation: `init` runs at the first reduce iteration, `body` at each, both only where `predicate` holds."""

    name: str
    iters: tuple[Iter, ...]
    bindings: tuple[Expr, ...]
    body: Stmt
    init: Store | None = None
    predicate: Expr = TRUE
    annotations: tuple[tuple[str, Any], ...] = ()

    @property
    def ahead(self) -> tuple[Ahead, ...]:
        """What it prefetches."""
        return tuple(note for _, note in self.annotations if isinstance(note, Ahead))

    @property
    def reduces(self) -> bool:
        return any(it.kind == "reduce" for it in self.iters)

    @property
    def store(self) -> Store:
        """The one store of a leaf block."""
        if not isinstance(self.body, Store):
            raise IRError(f"block '{self.name}' holds other blocks, not one store")
        return self.body


@dataclass(frozen=True, slots=True)
class If(_Remembering):
    """Runs the body where the condition holds (only in lowered programs: schedules use block predicates)."""

    condition: Expr
    body: Stmt


@dataclass(frozen=True, slots=True)
class Alloc(_Remembering):
    """A buffer that lives while the body runs (only in lowered programs)."""

    buffer: Buffer
    body: Stmt


Stmt = Store | Prefetch | Seq | Loop | Block | If | Alloc


@dataclass(frozen=True, slots=True)
class Layout:
    """A parameter that is stored in another shape than the caller's: element `source` of the original goes to `target`.

    `source` holds one expression per original dimension in the variables `iters` of the new shape; where `predicate`
    fails the new buffer holds zero.
    """

    buffer: str
    original: Buffer
    iters: tuple[Var, ...]
    source: tuple[Expr, ...]
    predicate: Expr = TRUE


@dataclass(frozen=True)
class Program:
    """A function of buffers: inputs in, outputs out, loops and blocks between, with symbols anywhere in extents."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    buffers: Mapping[str, Buffer]
    body: Stmt
    assumptions: tuple[Expr, ...] = ()
    layouts: tuple[Layout, ...] = ()
    trace: tuple[Any, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        from searchlab.ir.printer import program_text

        return program_text(self)

    @cached_property
    def hash(self) -> str:
        """A short name for exactly this program, the same in every process."""
        return hashlib.sha256(str(self).encode()).hexdigest()[:16]

    @cached_property
    def blocks(self) -> dict[str, Block]:
        """All blocks by name, in program order."""
        return {s.name: s for s in statements(self.body) if type(s) is Block}

    @cached_property
    def loops(self) -> dict[str, Loop]:
        """All loops by name, outermost first."""
        return {s.var.name: s for s in statements(self.body) if type(s) is Loop}

    @cached_property
    def symbols(self) -> tuple[Var, ...]:
        """The knobs and run-time sizes that occur, sorted by name."""
        found = set(self.measures)
        for s in statements(self.body):
            for _, note in getattr(s, "annotations", ()):
                value = note.distance if isinstance(note, Ahead) else note
                found |= variables(value) if isinstance(value, Expr) else frozenset()
        return tuple(sorted((v for v in found if v.role != "iter"), key=lambda v: v.name))

    @cached_property
    def measures(self) -> frozenset[Var]:
        """The symbols in extents, indices and shapes, which are at least 1; those in notes only may be 0."""
        found: set[Var] = set()
        for e in expressions(self.body):
            found |= variables(e)
        for b in self.buffers.values():
            for extent in b.shape:
                found |= variables(extent)
        return frozenset(v for v in found if v.role != "iter")

    @property
    def knobs(self) -> tuple[str, ...]:
        return tuple(v.name for v in self.symbols if v.role == "knob")

    @property
    def sizes(self) -> tuple[str, ...]:
        return tuple(v.name for v in self.symbols if v.role == "size")

    @cached_property
    def facts(self) -> Facts:
        """Extents of all loops and what the program assumes."""
        return Facts({lp.var: lp.extent for lp in self.loops.values()}, self.assumptions)

    def with_body(self, body: Stmt, **changes: Any) -> Program:
        return replace(self, body=body, **changes)

    def substitute(self, values: Mapping[str, int]) -> Program:
        """The program with integers in place of symbols; refuses values that break what the schedule assumed."""
        from searchlab.ir.rewrite import substitute_program

        return substitute_program(self, values)


def statements(s: Stmt) -> tuple[Stmt, ...]:
    """The statement and all inside it, in program order (a block's init is not a statement of its own)."""
    return (s, *below(s))


def below(s: Stmt) -> tuple[Stmt, ...]:
    """The statements inside a statement, which remembers them."""
    try:
        return s._below
    except AttributeError:
        inside = children(s)
        found = statements(inside[0]) if len(inside) == 1 else tuple(x for child in inside for x in statements(child))
        _set(s, "_below", found)
        return found


def holds(s: Stmt, inner: Stmt) -> bool:
    """Whether a statement has another one, that very one, inside it."""
    try:
        return id(inner) in s._ids
    except AttributeError:
        _set(s, "_ids", frozenset(map(id, below(s))))  # these live as long as the statement that holds them
        return id(inner) in s._ids


def children(s: Stmt) -> tuple[Stmt, ...]:
    """The statements directly inside."""
    if isinstance(s, Loop):
        return (s.body,)
    if isinstance(s, Seq):
        return s.body
    return () if isinstance(s, (Store, Prefetch)) else (s.body,)


def own_expressions(s: Stmt) -> Iterator[Expr]:
    """The expressions of one statement, without those of the statements inside it."""
    if isinstance(s, Store):
        yield from s.indices
        yield s.value
    elif isinstance(s, Prefetch):
        yield from s.indices
    elif isinstance(s, Loop):
        yield s.extent
    elif isinstance(s, If):
        yield s.condition
    elif isinstance(s, Alloc):
        yield from s.buffer.shape
    elif isinstance(s, Block):
        yield from (it.extent for it in s.iters)
        yield from s.bindings
        yield s.predicate
        if s.init is not None:
            yield from own_expressions(s.init)


def expressions(s: Stmt) -> Iterator[Expr]:
    """All expressions in a statement."""
    for part in statements(s):
        yield from own_expressions(part)


def stores(s: Stmt) -> Iterator[Store]:
    """All stores in a statement, inits included."""
    for part in statements(s):
        if isinstance(part, Store):
            yield part
        elif isinstance(part, Block) and part.init is not None:
            yield part.init


def written(s: Stmt) -> tuple[str, ...]:
    """Names of the buffers a statement writes, in order; it remembers them."""
    try:
        return s._written
    except AttributeError:
        if isinstance(s, Store):
            found: tuple[str, ...] = (s.buffer,)
        else:
            first = (s.init.buffer,) if isinstance(s, Block) and s.init is not None else ()
            found = tuple(dict.fromkeys((*first, *(name for child in children(s) for name in written(child)))))
        _set(s, "_written", found)
        return found


def accesses(s: Stmt) -> Iterator[Load]:
    """All loads in a statement (a reduction's load of its own output included)."""
    for e in expressions(s):
        yield from loads(e)


def read(s: Stmt) -> tuple[str, ...]:
    """Names of the buffers a statement reads, in order; it remembers them."""
    try:
        return s._read
    except AttributeError:
        own = (ld.buffer for e in own_expressions(s) for ld in loads(e))
        found = tuple(dict.fromkeys((*own, *(name for child in children(s) for name in read(child)))))
        _set(s, "_read", found)
        return found


def seq(*parts: Stmt) -> Stmt:
    """Statements in order, flattened; a single one stands for itself."""
    flat: list[Stmt] = []
    for p in parts:
        flat.extend(p.body if isinstance(p, Seq) else (p,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def map_children(s: Stmt, f: Callable[[Stmt], Stmt | None]) -> Stmt | None:
    """The statement with `f` applied to the ones directly inside; a None removes it, and what becomes empty."""
    if isinstance(s, (Store, Prefetch)):
        return s
    if isinstance(s, Seq):
        parts = [p for p in (f(x) for x in s.body) if p is not None]
        return seq(*parts) if parts else None
    body = f(s.body)
    if body is None:
        return None
    return s if body is s.body else replace(s, body=body)


def map_expressions(s: Stmt, f: Callable[[Expr], Expr]) -> Stmt:
    """The statement with `f` applied to every whole expression in it (indices, values, extents, bindings)."""
    if isinstance(s, Store):
        return Store(s.buffer, tuple(f(i) for i in s.indices), f(s.value))
    if isinstance(s, Prefetch):
        return replace(s, indices=tuple(f(i) for i in s.indices))
    if isinstance(s, Seq):
        return Seq(tuple(map_expressions(p, f) for p in s.body))
    body = map_expressions(s.body, f)
    if isinstance(s, Loop):
        return Loop(s.var, f(s.extent), body, s.kind, s.annotations)
    if isinstance(s, If):
        return If(f(s.condition), body)
    if isinstance(s, Alloc):
        return Alloc(replace(s.buffer, shape=tuple(f(e) for e in s.buffer.shape)), body)
    init = map_expressions(s.init, f) if s.init is not None else None
    iters = tuple(Iter(it.var, f(it.extent), it.kind) for it in s.iters)
    return Block(s.name, iters, tuple(f(b) for b in s.bindings), body, init, f(s.predicate), s.annotations)  # type: ignore[arg-type]
