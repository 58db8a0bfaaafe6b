"""The view `loops`: AutoTVM's features of every loop and of the buffers touched in it, padded to a fixed width."""

from __future__ import annotations

from collections.abc import Iterator

from searchlab.analysis.access import access_columns
from searchlab.analysis.columns import Schema
from searchlab.analysis.graph import Node
from searchlab.analysis.nest import KINDS, LoopColumns, Nest, Statement

LOOPS = 48
BUFFERS = 5
_OPERATIONS = {"add": ("addsub", "mad"), "mul": ("mul", "mad"), "div": ("div",)}
_BUFFER = ("stride", "different", "count", "reuse")
_LOOP = ("length", "level", "outer", "inner", *KINDS, "bound", *_OPERATIONS)
_EACH = (*_LOOP, *(f"buffer{n}_{c}" for n in range(BUFFERS) for c in _BUFFER))

SCHEMA = Schema("loops", 1, tuple(f"loop{n}_{c}" for n in range(LOOPS) for c in _EACH))
PLAIN = frozenset(f"loop{n}_level" for n in range(LOOPS))


def columns(nest: Nest) -> list[Node]:
    """The loops in program order; what goes beyond the width is left out, and what is left of it is zero."""
    found: list[Node] = []
    for lp in list(nest.loops.values())[:LOOPS]:
        found += loop_columns(nest, lp)
        found += _buffers(nest, lp)
    return found + [nest.graph.zero] * (SCHEMA.width - len(found))


def loop_columns(nest: Nest, lp: LoopColumns) -> list[Node]:
    """One loop: length, level, products with the loops around and inside, kind, operations of one iteration."""
    g = nest.graph
    inside = [s for s in nest.statements if lp in s.loops]
    outer = nest.iterations(inside[0], 0, lp.depth + 1)
    inner = g.largest(nest.iterations(s, lp.depth) for s in inside)
    bound = g.const(lp.loop.kind not in KINDS)
    work = [
        g.total(nest.iterations(s, lp.depth + 1) * _operations(s, kinds) for s in inside)
        for kinds in _OPERATIONS.values()
    ]
    return [lp.extent, g.const(lp.depth), outer, inner, *(lp.kinds[kind] for kind in KINDS), bound, *work]


def _operations(s: Statement, kinds: tuple[str, ...]) -> int:
    return sum(s.counts[f"{sort}_{kind}"] for sort in ("float", "int") for kind in kinds)


def _buffers(nest: Nest, lp: LoopColumns) -> Iterator[Node]:
    """The buffers touched in a loop, each as the first statement uses it that does; what is stored comes first."""
    first: dict[str, list[Node]] = {}
    uses = [(s, a) for s in nest.statements if lp in s.loops for a in s.accesses]
    for s, a in sorted(uses, key=lambda use: not use[1].writes):
        if a.buffer.name not in first and len(first) < BUFFERS:
            here = access_columns(nest, s, a)
            first[a.buffer.name] = [here.stride(lp), here.different(lp), *here.counted(lp)]
    for found in first.values():
        yield from found
    for _ in range(BUFFERS - len(first)):
        yield from (nest.graph.zero,) * len(_BUFFER)
