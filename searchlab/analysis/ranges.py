"""What an index does while loops run, in closed form: its range, its first step, how many values it takes."""

from __future__ import annotations

from collections.abc import Mapping

from searchlab.analysis.graph import Graph, Node
from searchlab.errors import IRError
from searchlab.ir.expr import ONE, Binary, Const, Expr, Lookup, Monomial, Poly, Var
from searchlab.ir.walk import iterators, substitute

Range = tuple[Node, Node]
Vars = frozenset[Var]
NONE: Vars = frozenset()


class Ranges:
    """Ranges of index expressions when some loops run from zero to their extents and all others stay at zero.

    For sums of multiples of loop variables a range is exact.  It is exact too for quotients and rests of a variable
    that runs without gaps, which is what fused and split loops make; elsewhere it may be too large.
    """

    def __init__(self, graph: Graph, extents: Mapping[Var, Node]) -> None:
        self.graph = graph
        self.extents = extents
        self._known: dict[tuple[Expr, Vars], Range] = {}
        self._terms: dict[Poly, list[tuple[Monomial, int]]] = {}

    def of(self, e: Expr, running: Vars) -> Range:
        """The smallest and the largest value."""
        key = (e, running & iterators(e))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._of(e, key[1])
        return found

    def span(self, e: Expr, running: Vars) -> Node:
        """How far the values lie apart."""
        if not running & iterators(e):
            return self.graph.zero
        low, high = self.of(e, running)
        return high - low

    def value(self, e: Expr) -> Node:
        """An expression of symbols alone."""
        return self.of(e, NONE)[1]

    def _of(self, e: Expr, running: Vars) -> Range:
        g = self.graph
        if isinstance(e, Const):
            return g.const(e.value), g.const(e.value)
        if isinstance(e, Var):
            if e.role != "iter":
                return g.symbol(e.name), g.symbol(e.name)
            return g.zero, self.extents[e] - 1 if e in running else g.zero
        if isinstance(e, Poly):
            low, high = g.zero, g.zero
            for monomial, coefficient in self._inside_out(e):
                a, b = self._product(monomial, running)
                a, b = (a, b) if coefficient > 0 else (b, a)
                low, high = low + a * coefficient, high + b * coefficient
            return low, high
        if isinstance(e, Binary):
            return self._binary(e, running)
        if isinstance(e, Lookup):
            return self._lookup(e, running)
        raise IRError(f"'{e}' is not an index expression")

    def _inside_out(self, e: Poly) -> list[tuple[Monomial, int]]:
        """The terms, those of inner loops first: so ranges share their sums when one more loop runs."""
        found = self._terms.get(e)
        if found is None:
            place = {v: n for n, v in enumerate(self.extents)}
            last = [max((place[v] for atom in m for v in iterators(atom)), default=-1) for m, _ in e.terms]
            order = sorted(range(len(last)), key=lambda n: -last[n])
            found = self._terms[e] = [e.terms[n] for n in order]
        return found

    def _product(self, monomial: Monomial, running: Vars) -> Range:
        """Atoms are never negative in programs that schedules make, so a product is extreme where each of them is."""
        low, high = self.graph.one, self.graph.one
        for atom in reversed(monomial):
            a, b = self.of(atom, running)
            low, high = low * a, high * b
        return low, high

    def _lookup(self, e: Lookup, running: Vars) -> Range:
        """What is expected of an index that stays; others are as far apart as if they were as near as they can be."""
        mine = running & iterators(e.load)
        if not mine:
            return (self.value(e.expected),) * 2
        many = self.graph.product(self.extents[v] for v in sorted(mine, key=lambda v: v.name))
        return self.graph.zero, many.least(self.value(e.below)) - 1

    def _binary(self, e: Binary, running: Vars) -> Range:
        a, b = self.of(e.a, running), self.of(e.b, running)
        if e.op == "min":
            return a[0].least(b[0]), a[1].least(b[1])
        if e.op == "max":
            return a[0].most(b[0]), a[1].most(b[1])
        if e.op == "floordiv":
            return a[0] // b[1], a[1] // b[0]
        if a[0] is a[1]:
            return a[0] % b[1], a[0] % b[1]
        if a[0].constant == 0:
            return a[0], a[1].least(b[1] - 1)
        wraps = 1 - (a[0] // b[1]).equals(a[1] // b[1])
        choose = self.graph.choose
        return choose(wraps, 0, a[0] % b[1]), choose(wraps, b[1] - 1, a[1] % b[1])

    # --- one loop alone -----------------------------------------------------------------------------------------------

    def step(self, e: Expr, loop: Var) -> Node:
        """By how much the first step of a loop moves an index, when the other loops stay at zero."""
        if loop not in iterators(e):
            return self.graph.zero
        if isinstance(e, Var):
            return self.graph.one
        if isinstance(e, Poly):
            terms = [(m, c) for m, c in e.terms if any(loop in iterators(atom) for atom in m)]
            return self.graph.total(self._product_step(m, loop) * c for m, c in terms)
        if isinstance(e, Lookup):
            return self.value(e.below // 2).most(1)  # anywhere
        return self._stepped(e, loop) - self.value(e)

    def _product_step(self, monomial: Monomial, loop: Var) -> Node:
        moving = [atom for atom in monomial if loop in iterators(atom)]
        others = self.graph.product(self.value(atom) for atom in monomial if atom not in moving)
        if len(moving) == 1:
            return others * self.step(moving[0], loop)
        product = self.graph.product
        return others * (product(self._stepped(a, loop) for a in moving) - product(self.value(a) for a in moving))

    def _stepped(self, e: Expr, loop: Var) -> Node:
        """The value with that loop at 1 and the others at 0."""
        return self.value(substitute(e, {loop: ONE}))

    def different(self, e: Expr, loop: Var) -> Node:
        """How many values an index takes while one loop runs."""
        if loop not in iterators(e):
            return self.graph.one
        if isinstance(e, Poly):
            return self._at_most_all([a for m, _ in e.terms for a in m if loop in iterators(a)], loop)
        if isinstance(e, Binary):
            low, high = self.of(e, frozenset({loop}))
            return self.different(e.a, loop).least(high - low + 1)
        return self.extents[loop]

    def _at_most_all(self, parts: list[Expr], loop: Var) -> Node:
        if len(parts) == 1:
            return self.different(parts[0], loop)
        return self.extents[loop].least(self.graph.product(self.different(p, loop) for p in parts))

    def different_places(self, indices: tuple[Expr, ...], loop: Var) -> Node:
        """How many elements of a buffer are met while one loop runs."""
        moved = [e for e in indices if loop in iterators(e)]
        return self._at_most_all(moved, loop) if moved else self.graph.one
