"""Values of a function as its byte code knows them, and which memory its results are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from searchlab.dtype import DTYPES
from searchlab.graph.annotations import Annotation, Shape, TupleType
from searchlab.graph.calls import ItemCall, MatchCast, OperatorCall, TupleCall
from searchlab.graph.functions import GraphFunction
from searchlab.ir.expr import ONE, Expr


@dataclass(frozen=True, slots=True)
class TensorAt:
    """A tensor: the register of its address, its dtype, and its extents.

    An argument of which only the rank is known has the registers of its `extents` instead.
    """

    address: int
    dtype: str
    shape: Shape | None
    extents: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ExtentsAt:
    """A shape as a value: the registers of its extents, and what these are if expressions say so."""

    registers: tuple[int, ...]
    known: Shape | None


RunValue = Any  # a TensorAt, an ExtentsAt, or a tuple of these


def leaves(value: Any) -> Iterator[Any]:
    """What a value consists of, tuples aside."""
    if isinstance(value, tuple):
        for part in value:
            yield from leaves(part)
    else:
        yield value


def bytes_of(shape: Shape, dtype: str) -> Expr:
    """The bytes of a tensor."""
    found: Expr = ONE * DTYPES[dtype].bytes
    for extent in shape:
        found = found * extent
    return found


def result_roots(function: GraphFunction) -> list[str]:
    """For each tensor or shape of the result the value whose memory it is: that of a call is `name` or `name.0`."""
    trees: dict[str, Any] = {p.name: _named(p.name, p.annotation) for p in function.parameters}
    for b in function.bindings:
        trees[b.name] = _tree(trees, b.name, b.call, b.annotation)
    return list(leaves(trees.get(function.result, function.result)))


def _named(name: str, annotation: Annotation) -> Any:
    if isinstance(annotation, TupleType):
        return tuple(_named(f"{name}.{n}", part) for n, part in enumerate(annotation.parts))
    return name


def _tree(trees: dict[str, Any], name: str, call: object, annotation: Annotation) -> Any:
    def of(operand: object) -> Any:
        return trees.get(operand, operand) if isinstance(operand, str) else name

    if isinstance(call, TupleCall):
        return tuple(map(of, call.args))
    if isinstance(call, ItemCall):
        return of(call.value)[call.index]
    if isinstance(call, MatchCast):
        return of(call.value)
    if isinstance(call, OperatorCall):
        return of(call.args[0])  # a view: others have been lowered
    return _named(name, annotation)
