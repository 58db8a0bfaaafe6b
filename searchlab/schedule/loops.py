"""Primitives on loops: split, fuse, reorder, vectorize, unroll, parallel, bind, choose_kind, annotate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from searchlab.ir.affine import resolved
from searchlab.ir.algebra import ceildiv, poly
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ONE, TRUE, ZERO, Binary, Compare, Expr, Like, Var, all_of, compare, index, value_of
from searchlab.ir.loopkind import LOOP_KINDS, THREAD_AXES, KindChoice, LoopKind
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import kept, path_to
from searchlab.ir.stmt import Block, Loop, Stmt
from searchlab.ir.walk import variables, walk
from searchlab.schedule.primitive import (
    MadeNames,
    check,
    find_block,
    find_loop,
    fresh,
    leaves_in,
    names_of,
    nearest,
    primitive,
    replaced,
    rewrite_nest,
)


@primitive
def split(
    program: Program,
    loop: str,
    factors: Sequence[Like | None],
    names: Sequence[str] | None = None,
    tail: bool = False,
) -> MadeNames:
    """Split a loop into a nest of several, outermost first; one factor may be None and is inferred.

        for i in n: S(i)   =>   for i_0 in n // f: for i_1 in f: S(i_0*f + i_1)

    Without `tail`, the product of the factors must equal the extent (with symbols, this becomes an assumption).  With
    `tail` it may be larger; a predicate masks the surplus iterations, and lowering peels it off again.
    """
    old = find_loop(program, loop)
    check(old.kinds == (LoopKind.SERIAL,), f"loop '{loop}' is {' or '.join(old.kinds)}; split it before that")
    extents, assumption, exact = _extents(old, factors, tail)
    made = _names(program, loop, len(extents), names)
    fresh_vars = [Var(n) for n in made]
    combined: Expr = ZERO
    for var, extent in zip(fresh_vars, extents, strict=True):
        combined = combined * extent + var
    assumptions = (
        program.assumptions if assumption in (TRUE, *program.assumptions) else (*program.assumptions, assumption)
    )
    program = replace(program, assumptions=assumptions)
    facts = program.facts.having(dict(zip(fresh_vars, extents, strict=True)))
    body = rewrite_nest(old.body, {old.var: combined}, facts)
    if not exact:
        body = _guard(body, combined < old.extent)
    for var, extent in reversed(list(zip(fresh_vars, extents, strict=True))):
        body = Loop(var, extent, body)
    return MadeNames(program.with_body(replaced(program, old, body)), tuple(made))


def _names(program: Program, loop: str, count: int, names: Sequence[str] | None) -> list[str]:
    if names is None:
        return [fresh(program, f"{loop}_{n}") for n in range(count)]
    check(len(names) == count, f"{count} factors but {len(names)} names {list(names)}")
    for n in names:
        check(n.isidentifier() and n not in program.loops, f"'{n}' is not a free loop name")
    check(len(set(names)) == len(names), f"a name occurs twice in {list(names)}")
    return list(names)


def _extents(loop: Loop, factors: Sequence[Like | None], tail: bool) -> tuple[list[Expr], Expr, bool]:
    """Extents of the new loops, the assumption they require, and whether they cover the loop exactly."""
    check(len(factors) >= 1, "no factors given")
    check(sum(f is None for f in factors) <= 1, f"more than one factor is None in {list(factors)}")
    given = [index(f) for f in factors if f is not None]
    product: Expr = ONE
    for f in given:
        known = value_of(f)
        check(known is None or known >= 1, f"factor {f} of loop '{loop.name}' is below 1")
        product = product * f
    whole = f"loop '{loop.name}' of extent {loop.extent}"
    if len(given) < len(factors):
        left, assumption, exact = _rest(loop, product, tail, whole)
        at = next(n for n, f in enumerate(factors) if f is None)
        return [*given[:at], left, *given[at:]], assumption, exact
    same, surplus = product.equals(loop.extent), value_of(product - loop.extent)
    said = f"factors {list(factors)} make {product}"
    if tail:
        check((surplus or 0) >= 0, f"{said}, which does not cover {whole}")
        return given, loop.extent <= product, same == TRUE
    check(surplus in (0, None), f"{said}, not {whole}")
    return given, same, True


def _rest(loop: Loop, product: Expr, tail: bool, whole: str) -> tuple[Expr, Expr, bool]:
    """The inferred factor, the assumption it requires, and whether it covers the loop exactly."""
    rest = loop.extent % product
    if tail:
        return ceildiv(loop.extent, product), TRUE, rest == ZERO
    check(rest == ZERO or value_of(rest) is None, f"{product} does not divide {whole}; pass tail=True to round up")
    return loop.extent // product, rest.equals(0), True


def _guard(s: Stmt, condition: Expr) -> Stmt:
    """Adds the condition to the predicates of the outermost blocks inside."""
    if isinstance(s, Block):
        return replace(s, predicate=all_of((s.predicate, condition)))
    return kept(s.map_children(lambda child: _guard(child, condition)))


@primitive
def fuse(program: Program, *loops: str, name: str | None = None) -> MadeNames:
    """Fuse directly nested loops into one; they are given outermost first.

    for i in n: for j in m: S(i, j)   =>   for i_j in n*m: S(i_j // m, i_j % m)
    """
    check(len(loops) >= 2, "takes at least two loops")
    nest = [find_loop(program, n) for n in loops]
    for outer, inner in zip(nest, nest[1:], strict=False):
        check(outer.body is inner, f"'{inner.name}' is not directly inside '{outer.name}'")
    for lp in nest:
        check(lp.kinds == (LoopKind.SERIAL,), f"loop '{lp.name}' is {' or '.join(lp.kinds)}; fuse before that")
    made = fresh(program, "_".join(loops)) if name is None else _names(program, "", 1, [name])[0]
    var, mapping, inner_size = Var(made), {}, ONE
    for lp in reversed(nest):
        mapping[lp.var] = (var // inner_size) % lp.extent if lp is not nest[0] else var // inner_size
        inner_size = inner_size * lp.extent  # type: ignore[assignment]
    facts = program.facts.having({var: inner_size})
    body = rewrite_nest(nest[-1].body, mapping, facts)
    return MadeNames(program.with_body(replaced(program, nest[0], Loop(var, inner_size, body))), (made,))


@primitive
def reorder(program: Program, *loops: str) -> MadeNames:
    """Reorder the loops of one nest; loops that are not named keep their positions.

    for i: for j: S   =>   for j: for i: S
    """
    check(len(loops) >= 2, "takes at least two loops")
    check(len(set(loops)) == len(loops), f"a loop occurs twice in {list(loops)}")
    wanted = [find_loop(program, n) for n in loops]
    chain = _chain(program, wanted)
    order = iter(wanted)
    new: list[Loop] = [next(order) if any(lp is w for w in wanted) else lp for lp in chain]
    _check_extents(new)
    _check_lanes(new)
    _check_first(program, chain, new)
    body = chain[-1].body
    for lp in reversed(new):
        body = replace(lp, body=body)
    return MadeNames(program.with_body(replaced(program, chain[0], body)))


def _chain(program: Program, wanted: list[Loop]) -> list[Loop]:
    """The perfect nest from the outermost to the innermost of the loops."""
    deepest = max((path_to(program.body, lp) for lp in wanted), key=len)
    first = min((n for n, s in enumerate(deepest) if any(s is w for w in wanted)))
    chain = deepest[first:]
    for w in wanted:
        check(any(s is w for s in chain), f"'{w.name}' and '{wanted[0].name}' are not in one nest")
    for s in chain:
        what = f"block '{s.name}'" if isinstance(s, Block) else "several statements"
        check(isinstance(s, Loop), f"{what} stand between the loops {names_of(wanted)}: they are not directly nested")
    return [s for s in chain if isinstance(s, Loop)]


def _check_extents(nest: list[Loop]) -> None:
    seen: set[Var] = set()
    for lp in nest:
        late = variables(lp.extent) - seen
        for other in nest:
            check(other.var not in late or other is lp, f"the extent of '{lp.name}' depends on '{other.name}'")
        seen.add(lp.var)


def _check_lanes(nest: list[Loop]) -> None:
    """Refuses a parallel loop inside a vectorised one."""
    outer = next((lp for lp in nest if LoopKind.VECTORIZED in lp.kinds), None)
    inner = [lp for lp in nest[nest.index(outer) + 1 :] if LoopKind.PARALLEL in lp.kinds] if outer else []
    check(not inner, f"the parallel loop {names_of(inner)} would be inside the vectorized loop {names_of([outer])}")


def _check_first(program: Program, old: list[Loop], new: list[Loop]) -> None:
    """Refuses to reorder reduction loops if one drives both space and reduce variables: inits would be misplaced."""
    for b in leaves_in(old[0]):
        if b.init is None:
            continue
        space, reduce = _moved_by(program, b)
        both = [lp for lp in old if lp.var in space & reduce]
        same = [lp.var for lp in old if lp.var in reduce] == [lp.var for lp in new if lp.var in reduce]
        check(same or not both, f"loop {names_of(both)} carries space and reduction of '{b.name}' at once")


def _moved_by(program: Program, block: Block) -> tuple[frozenset[Var], frozenset[Var]]:
    """The loop variables that drive the space variables of a block, and those that drive its reduce variables."""
    bound = list(zip(block.iters, resolved_bindings(program, block), strict=True))
    return (
        frozenset(v for it, e in bound if it.kind == "space" for v in variables(e)),
        frozenset(v for it, e in bound if it.kind == "reduce" for v in variables(e)),
    )


def check_begins(program: Program, block: str) -> None:
    """Refuses a reduction whose enclosing loops do not start each sum with the iteration that runs the init.

    Loops that drive both space and reduce variables enumerate a fused index, which must increase monotonically.
    """
    b = find_block(program, block)
    nest = [s for s in path_to(program.body, b) if isinstance(s, Loop)]
    space, reduce = _moved_by(program, b)
    both = space & reduce
    fused = {x.a for e in resolved_bindings(program, b) for x in walk(e) if isinstance(x, Binary) and _divides(x)}
    counted = frozenset(v for e in fused if _counts_up(e, nest, program.facts) for v in variables(e))
    wrong = [lp for lp in nest if lp.var in both - counted]
    check(not wrong, f"loop {names_of(wrong)} would carry space and reduction of '{block}' at once, in another order")


def _divides(x: Binary) -> bool:
    return x.op in ("floordiv", "mod") and not (isinstance(x.a, Binary) and _divides(x.a))


def _counts_up(e: Expr, nest: list[Loop], facts: Facts) -> bool:
    """Whether an index increases with every iteration of the enclosing loops."""
    terms = poly(e)
    later: Expr = ZERO
    for lp in reversed([lp for lp in nest if lp.var in variables(e)]):
        scale = terms.get((lp.var,), 0)
        if not facts.proves(facts.upper(later) < scale):
            return False
        later = later + lp.var * scale
    return e - later == index(terms.get((), 0))


def _with_kind(program: Program, loop: str, kind: LoopKind) -> MadeNames:
    old = find_loop(program, loop)
    _check_kind(program, old, kind)
    return MadeNames(program.with_body(replaced(program, old, replace(old, kind=kind))))


def _check_kind(program: Program, loop: Loop, kind: LoopKind) -> None:
    """Refuses a kind that is illegal for the loop."""
    check(loop.kinds == (LoopKind.SERIAL,), f"loop '{loop.name}' is already {' or '.join(loop.kinds)}")
    if kind == LoopKind.VECTORIZED:
        inner = [lp for lp in program.loops.values() if LoopKind.PARALLEL in lp.kinds and path_to(loop, lp)]
        check(not inner, f"loop '{loop.name}' holds the parallel loop {names_of(inner[:1])}")
    elif kind == LoopKind.PARALLEL:
        _check_no_reduction(program, loop.name, "parallel")
        around = path_to(program.body, loop)
        outer = [s for s in around if isinstance(s, Loop) and LoopKind.VECTORIZED in s.kinds]
        check(not outer, f"loop '{loop.name}' is inside the vectorized loop {names_of(outer)}")
    elif kind.is_apart:
        _check_no_reduction(program, loop.name, f"bound to {kind}")


def _check_no_reduction(program: Program, loop: str, what: str) -> None:
    var = find_loop(program, loop).var
    for b in leaves_in(program.loops[loop].body):
        for it, binding in zip(b.iters, resolved_bindings(program, b), strict=True):
            check(
                it.kind == "space" or var not in variables(binding),
                f"loop '{loop}' carries reduction '{it.var}' of '{b.name}', which cannot be {what}; use rfactor first",
            )


def resolved_bindings(program: Program, block: Block) -> tuple[Expr, ...]:
    """A block's bindings in terms of loop variables, resolved through enclosing blocks."""
    return resolved(program.body, block)[0]


def resolved_predicate(program: Program, block: Block) -> Expr:
    """The predicate of a block in terms of loop variables, including those of enclosing blocks."""
    return resolved(program.body, block)[1]


@primitive
def vectorize(program: Program, loop: str) -> MadeNames:
    """Execute a loop's iterations in vector lanes (any extent; it is divided into the target's vector widths).

    for j in n: S   =>   for j in n vectorized: S
    """
    return _with_kind(program, loop, LoopKind.VECTORIZED)


@primitive
def unroll(program: Program, loop: str) -> MadeNames:
    """Unroll a loop, one copy of the body per iteration; it stays a loop where that would be too much code.

    for j in n: S   =>   for j in n unrolled: S
    """
    return _with_kind(program, loop, LoopKind.UNROLLED)


@primitive
def parallel(program: Program, loop: str) -> MadeNames:
    """Distribute a loop's iterations over threads; refused for loops that carry a reduction.

    for i in n: S   =>   for i in n parallel: S
    """
    return _with_kind(program, loop, LoopKind.PARALLEL)


@primitive
def bind(program: Program, loop: str, axis: str) -> MadeNames:
    """Bind a loop to a GPU thread axis.

    for i in n: S   =>   for i in n threadIdx.x: S
    """
    check(axis in THREAD_AXES, nearest("thread axis", axis, THREAD_AXES))
    return _with_kind(program, loop, LoopKind(axis))


@primitive
def choose_kind(program: Program, loop: str, kinds: Sequence[str], choice: Like) -> MadeNames:
    """Make a loop's kind depend on a symbol: it becomes `kinds[choice]` when `choice` becomes a number.

        for i in n: S   =>   for i in n @kind=choice @kinds=serial|parallel: S

    All of the kinds must be legal for the loop; until the choice is made, it is treated as having all of them.
    """
    old = find_loop(program, loop)
    check(len(kinds) >= 1 and not isinstance(kinds, str), "takes a list of kinds")
    for kind in kinds:
        check(kind in LOOP_KINDS, nearest("kind of loop", kind, LOOP_KINDS))
        _check_kind(program, old, LoopKind(kind))
    check(len(set(kinds)) == len(kinds), f"a kind occurs twice in {list(kinds)}")
    chosen = index(choice)
    known = value_of(chosen)
    if known is not None:
        check(0 <= known < len(kinds), f"choice {known} is not in 0..{len(kinds) - 1}")
        return MadeNames(program.with_body(replaced(program, old, replace(old, kind=LoopKind(kinds[known])))))
    assumed = (c for c in (compare("le", 0, chosen), chosen < len(kinds)) if c not in program.assumptions)
    program = replace(program, assumptions=(*program.assumptions, *(c for c in assumed if not _natural(c))))
    notes = (*old.annotations, ("kind", chosen), ("kinds", KindChoice(tuple(map(LoopKind, kinds)))))
    return MadeNames(program.with_body(replaced(program, old, replace(old, annotations=notes))))


def _natural(condition: Expr) -> bool:
    """Whether a condition only states that a symbol is nonnegative."""
    return isinstance(condition, Compare) and condition.a == ZERO and isinstance(condition.b, Var)


@primitive
def annotate(program: Program, target: str, key: str, value: Any) -> MadeNames:
    """Attach an annotation to a loop or block, for code generation or for people.

    `unroll_up_to` on a block unrolls the innermost loops around it whose extents multiply to at most that value.
    `double_buffer` on a loop of a kernel for GPUs lets what it copies to shared memory arrive an iteration earlier;
    `thread_registers` on a loop of blocks says what a thread gets along with, so that no fewer blocks are resident.
    """
    check(
        target in program.loops or target in program.blocks,
        lambda: nearest("loop or block", target, [*program.loops, *program.blocks]),
    )
    check(target not in program.loops or key not in ("kind", "kinds"), f"'{key}' of a loop is set with choose_kind")
    check(key != "prefetch", "'prefetch' is a separate primitive")
    old: Loop | Block = find_loop(program, target) if target in program.loops else find_block(program, target)
    notes = (*((k, v) for k, v in old.annotations if k != key), (key, value))
    return MadeNames(program.with_body(replaced(program, old, replace(old, annotations=notes))))
