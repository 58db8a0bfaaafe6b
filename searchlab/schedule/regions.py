"""Region inference: which part of a buffer a piece of program touches, in closed form over symbols."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ZERO, Expr, Substitution, Var, compare, variables
from searchlab.ir.program import Block, Loop, Stmt, accesses, statements, stores
from searchlab.schedule.core import path_to


@dataclass(frozen=True, slots=True)
class Interval:
    """The integers from `low` on, `extent` many."""

    low: Expr
    extent: Expr


Region = tuple[Interval, ...]


def bindings_within(root: Stmt, block: Block) -> Substitution:
    """Iteration variables of a block (and of blocks around it) as expressions of loop variables."""
    mapping: dict[Expr, Expr] = {}
    for s in path_to(root, block):
        if isinstance(s, Block):
            put = Substitution(mapping)
            mapping.update({it.var: put(e) for it, e in zip(s.iters, s.bindings, strict=True)})
    return Substitution(mapping)


def touched(
    root: Loop, blocks: Iterable[Block], buffer: str, shape: tuple[Expr, ...], facts: Facts, *, writes: bool
) -> Region:
    """The part of a buffer that blocks inside `root` read (or write) in one iteration of it.

    Loops inside `root` are relaxed; `root` itself and the loops around it stay symbols.
    """
    inside = {lp.var: lp.extent for lp in statements(root.body) if isinstance(lp, Loop)}
    regions = []
    for block in blocks:
        put = bindings_within(root, block)
        found = (
            [s.indices for s in stores(block) if s.buffer == buffer]
            if writes
            else [ld.indices for ld in accesses(block) if ld.buffer == buffer]
        )
        for indices in dict.fromkeys(found):
            regions.append(tuple(_interval(facts.simplify(put(i)), inside, facts) for i in indices))
    return tuple(_steady(_union([r[d] for r in regions], shape[d], facts), shape[d], facts) for d in range(len(shape)))


def _steady(part: Interval, whole: Expr, facts: Facts) -> Interval:
    """The interval with the largest extent that it has in any iteration: extents of loops hold no loop variables."""
    if not _moves(part.extent):
        return part
    most = facts.simplify(facts.reduce(facts.upper(part.extent)))
    return Interval(ZERO, whole) if _moves(most) or not facts.proves(most < whole) else Interval(part.low, most)


def _moves(e: Expr) -> bool:
    return any(v.role == "iter" for v in variables(e))


def _interval(e: Expr, inside: dict[Var, Expr], facts: Facts) -> Interval:
    low, high = facts.simplify(facts.lower(e, inside)), facts.simplify(facts.upper(e, inside))
    return Interval(low, facts.simplify(facts.reduce(high - low + 1)))


def _union(parts: list[Interval], whole: Expr, facts: Facts) -> Interval:
    """The smallest interval holding all parts where that can be told, else the whole dimension."""
    result = parts[0]
    for p in parts[1:]:
        if p == result:
            continue
        a_end, b_end = result.low + result.extent, p.low + p.extent
        if facts.proves(compare("le", result.low, p.low)):
            low = result.low
        elif facts.proves(compare("le", p.low, result.low)):
            low = p.low
        else:
            return Interval(ZERO, whole)
        if facts.proves(compare("le", a_end, b_end)):
            end = b_end
        elif facts.proves(compare("le", b_end, a_end)):
            end = a_end
        else:
            return Interval(ZERO, whole)
        result = Interval(low, facts.simplify(end - low))
    return result
