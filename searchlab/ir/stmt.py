"""Statements, before and after lowering.

The class of each kind declares its parts; traversals (`ir.statement_tree`) rely on nothing else, and passes handle
special kinds in methods of a `Visitor` or `Rewriter` (`ir.visitor`), so a new kind of statement does not require
changes to these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from searchlab.errors import IRError
from searchlab.ir.expr import TRUE, Expr, Var
from searchlab.ir.loopkind import KindChoice, LoopKind

IterKind = Literal["space", "reduce"]
SCOPES = ("global", "shared", "local")

Indices = tuple[Expr, ...]
Place = tuple[str, Indices]  # an element of a buffer

_set = object.__setattr__


@dataclass(frozen=True, slots=True)
class Buffer:
    """A dense row-major array; `scope` names the memory it is placed in."""

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


@dataclass(frozen=True, slots=True)
class Ahead:
    """A block's annotation to prefetch what it reads of a buffer some iterations of a loop later."""

    buffer: str
    loop: str
    distance: Expr

    def __str__(self) -> str:
        return f"{self.buffer}({self.loop} + {self.distance})"


def _same(s: Stmt) -> Stmt:
    return s


class Stmt:
    """Base of all statements: immutable, with slots for cached results, since programs share most of their statements.

    The methods here describe a statement without parts; subclasses override those that differ.
    """

    __slots__ = ("_below", "_ids", "_read", "_sound", "_written")
    _below: tuple[Stmt, ...]
    _ids: frozenset[int]
    _read: tuple[str, ...]
    _sound: Any
    _written: tuple[str, ...]

    def children(self) -> tuple[Stmt, ...]:
        """The statements directly inside."""
        return ()

    def own_expressions(self) -> tuple[Expr, ...]:
        """The expressions of the statement, without those of the statements inside it."""
        return ()

    def own_stores(self) -> tuple[Store, ...]:
        """The stores that the statement itself performs."""
        return ()

    def map_children(self, f: Callable[[Stmt], Stmt | None]) -> Stmt | None:
        """The statement with `f` applied to its children; None removes a child, and statements left empty with it."""
        return self

    def rebuild(self, f: Callable[[Expr], Expr], inside: Callable[[Stmt], Stmt] = _same) -> Stmt:
        """The statement with `f` applied to its own expressions and `inside` to the statements directly inside it."""
        return self

    def map_places(self, f: Callable[[Place], Place]) -> Stmt:
        """The statement with `f` applied to the elements it names directly, not to the loads in its expressions."""
        return self


@dataclass(frozen=True, slots=True)
class Store(Stmt):
    """buffer[indices] = value"""

    buffer: str
    indices: tuple[Expr, ...]
    value: Expr

    def own_expressions(self) -> tuple[Expr, ...]:
        """Indices and value."""
        return (*self.indices, self.value)

    def own_stores(self) -> tuple[Store, ...]:
        """Itself."""
        return (self,)

    def rebuild(self, f: Callable[[Expr], Expr], inside: Callable[[Stmt], Stmt] = _same) -> Store:
        """Indices and value rewritten."""
        return Store(self.buffer, tuple(map(f, self.indices)), f(self.value))

    def map_places(self, f: Callable[[Place], Place]) -> Store:
        """The target element mapped."""
        buffer, indices = f((self.buffer, self.indices))
        return replace(self, buffer=buffer, indices=indices)


@dataclass(frozen=True, slots=True)
class Update(Store):
    """A reduction step: accumulates into its element, set to `init` before the iteration where `first` is true.

    Exists only in lowered programs, until the init of the reduction has been placed.
    """

    init: Expr
    first: Expr

    def own_expressions(self) -> tuple[Expr, ...]:
        """Those of a store, and `init` and `first`."""
        return (*self.indices, self.value, self.init, self.first)

    def rebuild(self, f: Callable[[Expr], Expr], inside: Callable[[Stmt], Stmt] = _same) -> Update:
        """All expressions rewritten."""
        return Update(self.buffer, tuple(map(f, self.indices)), f(self.value), f(self.init), f(self.first))


@dataclass(frozen=True, slots=True)
class Prefetch(Stmt):
    """Prefetches the cache line of an element, which may be out of bounds (only in lowered programs)."""

    buffer: str
    indices: tuple[Expr, ...]

    def own_expressions(self) -> tuple[Expr, ...]:
        """The indices."""
        return self.indices

    def rebuild(self, f: Callable[[Expr], Expr], inside: Callable[[Stmt], Stmt] = _same) -> Prefetch:
        """The indices rewritten."""
        return Prefetch(self.buffer, tuple(map(f, self.indices)))

    def map_places(self, f: Callable[[Place], Place]) -> Prefetch:
        """The element mapped."""
        buffer, indices = f((self.buffer, self.indices))
        return replace(self, buffer=buffer, indices=indices)


@dataclass(frozen=True, slots=True)
class Barrier(Stmt):
    """No thread of a block goes on before all have come here (only in lowered programs)."""


@dataclass(frozen=True, slots=True)
class Seq(Stmt):
    """Statements in order."""

    body: tuple[Stmt, ...]

    def children(self) -> tuple[Stmt, ...]:
        """All of them."""
        return self.body

    def map_children(self, f: Callable[[Stmt], Stmt | None]) -> Stmt | None:
        """The sequence of the remaining parts, flattened."""
        parts = [p for p in map(f, self.body) if p is not None]
        return seq(*parts) if parts else None

    def rebuild(self, f: Callable[[Expr], Expr], inside: Callable[[Stmt], Stmt] = _same) -> Seq:
        """The parts rewritten."""
        return Seq(tuple(map(inside, self.body)))


class Around(Stmt):
    """A statement that encloses exactly one other, its `body`."""

    __slots__ = ()
    body: Stmt

    def children(self) -> tuple[Stmt, ...]:
        """The body."""
        return (self.body,)

    def with_body(self, body: Stmt) -> Stmt:
        """The statement with another body."""
        return replace(self, body=body)  # type: ignore[type-var]

    def map_children(self, f: Callable[[Stmt], Stmt | None]) -> Stmt | None:
        """The statement around its rewritten body, or None if nothing is left of the body."""
        body = f(self.body)
        return None if body is None else self if body is self.body else self.with_body(body)


@dataclass(frozen=True, slots=True)
class Loop(Around):
    """for var in range(extent): body"""

    var: Var
    extent: Expr
    body: Stmt
    kind: LoopKind = LoopKind.SERIAL
    annotations: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if type(self.kind) is not LoopKind:  # given by name
            try:
                _set(self, "kind", LoopKind(self.kind))
            except ValueError:
                known = ", ".join(LoopKind)
                raise IRError(f"loop '{self.name}' has unknown kind '{self.kind}'; known: {known}") from None

    @property
    def name(self) -> str:
        """The name of its variable."""
        return self.var.name

    @property
    def kinds(self) -> tuple[LoopKind, ...]:
        """Its possible kinds: its own, or those that its annotation `kind` selects from."""
        choice = dict(self.annotations).get("kinds") if self.annotations else None
        return choice.kinds if isinstance(choice, KindChoice) else (self.kind,)

    def own_expressions(self) -> tuple[Expr, ...]:
        """The extent."""
        return (self.extent,)

    def with_body(self, body: Stmt) -> Loop:
        """The loop with another body."""
        return Loop(self.var, self.extent, body, self.kind, self.annotations)

    def rebuild(self, f: Callable[[Expr], Expr], inside: Callable[[Stmt], Stmt] = _same) -> Loop:
        """Extent and body rewritten."""
        return Loop(self.var, f(self.extent), inside(self.body), self.kind, self.annotations)


@dataclass(frozen=True, slots=True)
class Block(Around):
    """One computation: `init` runs in the first reduce iteration, `body` in each, both only where `predicate` holds."""

    name: str
    iters: tuple[Iter, ...]
    bindings: tuple[Expr, ...]
    body: Stmt
    init: Store | None = None
    predicate: Expr = TRUE
    annotations: tuple[tuple[str, Any], ...] = ()

    @property
    def ahead(self) -> tuple[Ahead, ...]:
        """Its prefetch annotations."""
        return tuple(note for _, note in self.annotations if isinstance(note, Ahead))

    @property
    def reduces(self) -> bool:
        """Whether it has a reduction."""
        return any(it.kind == "reduce" for it in self.iters)

    @property
    def store(self) -> Store:
        """The one store of a leaf block."""
        if not isinstance(self.body, Store):
            raise IRError(f"block '{self.name}' holds other blocks, not one store")
        return self.body

    def own_expressions(self) -> tuple[Expr, ...]:
        """Extents, bindings and predicate, and those of the init."""
        init = self.init.own_expressions() if self.init is not None else ()
        return (*(it.extent for it in self.iters), *self.bindings, self.predicate, *init)

    def own_stores(self) -> tuple[Store, ...]:
        """The init."""
        return () if self.init is None else (self.init,)

    def rebuild(self, f: Callable[[Expr], Expr], inside: Callable[[Stmt], Stmt] = _same) -> Block:
        """Extents, bindings, predicate, init and body rewritten."""
        init = None if self.init is None else self.init.rebuild(f, inside)
        iters = tuple([Iter(it.var, f(it.extent), it.kind) for it in self.iters])
        bindings = tuple(map(f, self.bindings))
        return Block(self.name, iters, bindings, inside(self.body), init, f(self.predicate), self.annotations)

    def map_places(self, f: Callable[[Place], Place]) -> Block:
        """The target of the init mapped."""
        return self if self.init is None else replace(self, init=self.init.map_places(f))


@dataclass(frozen=True, slots=True)
class If(Around):
    """Runs the body where the condition holds (only in lowered programs: schedules use block predicates)."""

    condition: Expr
    body: Stmt

    def own_expressions(self) -> tuple[Expr, ...]:
        """The condition."""
        return (self.condition,)

    def rebuild(self, f: Callable[[Expr], Expr], inside: Callable[[Stmt], Stmt] = _same) -> If:
        """Condition and body rewritten."""
        return If(f(self.condition), inside(self.body))


@dataclass(frozen=True, slots=True)
class Alloc(Around):
    """A buffer whose lifetime is the body (only in lowered programs)."""

    buffer: Buffer
    body: Stmt

    def own_expressions(self) -> tuple[Expr, ...]:
        """The extents of the buffer."""
        return self.buffer.shape

    def rebuild(self, f: Callable[[Expr], Expr], inside: Callable[[Stmt], Stmt] = _same) -> Alloc:
        """The extents of the buffer and the body rewritten."""
        return Alloc(replace(self.buffer, shape=tuple(map(f, self.buffer.shape))), inside(self.body))


@dataclass(frozen=True, slots=True)
class Tensorized(Around):
    """The body as one call of an instruction, whose description it matches; it computes what the body says."""

    intrinsic: str
    body: Stmt

    def rebuild(self, f: Callable[[Expr], Expr], inside: Callable[[Stmt], Stmt] = _same) -> Tensorized:
        """The body rewritten."""
        return Tensorized(self.intrinsic, inside(self.body))


KINDS: tuple[type[Stmt], ...] = (Store, Update, Prefetch, Barrier, Seq, Loop, Block, If, Alloc, Tensorized)


def seq(*parts: Stmt) -> Stmt:
    """Statements in order, flattened; a single statement is returned as it is."""
    flat = [x for p in parts for x in parts_of(p)]
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def parts_of(s: Stmt) -> tuple[Stmt, ...]:
    """The statements of a sequence; any other statement alone."""
    return s.body if isinstance(s, Seq) else (s,)
