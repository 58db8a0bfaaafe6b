"""Memory planning: where the values of a function are held, decided before it runs.

    none        each value has memory of its own, which is freed at the end of the call
    pool        each value acquires a block when it is computed and releases it after its last use; a pool keeps blocks

A plan says nothing about parameters and constants, which exist already, nor about results, which the caller owns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from searchlab.dtype import DTYPES
from searchlab.errors import GraphError
from searchlab.graph.annotations import Annotation, TensorType, TupleType
from searchlab.graph.calls import ItemCall, LibraryCall, MatchCast, OperatorCall, ProgramCall, TupleCall
from searchlab.graph.functions import GraphModule
from searchlab.ir.expr import ONE, Expr

Policy = Literal["none", "pool", "symbolic", "bounds"]


@dataclass(frozen=True, slots=True)
class Storage:
    """Memory that is acquired before the binding `first` and released after the binding `last`."""

    name: str
    size: Expr
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Memory that a call fills: needed from the binding `first` to the binding `last`, both included."""

    name: str
    size: Expr | None
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where values are held.  A call with several outputs has the values `name.0`, `name.1`, ..."""

    policy: Policy
    storages: tuple[Storage, ...]
    places: Mapping[str, str]
    aliases: Mapping[str, str]
    offsets: Mapping[str, int] = field(default_factory=dict)
    values: tuple[Lifetime, ...] = ()


def plan_memory(module: GraphModule, function: str = "main", policy: Policy = "pool") -> MemoryPlan:
    """A plan for one function of a module."""
    if policy not in ("none", "pool"):
        raise GraphError(f"there is no memory policy '{policy}'; known: none, pool")
    planned = module[function]
    trees: dict[str, Any] = {}
    made: dict[str, Lifetime] = {}

    def tree(operand: object) -> Any:
        return trees.get(operand) if isinstance(operand, str) else None

    def use(found: Any, at: int) -> None:
        if isinstance(found, tuple):
            for part in found:
                use(part, at)
        elif found in made:
            made[found] = replace(made[found], last=at)

    for at, b in enumerate(planned.bindings):
        call = b.call
        if isinstance(call, TupleCall):
            trees[b.name] = tuple(map(tree, call.args))
        elif isinstance(call, ItemCall):
            whole = tree(call.value)
            trees[b.name] = whole[call.index] if isinstance(whole, tuple) else None
        elif isinstance(call, MatchCast) or (isinstance(call, OperatorCall) and call.operator.is_view):
            trees[b.name] = tree(call.operands()[0])
        elif isinstance(call, (ProgramCall, LibraryCall)):
            trees[b.name] = _named(b.name, b.annotation, at, made)
        for operand in call.operands():
            use(tree(operand), at)
    returned: set[str] = set()
    _gather(tree(planned.result), returned)
    values = tuple(v for v in made.values() if v.name not in returned)
    end = len(planned.bindings)
    storages = tuple(Storage(v.name, _known(v.size), v.first, end if policy == "none" else v.last) for v in values)
    return MemoryPlan(policy, storages, {v.name: v.name for v in values}, {}, {}, values)


def _known(size: Expr | None) -> Expr:
    assert size is not None
    return size


def _gather(found: Any, names: set[str]) -> None:
    if isinstance(found, tuple):
        for part in found:
            _gather(part, names)
    elif found is not None:
        names.add(found)


def _named(name: str, annotation: Annotation, at: int, made: dict[str, Lifetime]) -> Any:
    if isinstance(annotation, TupleType):
        return tuple(_named(f"{name}.{n}", part, at, made) for n, part in enumerate(annotation.parts))
    assert isinstance(annotation, TensorType) and annotation.shape is not None and annotation.dtype is not None
    size: Expr = ONE * DTYPES[annotation.dtype].bytes
    for extent in annotation.shape:
        size = size * extent
    made[name] = Lifetime(name, size, at, at)
    return name
