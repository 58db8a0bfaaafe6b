"""Lifetimes: which memory the values of a function occupy, and from which call to which it is needed.

A *root* is memory that one call fills: the result of a call, or one of several (`name.0`, `name.1`).  Views,
match_casts, tuples and items are no memory of their own but refer to roots, and keep these alive as long as they are
used themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from searchlab.dtype import DTYPES
from searchlab.graph.annotations import Annotation, ShapeType, TensorType, TupleType
from searchlab.graph.calls import (
    BranchCall,
    FunctionCall,
    GraphCall,
    ItemCall,
    LibraryCall,
    MatchCast,
    Operand,
    OperatorCall,
    ProgramCall,
    TupleCall,
)
from searchlab.graph.functions import Binding, GraphFunction, GraphModule
from searchlab.graph.library import retains_arrays
from searchlab.ir.expr import ONE, Expr

WORKSPACE = "workspace"  # `name.workspace`: the scratch memory of the call that `name` is the result of


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Memory that a call fills: needed from the binding `first` to the binding `last`, both included."""

    name: str
    size: Expr | None  # bytes; None if the shape or the dtype is not known
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both are needed at some call."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class MemoryRef:
    """What a value refers to: a root and other roots that may be the same memory, or parts."""

    root: str | None = None
    shares: frozenset[str] = frozenset()
    parts: tuple[MemoryRef, ...] | None = None

    def roots(self) -> Iterator[str]:
        """Everything that must be kept while the value is used."""
        yield from () if self.root is None else (self.root,)
        yield from self.shares
        for part in self.parts or ():
            yield from part.roots()

    def part(self, index: int) -> MemoryRef:
        """An item; of a value about which nothing is known, the whole of it."""
        return self if self.parts is None else self.parts[index]


@dataclass(frozen=True)
class Lifetimes:
    """The memory of one call of a function.

    `values` is what a plan may place, in the order of definition.  `outside` is what outlives the call, or may:
    results, and arrays that a library function retains; each has memory of its own.  `aliases` maps values that share
    the memory of another one to its root.
    """

    values: tuple[Lifetime, ...]
    outside: tuple[Lifetime, ...]
    aliases: dict[str, str]


def size_in_bytes(annotation: Annotation) -> Expr | None:
    """The bytes of a tensor; None if its shape or dtype is not known."""
    if not isinstance(annotation, TensorType) or annotation.shape is None or annotation.dtype is None:
        return None
    found: Expr = ONE * DTYPES[annotation.dtype].bytes
    for extent in annotation.shape:
        found = found * extent
    return found


def lifetimes(module: GraphModule, function: GraphFunction) -> Lifetimes:
    """The lifetimes of everything that the calls of a function fill."""
    found = _LifetimeWalk(module, function)
    found.run()
    kept = found.returned | found.retained
    inside = tuple(m for m in found.made.values() if m.name not in kept)
    return Lifetimes(inside, tuple(m for m in found.made.values() if m.name in kept), found.aliases)


@dataclass
class _LifetimeWalk:
    """Walks the bindings in order; every use of a value moves the end of the lifetimes of what it refers to."""

    module: GraphModule
    function: GraphFunction
    refs: dict[str, MemoryRef] = field(default_factory=dict)
    made: dict[str, Lifetime] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    retained: set[str] = field(default_factory=set)  # by library functions
    callees: dict[str, tuple[frozenset[int], frozenset[int]]] = field(default_factory=dict)  # those looked at so far

    def run(self) -> None:
        """Visits all bindings."""
        for p in self.function.parameters:
            self.refs[p.name] = _named(p.name, p.annotation)
        for at, b in enumerate(self.function.bindings):
            ref = _RULES[type(b.call)](self, at, b)
            if ref.root not in (None, b.name) and ref.parts is None:
                self.aliases[b.name] = str(ref.root)
            self.refs[b.name] = ref
            for operand in b.call.operands():
                self.use(self.ref(operand), at)

    @property
    def returned(self) -> frozenset[str]:
        """What the result refers to."""
        return frozenset(self.ref(self.function.result).roots())

    def use(self, ref: MemoryRef, at: int) -> None:
        """Extends lifetimes to a binding."""
        for root in ref.roots():
            if root in self.made:
                self.made[root] = replace(self.made[root], last=at)

    def ref(self, operand: Operand) -> MemoryRef:
        """What an operand refers to; constants are roots that nobody fills."""
        if not isinstance(operand, str):
            return MemoryRef()
        return self.refs.get(operand, MemoryRef(operand))

    def fill(self, at: int, name: str, annotation: Annotation) -> MemoryRef:
        """New memory for the result of a binding."""
        ref = _named(name, annotation)
        for root, part in _leaves(ref, annotation):
            self.made[root] = Lifetime(root, size_in_bytes(part), at, at)
        return ref

    def leaving(self, callee: str) -> tuple[frozenset[int], frozenset[int]]:
        """The parameters of a function whose memory its result may refer to, and those that are retained for good."""
        if callee not in self.callees:
            inner = _LifetimeWalk(self.module, self.module[callee], callees=self.callees)
            inner.run()
            own = [frozenset(inner.refs[p.name].roots()) for p in inner.function.parameters]
            returned = frozenset(n for n, roots in enumerate(own) if roots & inner.returned)
            retained = frozenset(n for n, roots in enumerate(own) if roots & inner.retained)
            self.callees[callee] = returned, retained
        return self.callees[callee]


def _named(name: str, annotation: Annotation) -> MemoryRef:
    """A root for every tensor of a value."""
    if isinstance(annotation, TupleType):
        return MemoryRef(parts=tuple(_named(f"{name}.{n}", part) for n, part in enumerate(annotation.parts)))
    return MemoryRef() if isinstance(annotation, ShapeType) else MemoryRef(name)


def _leaves(ref: MemoryRef, annotation: Annotation) -> Iterator[tuple[str, Annotation]]:
    if isinstance(annotation, TupleType):
        for part, inner in zip(ref.parts or (), annotation.parts, strict=True):
            yield from _leaves(part, inner)
    elif ref.root is not None:
        yield ref.root, annotation


# --- what each kind of call refers to ---------------------------------------------------------------------------------


def _operator(walk: _LifetimeWalk, at: int, b: Binding) -> MemoryRef:
    assert isinstance(b.call, OperatorCall)
    if b.call.operator.is_view:
        return walk.ref(b.call.args[0])
    return walk.fill(at, b.name, b.annotation)


def _program(walk: _LifetimeWalk, at: int, b: Binding) -> MemoryRef:
    assert isinstance(b.call, ProgramCall)
    if b.call.workspace is not None:
        name = f"{b.name}.{WORKSPACE}"
        walk.made[name] = Lifetime(name, b.call.workspace, at, at)
    return walk.fill(at, b.name, b.annotation)


def _library(walk: _LifetimeWalk, at: int, b: Binding) -> MemoryRef:
    assert isinstance(b.call, LibraryCall)
    filled = walk.fill(at, b.name, b.annotation)
    if retains_arrays(b.call.function):
        walk.retained.update(filled.roots(), *(walk.ref(operand).roots() for operand in b.call.args))
    return filled


def _function(walk: _LifetimeWalk, at: int, b: Binding) -> MemoryRef:
    """The callee hands its results over, in memory of its own, unless they are its arguments or views of these."""
    roots = [frozenset(walk.ref(operand).roots()) for operand in b.call.operands()]
    shared: frozenset[str] = frozenset()
    for callee in b.call.functions():
        returned, retained = walk.leaving(callee)
        walk.retained.update(*(roots[n] for n in retained))
        shared = shared.union(*(roots[n] for n in returned))
    return _sharing(_named(b.name, b.annotation), shared)


def _sharing(ref: MemoryRef, roots: frozenset[str]) -> MemoryRef:
    if ref.parts is not None:
        return MemoryRef(parts=tuple(_sharing(part, roots) for part in ref.parts))
    return ref if ref.root is None else replace(ref, shares=ref.shares | roots)


_RULES: dict[type[GraphCall], Callable[[_LifetimeWalk, int, Any], MemoryRef]] = {
    OperatorCall: _operator,
    ProgramCall: _program,
    LibraryCall: _library,
    FunctionCall: _function,
    BranchCall: _function,
    MatchCast: lambda walk, at, b: walk.ref(b.call.value),
    TupleCall: lambda walk, at, b: MemoryRef(parts=tuple(map(walk.ref, b.call.args))),
    ItemCall: lambda walk, at, b: walk.ref(b.call.value).part(b.call.index),
}
