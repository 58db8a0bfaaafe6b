"""Which loops of a statement are vectorised, unrolled or parallel, and where they stand."""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.analysis.graph import Node
from searchlab.analysis.nest import LoopColumns, Nest, Statement, plainly
from searchlab.ir.walk import iterators

POSITIONS = (
    "nowhere", "inner_space", "middle_space", "outer_space", "inner_reduce", "middle_reduce", "outer_reduce", "mixed",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Annotated:
    """Loops of one kind that run more than once: how many, their product, the innermost one's length and position."""

    number: Node
    product: Node
    length: Node
    positions: tuple[Node, ...]

    @property
    def columns(self) -> tuple[Node, ...]:
        """All columns in order."""
        return (self.number, self.product, self.length, *self.positions)


def annotated(nest: Nest, s: Statement, kind: str) -> Annotated:
    """The loops of a statement that are of a kind."""
    return nest.made(("annotated", id(s), kind), lambda: _annotated(nest, s, kind))


def _annotated(nest: Nest, s: Statement, kind: str) -> Annotated:
    g = nest.graph
    masks = [lp.kinds[kind] * lp.alive for lp in s.loops]
    product = g.product(1 + (lp.extent - 1) * lp.kinds[kind] for lp in s.loops)
    places = [g.zero] * len(POSITIONS)
    length, none_inside = g.zero, g.one
    for depth in range(len(s.loops) - 1, -1, -1):
        chosen = masks[depth] * none_inside
        if chosen is g.zero:
            continue
        none_inside = none_inside * (1 - masks[depth])
        length = length + chosen * s.loops[depth].extent
        for n, place in enumerate(_places(nest, s, depth)):
            places[n + 1] = places[n + 1] + chosen * place
    return Annotated(g.total(masks), product, length, (none_inside, *places[1:]))


def carries(nest: Nest, s: Statement, lp: LoopColumns, kind: str) -> Node:
    """1 where a loop, running alone, moves a space (or reduce) variable of the block."""
    g, ranges = nest.graph, nest.ranges
    pairs = zip(s.block.iters, s.bindings, strict=True)
    bound = [e for it, e in pairs if it.kind == kind and lp.var in iterators(e)]
    if any(plainly(e, lp) for e in bound):
        return lp.alive
    return g.total(ranges.span(e, frozenset({lp.var})) for e in bound).least(1)


def classes(nest: Nest, s: Statement) -> list[tuple[Node, Node]]:
    """For every loop whether it belongs to space alone, and to the reduction alone."""

    def make() -> list[tuple[Node, Node]]:
        both = [(carries(nest, s, lp, "space"), carries(nest, s, lp, "reduce")) for lp in s.loops]
        return [(space * (1 - reduce), reduce * (1 - space)) for space, reduce in both]

    return nest.made(("classes", id(s)), make)


def _places(nest: Nest, s: Statement, depth: int) -> list[Node]:
    """Masks for the positions after `nowhere`; a loop that is alone in its class is its innermost."""
    g = nest.graph
    found = []
    here = classes(nest, s)
    for n in (0, 1):
        own = here[depth][n]
        inner = g.product(1 - c[n] for c in reversed(here[depth + 1 :]))
        outer = g.product(1 - c[n] for c in here[:depth])
        found += [own * inner, own * (1 - inner) * (1 - outer), own * (1 - inner) * outer]
    mixed = s.loops[depth].alive - here[depth][0] - here[depth][1]
    return [*found, mixed]
