"""The view `curves`: AutoTVM's relations between what loops touch, reuse and repeat, at fixed thresholds."""

from __future__ import annotations

from searchlab.analysis.access import access_columns
from searchlab.analysis.columns import Schema
from searchlab.analysis.graph import Node
from searchlab.analysis.nest import Nest
from searchlab.analysis.statement_view import chosen

BUFFERS = 5
THRESHOLDS = 20
_CURVES = (("count", "reuse"), ("reuse", "count"), ("count", "outer"), ("outer", "count"))

SCHEMA = Schema(
    "curves",
    1,
    tuple(f"buffer{n}_{y}_by_{x}{t}" for n in range(BUFFERS) for x, y in _CURVES for t in range(THRESHOLDS)),
)
PLAIN: frozenset[str] = frozenset()


def columns(nest: Nest) -> list[Node]:
    """For every buffer of a statement, in its order, the largest y of all loops whose x is at most 2**t.

    Loops of all statements count, each with its buffers in the order of the view `statements`.
    """
    points: list[list[dict[str, Node]]] = [[] for _ in range(BUFFERS)]
    for s in nest.statements:
        for n, access in enumerate(chosen(s)):
            here = access_columns(nest, s, access)
            for lp in s.loops:
                count, reuse = here.counted(lp)
                outer = nest.iterations(s, 0, lp.depth + 1)
                points[n].append({"count": count, "reuse": reuse, "outer": outer})
    return [_curve(nest, [(p[x], p[y]) for p in found]) for found in points for x, y in _CURVES]


def _curve(nest: Nest, points: list[tuple[Node, Node]]) -> Node:
    thresholds = nest.graph.wide(2**t for t in range(THRESHOLDS))
    return nest.graph.largest([thresholds * 0, *(x.at_most(thresholds) * y for x, y in dict.fromkeys(points))])
