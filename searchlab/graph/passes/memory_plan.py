"""Memory planning: where the values of a function are held, decided before it runs.

    none        each value has memory of its own, which is freed at the end of the call
    pool        each value acquires a block when it is computed and releases it after its last use; a pool keeps blocks
    symbolic    values whose lifetimes do not meet share a storage if their sizes are provably equal
    bounds      all values are at fixed offsets in one arena, planned for the upper bounds of the symbols

A plan says nothing about parameters and constants, which exist already, nor about results, which the caller owns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, get_args

from searchlab.errors import GraphError
from searchlab.graph.functions import GraphFunction, GraphModule
from searchlab.graph.passes.arena import ArenaBlock, most_live, packed
from searchlab.graph.passes.lifetimes import Lifetime, lifetimes
from searchlab.graph.symbols import undetermined
from searchlab.ir.expr import Const, Expr, value_of
from searchlab.registry import nearest

Policy = Literal["none", "pool", "symbolic", "bounds"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
ARENA = "arena"
SPREAD = 16  # a storage of constant size holds constant sizes down to this fraction of it


@dataclass(frozen=True, slots=True)
class Storage:
    """Memory that is acquired before the binding `first` and released after the binding `last`.

    `size` is in bytes, in the symbols of the function; `last` is the number of bindings if it is kept until the end.
    """

    name: str
    size: Expr
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where values are held.  A call with several outputs has the values `name.0`, `name.1`, ...

    `places` maps values to storages; the scratch memory of a call is the value `name.workspace`.  Parameters,
    constants and the values of `outside` have no place, nor have views and the like: `aliases` maps these to the value
    whose memory they share.  `outside` is what outlives a call (results, what a library function retains) or has no
    known size.  `offsets` says where in its storage a value begins, if not at 0.
    """

    policy: Policy
    storages: tuple[Storage, ...]
    places: Mapping[str, str]
    aliases: Mapping[str, str]
    offsets: Mapping[str, int] = field(default_factory=dict)
    outside: tuple[Lifetime, ...] = ()
    values: tuple[Lifetime, ...] = ()
    length: int = 0  # the number of bindings
    notes: tuple[str, ...] = ()

    def storage_of(self, value: str) -> str | None:
        """The storage that a value or an alias of it is held in; None if it has no place."""
        return self.places.get(self.aliases.get(value, value))

    def offset_of(self, value: str) -> int:
        """The byte in its storage at which a value, or an alias of it, begins."""
        return self.offsets.get(self.aliases.get(value, value), 0)

    def acquired_before(self, binding: int) -> tuple[Storage, ...]:
        """The storages to acquire before a binding, in order."""
        return tuple(s for s in self.storages if s.first == binding)

    def released_after(self, binding: int) -> tuple[Storage, ...]:
        """The storages to release after a binding, in order; those of the number of bindings at the end."""
        return tuple(s for s in self.storages if s.last == binding)

    @property
    def arena(self) -> int | None:
        """The bytes of the arena, if there is one."""
        return next((value_of(s.size) for s in self.storages if s.name == ARENA), None)

    def summary(self) -> str:
        """The plan for people: a line per storage with what it holds, then what it does not hold, and why."""
        return "\n".join(_summary_lines(self)) + "\n"


def plan_memory(module: GraphModule, function: str = "main", policy: Policy = "bounds") -> MemoryPlan:
    """A plan for one function of a module; functions that it calls have plans of their own."""
    if policy not in POLICIES:
        raise GraphError(f"there is no memory policy '{policy}'{nearest(policy, POLICIES)}")
    planned = module[function]
    found = lifetimes(module, planned)
    known = tuple(v for v in found.values if v.size is not None)
    unknown = tuple(v for v in found.values if v.size is None)
    made = _POLICIES[policy](planned, known)
    notes = made.notes
    if unknown:
        notes += (f"no place, since the shape or the dtype is not known: {_names(unknown)}",)
    return MemoryPlan(
        policy,
        tuple(sorted(made.storages, key=lambda s: s.first)),
        made.places,
        found.aliases,
        made.offsets,
        found.outside + unknown,
        known,
        len(planned.bindings),
        notes,
    )


@dataclass(frozen=True)
class _Made:
    """What a policy decides."""

    storages: Sequence[Storage]
    places: dict[str, str]
    offsets: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def _bytes(value: Lifetime) -> Expr:
    assert value.size is not None  # the others were set aside
    return value.size


def _own(function: GraphFunction, values: Sequence[Lifetime]) -> _Made:
    """A storage for each value, kept until the end."""
    storages = [Storage(v.name, _bytes(v), v.first, len(function.bindings)) for v in values]
    return _Made(storages, {v.name: v.name for v in values})


def _pooled(function: GraphFunction, values: Sequence[Lifetime]) -> _Made:
    """A storage for each value, released after its last use."""
    storages = [Storage(v.name, _bytes(v), v.first, v.last) for v in values]
    return _Made(storages, {v.name: v.name for v in values})


# --- equal sizes ------------------------------------------------------------------------------------------------------


@dataclass
class _Shared:
    """A storage that is being planned: values one after the other."""

    name: str
    size: Expr
    values: list[Lifetime]

    @property
    def last(self) -> int:
        """The binding after which it is free."""
        return self.values[-1].last


def _symbolic(function: GraphFunction, values: Sequence[Lifetime]) -> _Made:
    """Values in order of definition, each in a free storage that certainly fits, or in a new one."""
    made: list[_Shared] = []
    equal = cache(function.facts.equal)  # few sizes are compared often
    for v in values:
        found = _fitting([s for s in made if s.last < v.first], _bytes(v), equal)
        if found is None:
            made.append(_Shared(f"storage_{len(made)}", _bytes(v), [v]))
        else:
            found.size = _larger(found.size, _bytes(v))
            found.values.append(v)
    storages = [Storage(s.name, s.size, s.values[0].first, s.last) for s in made]
    return _Made(storages, {v.name: s.name for s in made for v in s.values})


def _fitting(free: Iterable[_Shared], size: Expr, equal: Callable[[Expr, Expr], bool]) -> _Shared | None:
    """A free storage of the same size; of two numbers, the storage may be larger or made larger, within limits."""
    wanted, numbers = value_of(size), []
    for s in free:
        known = value_of(s.size)
        if s.size == size or (known is None and wanted is None and equal(s.size, size)):
            return s
        if known is not None and wanted is not None:
            numbers.append((known, s))
    if wanted is None:
        return None
    holding = [(known, s) for known, s in numbers if wanted <= known <= wanted * SPREAD]
    if holding:
        return min(holding, key=lambda pair: pair[0])[1]
    growing = [(known, s) for known, s in numbers if known < wanted <= known * SPREAD]
    return max(growing, key=lambda pair: pair[0])[1] if growing else None


def _larger(a: Expr, b: Expr) -> Expr:
    x, y = value_of(a), value_of(b)
    return a if x is None or y is None else Const(max(x, y))


# --- upper bounds -----------------------------------------------------------------------------------------------------


def _bounded(function: GraphFunction, values: Sequence[Lifetime]) -> _Made:
    """An arena for the values whose sizes have an upper bound; the others share storages of equal sizes."""
    limits = {v.name: function.facts.upper(_bytes(v)) for v in values}
    intervals = [ArenaBlock(v.name, limit, v.first, v.last) for v in values if (limit := limits[v.name]) is not None]
    rest = [v for v in values if limits[v.name] is None]
    other = _symbolic(function, rest)
    if not intervals:
        return _Made(other.storages, other.places, notes=_unbounded(function, rest))
    offsets, size = packed(intervals)
    arena = Storage(ARENA, Const(size), 0, len(function.bindings))
    places = {i.name: ARENA for i in intervals} | other.places
    note = f"{len(intervals)} values in {size} bytes; at most {most_live(intervals)} bytes are needed at once"
    return _Made([arena, *other.storages], places, offsets, (note, *_unbounded(function, rest)))


def _unbounded(function: GraphFunction, rest: Sequence[Lifetime]) -> tuple[str, ...]:
    if not rest:
        return ()
    bounded = [v for v, known in function.ranges.items() if known.high is not None]
    free = undetermined((_bytes(v) for v in rest), bounded)
    why = f"{', '.join(v.name for v in free)} without an upper bound" if free else "sizes that cannot be bounded"
    return (f"outside the arena, {why}: {_names(rest)}",)


_POLICIES: dict[Policy, Callable[[GraphFunction, Sequence[Lifetime]], _Made]] = {
    "none": _own,
    "pool": _pooled,
    "symbolic": _symbolic,
    "bounds": _bounded,
}


# --- for people -------------------------------------------------------------------------------------------------------


def _names(values: Iterable[Lifetime], most: int = 8) -> str:
    names = [v.name for v in values]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _summary_lines(plan: MemoryPlan) -> Iterable[str]:
    yield f"memory by '{plan.policy}': {len(plan.values)} values in {len(plan.storages)} storages"
    held: dict[str, list[Lifetime]] = {}
    for v in plan.values:
        held.setdefault(plan.places[v.name], []).append(v)
    rows = [("storage", "bytes", "calls", "values")]
    for s in plan.storages:
        last = "end" if s.last == plan.length else str(s.last)
        rows.append((s.name, str(s.size), f"{s.first}-{last}", _names(held.get(s.name, ()))))
    widths = [max(len(row[n]) for row in rows) for n in range(3)]
    for name, size, calls, values in rows:
        yield f"  {name:{widths[0]}}  {size:>{widths[1]}}  {calls:>{widths[2]}}  {values}".rstrip()
    if plan.outside:
        yield f"  memory of their own: {_names(plan.outside)}"
    yield from (f"  {note}" for note in plan.notes)
