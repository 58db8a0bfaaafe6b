"""Calls of tensor intrinsics: how many a statement makes, and what one of them does, whatever its name is."""

from __future__ import annotations

from typing import NamedTuple

from searchlab.analysis.graph import Node
from searchlab.analysis.nest import Nest, Statement


class Calls(NamedTuple):
    """The calls of a statement; all zero where it calls nothing.

    calls: those that run, not the surplus ones of rounded loops; terms: iterations of the statement that one call does;
    depth: those that it adds to each element of its result; accumulators: elements of its result; cycles: what it
    takes, as the intrinsic states it, 0 if it does not.
    """

    calls: Node
    terms: Node
    depth: Node
    accumulators: Node
    cycles: Node


CALLS = ("calls", *(f"call_{name}" for name in Calls._fields[1:]))


def calls(nest: Nest, s: Statement) -> Calls:
    """The calls of a statement."""
    return nest.made(("calls", id(s)), lambda: _calls(nest, s))


def _calls(nest: Nest, s: Statement) -> Calls:
    g = nest.graph
    if s.called is None:
        return Calls(*(g.zero,) * len(Calls._fields))
    depth, pace = s.called.depth, s.called.intrinsic.pace
    terms, result = nest.iterations(s, depth), s.accesses[0]
    accumulators = nest.touched(result, s.running(depth)) / result.bytes
    cycles = g.const(0 if pace is None else pace.cycles)
    return Calls(running(nest, s) / terms, terms, terms / accumulators, accumulators, cycles)


def running(nest: Nest, s: Statement) -> Node:
    """The iterations of a statement that run; where rows do not fill a tile, each is a call of its own."""
    return nest.domain(s).least(nest.iterations(s))
