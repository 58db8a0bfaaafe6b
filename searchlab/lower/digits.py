"""The digits of a fused loop: its index as several, one for each of the loops that were fused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ONE, ZERO, Binary, Expr, Var
from searchlab.ir.statement_tree import map_expressions
from searchlab.ir.stmt import Loop, Stmt
from searchlab.ir.walk import Substitution, variables, walk


@dataclass(frozen=True)
class LoopDigits:
    """A loop's body in terms of digits, outermost first, each with its extent; `restored` leads back."""

    loop: Loop
    body: Stmt
    extents: dict[Var, Expr]

    def restored(self, body: Stmt, facts: Facts) -> Stmt:
        """A statement in terms of the loop's own variable again."""
        rest: Expr = self.loop.var
        values: dict[Var, Expr] = {}
        for digit, extent in reversed(list(self.extents.items())[1:]):
            values[digit], rest = rest % extent, rest // extent
        put = Substitution({**values, next(iter(self.extents)): rest})
        known = facts.having({self.loop.var: self.loop.extent})
        return map_expressions(body, lambda e: known.simplify(put(e)) if variables(e) & self.extents.keys() else e)


def digits(loop: Loop, conditions: Iterable[Expr]) -> LoopDigits | None:
    """The digits by which conditions depend on a loop's index; None unless they do so in the way of fused loops."""
    steps = _in_order({b for c in conditions for x in walk(c) for b in _boundaries(x, loop.var)} - {ONE})
    if len(steps) == 1 or loop.extent % steps[-1] != ZERO or loop.extent == steps[-1]:
        return None
    sizes = [loop.extent // steps[-1], *(high // low for low, high in reversed(list(zip(steps, steps[1:]))))]
    extents = {Var(f"{loop.name}.{n}"): size for n, size in enumerate(sizes)}
    index: Expr = ZERO
    for digit, extent in extents.items():
        index = index * extent + digit
    put, facts = Substitution({loop.var: index}), Facts().having(extents)
    body = map_expressions(loop.body, lambda e: facts.simplify(put(e)) if loop.var in variables(e) else e)
    return LoopDigits(loop, body, extents)


def _in_order(bounds: set[Expr]) -> list[Expr]:
    """Steps from 1 on, each of which divides the next one; 1 alone if they do not."""
    steps: list[Expr] = [ONE]
    while bounds:
        following = [b for b in bounds if all(other % b == ZERO for other in bounds)]
        if not following or following[0] % steps[-1] != ZERO:
            return [ONE]
        steps.append(following[0])
        bounds = bounds - {following[0]}
    return steps


def _boundaries(e: Expr, var: Var) -> set[Expr]:
    """The steps at which a digit of a variable begins and ends: 4 and 12 for (x // 4) % 3."""
    inner, size = (e.a, e.b) if isinstance(e, Binary) and e.op == "mod" else (e, None)
    inner, low = (inner.a, inner.b) if isinstance(inner, Binary) and inner.op == "floordiv" else (inner, ONE)
    if inner != var or e == var or any(v.role == "iter" for b in (low, size) if b is not None for v in variables(b)):
        return set()
    return {low} if size is None else {low, low * size}
