"""transform_block_layout: other iteration variables of a block, fused from and split off its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from searchlab.errors import ScheduleError
from searchlab.ir.affine import IterationMap, Need, Rejection, validated
from searchlab.ir.algebra import floordiv, mod
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ZERO, Binary, Expr, Var, value_of
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block, Iter, IterKind, Loop, Stmt, Store
from searchlab.ir.walk import Substitution, variables, walk
from searchlab.schedule.layout import Map, evaluated_map
from searchlab.schedule.nests import untouched_nest
from searchlab.schedule.primitive import MadeNames, check, find_block, is_leaf, primitive, replaced


@primitive
def transform_block_layout(program: Program, block: str, mapping: Map, names: Sequence[str] | None = None) -> MadeNames:
    """Replace the iteration variables of a block, and its loops with them; `mapping` takes the old and returns the new.

        for i in n: for j in 8: Y[i, j] = X[i, j]   =>   for i_j in n*8: Y[i_j // 8, i_j % 8] = X[i_j // 8, i_j % 8]

    with mapping = lambda i, j: (i * 8 + j,).  The new variables must visit the domain exactly once (that a symbol
    divides an extent becomes an assumption), and none may mix space and reduction.  After reindex, and transform_layout
    of the copies in the same way, accesses are direct again.
    """
    b = find_block(program, block)
    check(is_leaf(b), f"block '{block}' holds other blocks")
    nest = untouched_nest(program, b, "transform_block_layout")
    olds, news = evaluated_map(mapping, len(b.iters), f"block '{block}' has {len(b.iters)} iteration variables")
    recorded = (("mapping", (olds, news)),)
    sizes = {v: it.extent for v, it in zip(olds, b.iters, strict=True)}
    facts = _divisible(news, Facts(sizes, program.assumptions))
    program = replace(program, assumptions=facts.assumptions)
    made = _names(program, {v: lp.name for v, lp in zip(olds, nest, strict=True)}, news, names)
    kinds = [_kind(e, {v: it.kind for v, it in zip(olds, b.iters, strict=True)}, block) for e in news]
    iters = tuple(
        Iter(Var(f"v{name}"), _extent(e, facts), kind) for name, e, kind in zip(made, news, kinds, strict=True)
    )
    found = validated(IterationMap(iters, news, sizes), Need.BIJECTIVE, facts)
    if isinstance(found, Rejection):
        raise ScheduleError(f"the mapping of '{block}' does not visit every element once: {found.words}")
    kept = {e: it.var for e, it in zip(news, iters, strict=True) if isinstance(e, Var)}  # also those that are always 0
    put = Substitution({it.var: kept.get(v, found.loops[v]) for v, it in zip(olds, b.iters, strict=True)})
    inner = Facts({it.var: it.extent for it in iters}, program.assumptions)
    body: Stmt = Block(
        b.name,
        iters,
        tuple(map(Var, made)),
        _put(b.store, put, inner),
        None if b.init is None else _put(b.init, put, inner),
        annotations=b.annotations,
    )
    for name, it in zip(reversed(made), reversed(iters), strict=True):
        body = Loop(Var(name), it.extent, body)
    return MadeNames(program.with_body(replaced(program, nest[0], body)), tuple(made), recorded)


def _divisible(news: tuple[Expr, ...], facts: Facts) -> Facts:
    """The facts, and the assumptions that symbols which divide an extent do so without a rest."""
    for x in (x for e in news for x in reversed(list(walk(e))) if isinstance(x, Binary)):
        rest = facts.simplify(mod(_extent(x.a, facts), x.b)) if x.op in ("floordiv", "mod") else ZERO
        if value_of(rest) is None:
            facts = Facts(facts.extents, (*facts.assumptions, rest.equals(0)))
    return facts


def _put(s: Store, put: Substitution, facts: Facts) -> Store:
    return s.rebuild(lambda e: facts.simplify(put(e)))


def _kind(e: Expr, kinds: dict[Var, IterKind], block: str) -> IterKind:
    found = {kinds[v] for v in variables(e) if v in kinds}
    check(len(found) <= 1, f"'{e}' mixes space and reduction of '{block}'")
    return found.pop() if found else "space"


def _extent(e: Expr, facts: Facts) -> Expr:
    """The number of values of an index: exact where a division leaves no rest."""
    if isinstance(e, Binary) and e.op == "floordiv":
        whole = _extent(e.a, facts)
        if facts.simplify(mod(whole, e.b)) == ZERO:
            return floordiv(whole, e.b)
    if isinstance(e, Binary) and e.op == "mod" and facts.simplify(mod(_extent(e.a, facts), e.b)) == ZERO:
        return e.b
    return facts.simplify(facts.reduce(facts.upper(e) + 1))


def _names(program: Program, loops: dict[Var, str], news: tuple[Expr, ...], given: Sequence[str] | None) -> list[str]:
    """Names for the new loops: those given, or those of the loops that each is made of, joined."""
    taken = {n for n in program.loops if n not in loops.values()} | {*program.blocks, *program.buffers}
    if given is not None:
        check(len(given) == len(news), f"{len(news)} new iteration variables but {len(given)} names {list(given)}")
        for n in given:
            check(n.isidentifier() and n not in taken, f"'{n}' is not a free loop name")
        check(len(set(given)) == len(given), f"a name occurs twice in {list(given)}")
        return list(given)
    names: list[str] = []
    for e in news:
        wanted = "_".join(name for v, name in loops.items() if v in variables(e)) or "unit"
        numbered = (f"{wanted}{n}" if n > 1 else wanted for n in count(1))
        names.append(next(n for n in numbered if n not in taken and n not in names))
    return names
