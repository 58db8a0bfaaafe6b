"""blockize: a loop nest becomes one block, so that outer and inner loops are scheduled independently."""

from __future__ import annotations

from dataclasses import replace

from searchlab.ir.algebra import divide, from_poly, poly
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ONE, ZERO, Expr, Var, all_of, compare
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import path_to, swap
from searchlab.ir.stmt import Block, Iter, Loop
from searchlab.ir.walk import variables
from searchlab.schedule.primitive import MadeNames, check, find_loop, fresh, is_leaf, leaves_in, primitive, replaced


@primitive
def blockize(program: Program, loop: str, name: str | None = None) -> MadeNames:
    """Wrap a loop and its body into a new block.

    for i_0: for i_1 in 4: S(i_0*4 + i_1)   =>   for i_0: block B(vo = i_0): for i_1 in 4: S(vo*4 + i_1)
    """
    lp = find_loop(program, loop)
    inside = list(leaves_in(lp))
    check(
        len(inside) == 1 and is_leaf(inside[0]), f"loop '{loop}' holds {len(inside)} blocks; it must hold exactly one"
    )
    b = inside[0]
    check(all(isinstance(s, Loop) for s in path_to(lp, b)[:-1]), f"loop '{loop}' holds a block of blocks")
    inner = {x.var: x.extent for x in path_to(lp, b) if isinstance(x, Loop)}
    made = fresh(program, f"{b.name}_outer") if name is None else name
    check(made not in program.blocks and made.isidentifier(), f"'{made}' is not a free block name")
    taken = {it.var.name for s in path_to(program.body, b) if isinstance(s, Block) for it in s.iters}
    iters, outer_bindings, bindings, guards = [], [], [], []
    for it, binding in zip(b.iters, b.bindings, strict=True):
        outer, tile, rest = _take_apart(binding, inner, program.facts, b.name)
        if outer == ZERO:
            bindings.append(rest)
            continue
        var = Var(fresh(program, f"{it.var.name}o", taken))
        count, left = divide(it.extent, tile)
        extent = count if left == ZERO else program.facts.simplify(program.facts.upper(outer) + 1)
        iters.append(Iter(var, extent, it.kind))
        # where a predicate disables the inner block for a whole outer iteration, the new block leaves its domain
        guards += [c for c in (outer < extent, compare("le", ZERO, outer)) if not program.facts.proves(c)]
        outer_bindings.append(outer)
        bindings.append(var * tile + rest)
    new = swap(lp, b, replace(b, bindings=tuple(bindings)))
    assert new is not None
    block = Block(made, tuple(iters), tuple(outer_bindings), new, None, all_of(guards))
    return MadeNames(program.with_body(replaced(program, lp, block)), (made,))


def _take_apart(binding: Expr, inner: dict[Var, Expr], facts: Facts, block: str) -> tuple[Expr, Expr, Expr]:
    """binding = outer * tile + rest, with `rest` in the inner loop variables and `outer` in the enclosing ones."""
    terms = poly(binding)
    rest = from_poly({m: c for m, c in terms.items() if any(variables(a) & inner.keys() for a in m)})
    around = from_poly({m: c for m, c in terms.items() if not any(variables(a) & inner.keys() for a in m)})
    if rest == ZERO:
        return around, ONE, ZERO
    tile = facts.simplify(facts.reduce(facts.upper(rest, inner) + 1))
    if around == ZERO:
        return ZERO, ONE, rest
    outer, left = divide(around, tile)
    check(left == ZERO, f"'{binding}' of block '{block}' is not a multiple of the tile {tile} plus the loops inside")
    return outer, tile, rest
