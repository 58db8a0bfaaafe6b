"""The remainder of a run-time size by a register tile: how many rows are left for the last, incomplete tile.

    for i_1 in 5 unrolled: if i_0*5 + i_1 < m: S      =>      if m == i_0*5 + 1: ...   if m == i_0*5 + 2: ...   ...

Where the number of rows is known, the tile is kept in registers as a whole one is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from searchlab.ir.algebra import poly
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ZERO, Compare, Expr, Var, compare, value_of
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.stmt import Loop
from searchlab.ir.walk import variables

MOST = 16  # the largest tile whose remainders are told apart


@dataclass(frozen=True)
class Remainder:
    """In the last tile, `size` is `base` plus 1, 2, ... but less than `tile`."""

    size: Var
    base: Expr
    tile: int

    def where(self, rows: int, conditions: Iterable[Expr], inside: Collection[Loop]) -> dict[Expr, Expr]:
        """Those of some conditions that ask whether a row is left, without the size, where so many rows are left."""
        found = {}
        for c in conditions:
            beyond = gap - (self.size - self.base) if (gap := _gap(c)) is not None else self.size
            if variables(beyond) <= {lp.var for lp in inside}:
                found[c] = compare("lt", ZERO, beyond + rows)
        return found


def _gap(condition: Expr) -> Expr | None:
    """The number that is positive where a condition holds."""
    if not isinstance(condition, Compare) or condition.op not in ("lt", "le"):
        return None
    return condition.b - condition.a if condition.op == "lt" else condition.b - condition.a + 1


def remainder(condition: Expr, inside: Collection[Loop]) -> Remainder | None:
    """The remainder that a condition on a tail leaves to unrolled loops; None if it is of another form."""
    gap = _gap(condition)
    if gap is None:
        return None
    terms = poly(gap)
    sizes = [v for v in variables(gap) if v.role == "size" and terms.get((v,)) == 1]
    mine = {lp.var: lp.extent for lp in inside if lp.var in variables(gap)}
    unrolled = all(lp.kind == LoopKind.UNROLLED for lp in inside if lp.var in mine)
    if len(sizes) != 1 or not mine or not unrolled:
        return None
    rows = sum((-terms.get((v,), 0) * v for v in mine), start=gap * 0)
    base = sizes[0] - gap - rows
    most = value_of(Facts().having(mine).upper(rows))
    if most is None or not 1 < most + 1 <= MOST or variables(base) & {*mine, sizes[0]}:
        return None
    return Remainder(sizes[0], base, most + 1)
