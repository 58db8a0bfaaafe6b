"""The view `tree`: the program as a tree of loops, statements and accesses, for models that walk it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from searchlab.analysis.access import access_columns
from searchlab.analysis.columns import Ints, Schema
from searchlab.analysis.graph import Node
from searchlab.analysis.intrinsic_calls import CALLS, calls
from searchlab.analysis.loop_view import loop_columns
from searchlab.analysis.nest import KINDS, Access, LoopColumns, Nest, Statement
from searchlab.analysis.operations import COUNTS

NODE_KINDS = ("root", "loop", "statement", "read", "write", "read_write")
_LOOP = ("length", "level", "outer", "inner", *KINDS, "bound", "add", "mul", "div")
_ACCESS = (
    "stride", "bytes", "unique_bytes", "lines", "unique_lines", "reuse_iterations", "reuse_bytes", "reuse_times",
)  # fmt: skip

SCHEMA = Schema("tree", 1, (*_LOOP, *COUNTS, *_ACCESS, *CALLS), groups=(len(CALLS),))


@dataclass(frozen=True, eq=False)
class _TreePlace:
    """A node of the tree and its parent's number."""

    parent: int
    what: LoopColumns | Statement | tuple[Statement, Access] | None


def nodes(nest: Nest) -> list[_TreePlace]:
    """The nodes in preorder: a root, loops as they nest, statements in them, the buffers of a statement below it."""
    found = [_TreePlace(-1, None)]
    at: dict[LoopColumns, int] = {}
    for s in nest.statements:
        parent = 0
        for lp in s.loops:
            if lp not in at:
                at[lp] = len(found)
                found.append(_TreePlace(parent, lp))
            parent = at[lp]
        found.append(_TreePlace(parent, s))
        parent = len(found) - 1
        found.extend(_TreePlace(parent, (s, a)) for a in s.accesses)
    return found


def topology(nest: Nest) -> tuple[Ints, Ints]:
    """The kinds and parents of all nodes."""
    found = nodes(nest)
    return np.array([_kind(x) for x in found], np.int64), np.array([x.parent for x in found], np.int64)


def columns(nest: Nest) -> list[Node]:
    """The columns of all nodes, side by side; what a node does not have is zero."""
    result: list[Node] = []
    for x in nodes(nest):
        parts: tuple[Sequence[Node], ...] = ((), (), (), ())
        if isinstance(x.what, LoopColumns):
            parts = (loop_columns(nest, x.what), (), (), ())
        elif isinstance(x.what, Statement):
            done = nest.iterations(x.what)
            parts = ((), [done * x.what.counts[kind] for kind in COUNTS], (), calls(nest, x.what))
        elif x.what is not None:
            parts = ((), (), _access(nest, *x.what), ())
        for part, names in zip(parts, (_LOOP, COUNTS, _ACCESS, CALLS), strict=True):
            result.extend(part or [nest.graph.zero] * len(names))
    return result


def _access(nest: Nest, s: Statement, access: Access) -> list[Node]:
    a = access_columns(nest, s, access)
    r = a.reuse
    return [a.innermost_stride, a.bytes, a.unique_bytes, a.lines, a.unique_lines, r.iterations, r.bytes, r.times]


def _kind(x: _TreePlace) -> int:
    if isinstance(x.what, LoopColumns):
        return NODE_KINDS.index("loop")
    if isinstance(x.what, Statement):
        return NODE_KINDS.index("statement")
    if x.what is None:
        return 0
    access = x.what[1]
    return NODE_KINDS.index("read_write" if access.reads and access.writes else "write" if access.writes else "read")
