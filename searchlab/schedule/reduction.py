"""Primitives on reductions: rfactor and decompose_reduction."""

from __future__ import annotations

from dataclasses import replace

from searchlab.errors import ScheduleError
from searchlab.ir.apart import told_apart
from searchlab.ir.expr import ONE, TRUE, Binary, Expr, Load, Var, all_of, conditions, extreme, select
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import kept, path_to, swap
from searchlab.ir.stmt import Block, Iter, Loop, Stmt, Store, seq
from searchlab.ir.sums import ASSOCIATIVE, Sum, as_sum
from searchlab.ir.walk import Substitution, variables
from searchlab.schedule.loops import resolved_bindings, resolved_predicate
from searchlab.schedule.primitive import (
    MadeNames,
    check,
    find_block,
    find_loop,
    fresh,
    is_leaf,
    leaves_in,
    loops_around,
    names_of,
    primitive,
    replaced,
)


def sum_of(block: Block) -> Sum:
    """The sum that a reduction block computes."""
    found = as_sum(block.store)
    if found is None:
        known, value = ", ".join(ASSOCIATIVE), block.store.value
        raise ScheduleError(f"block '{block.name}' does not reduce with one of {known}: '{value}'")
    return found


def _combine(op: str, a: Expr, b: Expr) -> Expr:
    return extreme(op, a, b) if op in ("min", "max") else Binary(op, a, b)


@primitive
def rfactor(program: Program, loop: str, axis: int = 0, name: str | None = None) -> MadeNames:
    """Keep one partial result per iteration of a reduction loop, and reduce the partial results afterwards.

        for i: for k: for l: C[i] += f(i, k, l)
        =>  for i: for k: for l: C_rf[l, i] += f(i, k, l)
            for i: for l: C[i] += C_rf[l, i]

    `axis` is the position of the new dimension.  The loop then carries no reduction and may be vectorised or parallel.
    """
    lp = find_loop(program, loop)
    block = _reduction_over(program, lp)
    found = sum_of(block)
    check(block.init is not None, f"block '{block.name}' has lost its init; use rfactor before decompose_reduction")
    nest = loops_around(program, block.name)
    check_perfect(program, block, nest, "rfactor")
    space_vars = _vars_of(block, "space")
    check(lp.var not in space_vars, f"loop '{loop}' carries space and reduction of '{block.name}' at once")
    for other in nest:
        both = other.var in space_vars and other.var in _vars_of(block, "reduce")
        check(not both, f"loop '{other.name}' carries space and reduction of '{block.name}' at once")
    store = block.store
    check(0 <= axis <= len(store.indices), f"axis {axis} is not in 0..{len(store.indices)}")
    made = fresh(program, f"{store.buffer}_rf") if name is None else name
    taken = made in program.buffers or made in program.blocks
    check(made.isidentifier() and not taken, f"'{made}' is not a free name for a buffer and its block")
    buffer = program.buffers[store.buffer]
    shape = (*buffer.shape[:axis], lp.extent, *buffer.shape[axis:])
    partial = _partial_block(block, nest, lp, made, axis, found)
    final = _final_nest(program, block, nest, lp, made, axis, found.op)
    top = nest[0]
    body = replaced(program, top, seq(_rewrap(nest, partial), final))
    buffers = {**program.buffers, made: replace(buffer, name=made, shape=shape)}
    return MadeNames(program.with_body(body, buffers=buffers), (made,))


def _reduction_over(program: Program, lp: Loop) -> Block:
    inside = list(leaves_in(lp))
    found = [b for b in inside if b.reduces and lp.var in _vars_of(b, "reduce")]
    check(
        len(found) == 1,
        f"loop '{lp.name}' carries the reduction of {names_of(found) or 'no block'}, not of exactly one",
    )
    return found[0]


def _vars_of(block: Block, kind: str) -> frozenset[Var]:
    return frozenset(
        v for it, e in zip(block.iters, block.bindings, strict=True) if it.kind == kind for v in variables(e)
    )


def _iters(e: Expr) -> set[Var]:
    """The loop variables of an expression, without the symbols."""
    return {v for v in variables(e) if v.role == "iter"}


def check_perfect(program: Program, block: Block, nest: list[Loop], what: str) -> None:
    """Refuses a block that is not alone in its loop nest, which `what` replaces as a whole."""
    path = path_to(program.body, block)
    start = path.index(nest[0])
    for s in path[start:-1]:
        check(
            isinstance(s, Loop),
            f"'{block.name}' shares its nest with other statements; use {what} before moving stages",
        )


def _rewrap(nest: list[Loop], body: Stmt) -> Stmt:
    for lp in reversed(nest):
        body = replace(lp, body=body)
    return body


def _bound_by(block: Block, kind: str) -> list[tuple[Iter, Expr]]:
    """The iteration variables of one kind with their bindings."""
    return [(it, e) for it, e in zip(block.iters, block.bindings, strict=True) if it.kind == kind]


def _partial_block(block: Block, nest: list[Loop], lp: Loop, name: str, axis: int, found: Sum) -> Block:
    """The block of partial results: the factored loop becomes a space iterator, other reduction loops reduce ones."""
    space = _bound_by(block, "space")
    lane = Iter(Var(f"v{lp.name}"), lp.extent)
    others = [x for x in nest if x.var in _vars_of(block, "reduce") and x is not lp]
    rest = [Iter(Var(f"v{x.name}"), x.extent, "reduce") for x in others]
    at_loops: dict[Var, Expr] = {lp.var: lane.var, **{x.var: it.var for x, it in zip(others, rest, strict=True)}}
    put = Substitution({it.var: Substitution(at_loops)(e) for it, e in _bound_by(block, "reduce")})
    assert block.init is not None
    identity = block.init.value
    value = put(found.term)
    where = all_of(c for c in conditions(block.predicate) if variables(c) & at_loops.keys())
    if where != TRUE:
        # a partial result whose terms are all masked must still be set: the condition guards the value, not the block
        outer = {v: it.var for it, e in space for v in variables(e) if e == v}
        follows = _iters(where) <= at_loops.keys() | outer.keys()
        check(follows, f"condition '{where}' mixes loops that rfactor cannot follow")
        value = select(Substitution({**outer, **at_loops})(where), value, identity)
    indices = (*block.store.indices[:axis], lane.var, *block.store.indices[axis:])
    own = Load(name, indices, block.store.value.dtype)
    return Block(
        name,
        (*(it for it, _ in space), lane, *rest),
        (*(e for _, e in space), lp.var, *(x.var for x in others)),
        Store(name, indices, _combine(found.op, own, value)),
        Store(name, indices, identity),
        all_of(c for c in conditions(block.predicate) if not variables(c) & at_loops.keys()),
        block.annotations,
    )


def _final_nest(program: Program, block: Block, nest: list[Loop], lp: Loop, made: str, axis: int, op: str) -> Stmt:
    space_vars = _vars_of(block, "space")
    around = [x for x in nest if x.var in space_vars]
    renamed: dict[Var, Expr] = {x.var: Var(fresh(program, f"{block.name}_{x.name}")) for x in [*around, lp]}
    put = Substitution(renamed)
    space = [(it, put(e)) for it, e in _bound_by(block, "space")]
    lane = Iter(Var(f"v{lp.name}"), lp.extent, "reduce")
    store = block.store
    indices = (*store.indices[:axis], lane.var, *store.indices[axis:])
    own = Load(store.buffer, store.indices, store.value.dtype)
    value = _combine(op, own, Load(made, indices, store.value.dtype))
    predicate = all_of(put(c) for c in conditions(block.predicate) if _iters(c) <= space_vars)
    body: Stmt = Block(
        block.name,
        (*(it for it, _ in space), lane),
        (*(e for _, e in space), renamed[lp.var]),
        Store(store.buffer, store.indices, value),
        block.init,
        predicate,
    )
    for x in reversed([*around, lp]):
        var = renamed[x.var]
        assert isinstance(var, Var)
        body = Loop(var, x.extent, body)
    return body


@primitive
def decompose_reduction(program: Program, block: str, loop: str) -> MadeNames:
    """Initialise a reduction's output before a loop instead of in its first iteration.

    for k: C[i] = 0 if k == 0;  C[i] += f(k)   =>   C[i] = 0;  for k: C[i] += f(k)
    """
    b = find_block(program, block)
    lp = find_loop(program, loop)
    check(is_leaf(b) and b.init is not None, f"block '{block}' has no init to take out")
    check(bool(path_to(lp, b)), f"loop '{loop}' is not around block '{block}'")
    nest = loops_around(program, block)
    outside, within = nest[: nest.index(lp)], nest[nest.index(lp) :]
    bound = replace(b, bindings=resolved_bindings(program, b))
    open_loops = [x for x in outside if x.var in _vars_of(bound, "reduce")]
    check(
        not open_loops, f"loop {names_of(open_loops)} outside '{loop}' carries the reduction: the init would run again"
    )
    both = _vars_of(bound, "reduce") & _vars_of(bound, "space")
    mixed = [x for x in within if x.var in both]
    check(not mixed, f"loop {names_of(mixed)} carries space and reduction of '{block}' at once")
    used = _vars_of(bound, "reduce") | _vars_of(bound, "space")
    idle = [x for x in within if x.var not in used and x.extent != ONE]
    check(not idle, f"loop {names_of(idle)} repeats '{block}' as a whole, which must be set anew each time")
    places = [e for it, e in zip(b.iters, bound.bindings, strict=True) if it.kind == "space"]
    moving = {x.var: x.extent for x in within if x.var in _vars_of(bound, "space")}
    again = names_of([x for x in within if x.var in moving])
    message = f"loop {again} may come to elements of '{b.store.buffer}' again, which must be set anew each time"
    check(told_apart(places, moving, resolved_predicate(program, b), program.facts), message)
    name = fresh(program, f"{block}_init")
    init = init_nest(program, b, within, name)
    update = replace(b, init=None)
    body = replaced(program, lp, seq(init, lp.with_body(kept(swap(lp.body, b, update)))))
    return MadeNames(program.with_body(body), (name,))


def init_nest(program: Program, b: Block, inner: list[Loop], name: str) -> Stmt:
    """The nest that initialises a reduction's output: copies of the loops in `inner` that drive its space variables."""
    assert b.init is not None
    space_vars = _vars_of(b, "space")
    around = [x for x in inner if x.var in space_vars]
    renamed: dict[Var, Expr] = {x.var: Var(fresh(program, f"{name}_{x.name}")) for x in around}
    put = Substitution(renamed)
    reduce_only = _vars_of(b, "reduce") - space_vars
    left = []
    for c in conditions(b.predicate):
        mixed = variables(c) & reduce_only and variables(c) & {x.var for x in around}
        check(not mixed, f"condition '{c}' of '{b.name}' mixes space and reduction loops")
        if not variables(c) & reduce_only:
            left.append(put(c))
    space = [(it, put(e)) for it, e in _bound_by(b, "space")]
    if len(left) < len(conditions(b.predicate)):  # what is dropped may have kept a number that is taken apart in bounds
        left += [put(c) for it, e in _bound_by(b, "space") if not program.facts.proves(c := e < it.extent)]
    body: Stmt = Block(name, tuple(it for it, _ in space), tuple(e for _, e in space), b.init, None, all_of(left))
    for x in reversed(around):
        var = renamed[x.var]
        assert isinstance(var, Var)
        body = replace(x, var=var, body=body)
    return body


@primitive
def commute(program: Program, block: str) -> MadeNames:
    """Exchange the factors of the product that a block adds up, so that it reads as an instruction is described.

    C[i, j] += A[i, k] * B[k, j]   =>   C[i, j] += B[k, j] * A[i, k]
    """
    b = find_block(program, block)
    check(is_leaf(b), f"block '{block}' holds other blocks")
    found = sum_of(b)
    term = found.term
    product = isinstance(term, Binary) and term.op == "mul"
    check(product, f"block '{block}' adds up '{term}', which is not a product of two factors")
    assert isinstance(term, Binary)
    own = Load(b.store.buffer, b.store.indices, b.store.value.dtype)
    value = _combine(found.op, own, Binary("mul", term.b, term.a))
    return MadeNames(program.with_body(replaced(program, b, replace(b, body=replace(b.store, value=value)))))
