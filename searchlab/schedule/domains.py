"""round_up: a larger iteration domain for a block whose operands have room for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from searchlab.dtype import FLOATS
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import TRUE, Binary, Cast, Const, Expr, Load, Select, Var, conditions
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block, Buffer
from searchlab.ir.walk import Substitution, loads, variables
from searchlab.schedule.enlarging import Multiples, larger_domain
from searchlab.schedule.primitive import (
    MadeNames,
    check,
    loops_around,
    primitive,
    producers,
    replaced,
)
from searchlab.schedule.reduction import sum_of


@primitive
def round_up(program: Program, block: str, multiples: Multiples) -> MadeNames:
    """Round a block's iteration domain up to multiples where its operands have room; nothing is copied.

        C[10, 7] += A[10, 5] * B[5, 7]                       B laid out as [k // 4, j, k % 4], A as [i, k // 4, k % 4]
        =>  vk<5 becomes vk<8, and the surplus products are zero

    `multiples` maps iteration variables of the block to multiples.  A layout that rounds sizes up makes room, and fills
    it with zeros: where a sum of products gets longer, a factor must be zero (of floats, every factor).  An output that
    grows is an intermediate; what reads it reads what it read before.
    """
    domain = larger_domain(program, block, multiples, "round_up")
    b, grown = domain.block, domain.grown
    if not grown:
        return MadeNames(program, recorded=domain.recorded)
    facts = program.facts.having(domain.sizes)
    _check_room(program, b, grown, facts)
    _check_zeros(program, b, grown, facts)
    output = _grown_output(program, b, grown)
    body = replaced(program, domain.nest[0], domain.around(b))
    return MadeNames(
        program.with_body(body, buffers={**program.buffers, output.name: output}), recorded=domain.recorded
    )


def _check_room(program: Program, b: Block, grown: Mapping[Var, Expr], facts: Facts) -> None:
    """Refuses loads beyond the ends of a buffer, and of elements that nothing has set."""
    for ld in loads(b.store.value):
        if ld.buffer == b.store.buffer or not any(variables(i) & grown.keys() for i in ld.indices):
            continue
        shape = program.buffers[ld.buffer].shape
        inside = all(facts.proves(i >= 0) and facts.proves(i < e) for i, e in zip(ld.indices, shape, strict=True))
        size = ", ".join(map(str, shape))
        check(inside, f"'{ld}' has no room in '{ld.buffer}' ({size}); give it a layout that rounds the size up")
        whole = ld.buffer in program.inputs or _fills(program, ld.buffer)
        check(whole, f"'{ld.buffer}' is not filled by one stage as a whole; cache_read it first")


def _fills(program: Program, buffer: str) -> bool:
    """Whether one stage sets every element of a buffer."""
    makers = producers(program, buffer)
    if len(makers) != 1 or makers[0].predicate != TRUE:
        return False
    if makers[0].bindings != tuple(lp.var for lp in loops_around(program, makers[0].name)):
        return False
    extents: dict[Expr, Expr] = {it.var: it.extent for it in makers[0].iters if it.kind == "space"}
    at = makers[0].store.indices
    return len(set(at)) == len(at) and tuple(extents.get(i) for i in at) == program.buffers[buffer].shape


def _check_zeros(program: Program, b: Block, grown: Mapping[Var, Expr], facts: Facts) -> None:
    """Refuses a longer sum unless a factor is zero in all that it adds, and iterations that repeat a sum."""
    for v in (x.var for x in b.iters if x.kind == "space" and x.var in grown):
        indexed = any(v in variables(i) for i in b.store.indices)
        check(indexed, f"'{b.name}' stores nothing new for {v}: what it stores would be computed again")
    for it in (x for x in b.iters if x.kind == "reduce" and x.var in grown):
        found, inside = sum_of(b), it.var < it.extent
        factors = [f for f in _factors(found.term) if variables(f) & {it.var}]
        zero = [inside in conditions(facts.simplify(_where_not_zero(program, f))) for f in factors]
        enough = all(zero) if found.term.dtype in FLOATS else any(zero)  # zero times infinity is no zero
        ok = found.op == "add" and bool(zero) and enough
        check(ok, f"'{b.name}' is not a sum of products with factors that are zero for {it.var} >= {it.extent}")


def _factors(e: Expr) -> list[Load]:
    """The loads that a product is zero with."""
    if isinstance(e, Binary) and e.op == "mul":
        return [*_factors(e.a), *_factors(e.b)]
    if isinstance(e, Cast):
        return _factors(e.a)
    return [e] if isinstance(e, Load) else []


def _where_not_zero(program: Program, ld: Load) -> Expr:
    """The condition outside which an element is zero, because its layout or the stage that sets it says so."""
    for layout in program.layouts:
        if layout.buffer == ld.buffer:
            return Substitution(dict(zip(layout.iters, ld.indices, strict=True)))(layout.predicate)
    makers = producers(program, ld.buffer)
    value = makers[0].store.value if len(makers) == 1 else None
    if isinstance(value, Select) and isinstance(value.b, Const) and value.b.value == 0:
        return Substitution(dict(zip(makers[0].store.indices, ld.indices, strict=True)))(value.condition)
    return TRUE


def _grown_output(program: Program, b: Block, grown: Mapping[Var, Expr]) -> Buffer:
    """The buffer that the block writes, with room for the surplus."""
    store, old = b.store, program.buffers[b.store.buffer]
    moved = {v for i in store.indices for v in variables(i)} & grown.keys()
    if not moved:
        return old
    check(old.name not in program.outputs, f"'{old.name}' is an output, which keeps its shape; cache_write it first")
    plain = all(isinstance(i, Var) for i in store.indices)
    check(plain and len(producers(program, old.name)) == 1, f"'{b.name}' alone must store one element per iteration")
    shape = zip(store.indices, old.shape, strict=True)
    return replace(old, shape=tuple(grown.get(i, e) if isinstance(i, Var) else e for i, e in shape))
