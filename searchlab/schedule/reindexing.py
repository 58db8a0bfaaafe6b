"""reindex: a block's operand in the order of the block's own iteration variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from searchlab.errors import ScheduleError
from searchlab.ir.affine import IterationMap, Need, Rejection, validated
from searchlab.ir.expr import ONE, TRUE, Binary, Cast, Const, Expr, Load, Select, Var, all_of, conditions, const, select
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import path_to, reindexed, rename_buffer, written
from searchlab.ir.stmt import Block, Buffer, Iter, Store
from searchlab.ir.walk import Substitution, loads, transform, variables
from searchlab.schedule.nests import inserted, stage_nest, top_holding
from searchlab.schedule.primitive import (
    MadeNames,
    check,
    find_block,
    fresh,
    is_leaf,
    names_of,
    nearest,
    primitive,
    producers,
    replaced,
    top_statement,
)
from searchlab.schedule.stages import check_free, check_only_writer, inputs_of


@primitive
def reindex(program: Program, block: str, buffer: str, name: str | None = None) -> MadeNames:
    """Let a block index an operand by its iteration variables alone, through a stage that copies it in that order.

        C[i] += P[i + r] * W[r]        =>   P_reindex[i, r] = P[i + r];  C[i] += P_reindex[i, r] * W[r]
        C[2*i + 1] += A[i, r]          =>   C_reindex[i] += A[i, r];  C[2*i + 1] = C_reindex[i]

    The copy has a dimension for each iteration variable that the access uses, in the order of the block.  A read under
    a condition (padding) is copied under it, with what the condition selects otherwise; a condition that all operands
    have taken over is dropped.  Of an output, no two iterations may store to the same element.
    """
    b = find_block(program, block)
    check(is_leaf(b), f"block '{block}' holds other blocks")
    known = [*inputs_of(b), *written(b)]
    check(buffer in known, lambda: nearest(f"buffer of '{block}'", buffer, known))
    made = fresh(program, f"{buffer}_reindex") if name is None else name
    check_free(program, made)
    return _output(program, b, made) if buffer in written(b) else _input(program, b, buffer, made)


# --- inputs -----------------------------------------------------------------------------------------------------------


def _input(program: Program, b: Block, buffer: str, made: str) -> MadeNames:
    operand, where = _operand(b, buffer)
    used = tuple(it for it in b.iters if it.var in variables(operand) | variables(where))
    check(bool(used), f"'{b.name}' reads '{buffer}' at the same element always; accepted: reads that move with it")
    dtype = program.buffers[buffer].dtype
    shape = tuple(it.extent for it in used)

    def store(at: tuple[Var, ...]) -> Store:
        value = select(where, operand, const(0, dtype)) if where != TRUE else operand
        return Store(made, at, Substitution({it.var: v for it, v in zip(used, at, strict=True)})(value))

    top = top_statement(program, b)
    late = [p for p in producers(program, buffer) if path_to(top, p)]
    message = f"'{buffer}' is made by {names_of(late)} in the same nest as '{b.name}'; reindex before moving stages"
    check(not late, message)
    copy = stage_nest(program, made, shape, store)
    own = Load(made, tuple(it.var for it in used), dtype)
    value = transform(b.store.value, lambda e: own if e == operand else None)
    body = replaced(program, b, replace(b, body=replace(b.store, value=value)))
    body = inserted(body, top_holding(body, b.name), copy, before=True)
    buffers = {**program.buffers, made: Buffer(made, shape, dtype)}
    return MadeNames(_without_guards(program.with_body(body, buffers=buffers), b.name), (made,))


def _operand(b: Block, buffer: str) -> tuple[Expr, Expr]:
    """The expression in which a block reads a buffer, and the condition under which it is evaluated."""
    found = set(_reads(b.store.value, buffer, ()))
    operands = {operand for operand, _ in found}
    said = ", ".join(sorted(map(str, operands)))
    check(len(operands) == 1, f"'{b.name}' reads '{buffer}' at several places ({said}), which need copies of their own")
    check(len(found) == 1, f"'{b.name}' reads '{buffer}' under several conditions; accepted: one")
    ((operand, where),) = found
    values = [ld for c in where for ld in loads(c)]
    check(not values, f"'{b.name}' reads '{buffer}' under a condition on {names_of(values)}, not on indices alone")
    check(len(loads(operand)) == 1, f"'{b.name}' reads '{buffer}' at an index that is read from a buffer")
    return operand, all_of(where)


def _reads(e: Expr, buffer: str, where: tuple[Expr, ...]) -> Iterator[tuple[Expr, tuple[Expr, ...]]]:
    """The expressions that read a buffer, each a load or a load with a constant in place of what is outside."""
    if isinstance(e, Load) and e.buffer == buffer:
        yield e, where
    elif isinstance(e, Select):
        if isinstance(e.a, Load) and e.a.buffer == buffer and isinstance(e.b, Const) and not loads(e.condition):
            yield e, where
            return
        yield from _reads(e.condition, buffer, where)
        yield from _reads(e.a, buffer, (*where, *conditions(e.condition)))
        otherwise = list(_reads(e.b, buffer, where))
        check(not otherwise, f"'{buffer}' is read where '{e.condition}' does not hold; accepted: where it holds")
    else:
        for part in e.children():
            yield from _reads(part, buffer, where)


def _without_guards(program: Program, block: str) -> Program:
    """The program with select(c, x * y, 0) replaced by x * y in a block, if both factors are zero where c is false."""
    b = program.blocks[block]

    def drop(e: Expr) -> Expr | None:
        if not (isinstance(e, Select) and isinstance(e.b, Const) and e.b.value == 0):
            return None
        factors = list(_factor_loads(e.a))
        guarded = factors and all(f is not None and _is_zero_outside(program, f, e.condition) for f in factors)
        return e.a if guarded else None

    value = transform(b.store.value, drop)
    if value == b.store.value:
        return program
    return program.with_body(replaced(program, b, replace(b, body=replace(b.store, value=value))))


def _factor_loads(e: Expr) -> Iterator[Load | None]:
    """The factors of a product, each a load, perhaps converted; None for any other."""
    if isinstance(e, Binary) and e.op == "mul":
        yield from _factor_loads(e.a)
        yield from _factor_loads(e.b)
    elif isinstance(e, Cast):
        yield from _factor_loads(e.a)
    else:
        yield e if isinstance(e, Load) else None


def _is_zero_outside(program: Program, ld: Load, condition: Expr) -> bool:
    """Whether a stage of its own stores zero for what is loaded where a condition does not hold."""
    makers = producers(program, ld.buffer)
    if len(makers) != 1 or not isinstance(value := makers[0].store.value, Select):
        return False
    if not (isinstance(value.b, Const) and value.b.value == 0):
        return False
    put = Substitution(dict(zip(makers[0].store.indices, ld.indices, strict=True)))
    return set(conditions(condition)) <= set(map(put, conditions(value.condition)))


# --- outputs ----------------------------------------------------------------------------------------------------------


def _output(program: Program, b: Block, made: str) -> MadeNames:
    store = b.store
    target = program.buffers[store.buffer]
    check_only_writer(program, b)
    used = {v for i in store.indices for v in variables(i)}
    space = tuple(it for it in b.iters if it.kind == "space" and (it.var in used or it.extent != ONE))
    check(bool(space), f"'{b.name}' stores one element, which has no order")
    at = tuple(it.var for it in space)
    places = tuple(Iter(Var(f"d{n}"), extent) for n, extent in enumerate(target.shape))
    found = validated(
        IterationMap(places, store.indices, {it.var: it.extent for it in space}), Need.INJECTIVE, program.facts
    )
    if isinstance(found, Rejection):
        said = f"{store.buffer}[{', '.join(map(str, store.indices))}]"
        raise ScheduleError(f"'{b.name}' may store twice to an element of {said}: {found.words}")
    copy_name = fresh(program, f"{store.buffer}_store", [made])

    def copied(v: tuple[Var, ...]) -> Store:
        put = Substitution(dict(zip(at, v, strict=True)))
        return Store(store.buffer, tuple(map(put, store.indices)), Load(made, v, target.dtype))

    shape = tuple(it.extent for it in space)
    new = rename_buffer(reindexed(b, store.buffer, lambda _: at), store.buffer, made)
    body = replaced(program, b, new)
    body = inserted(body, top_holding(body, b.name), stage_nest(program, copy_name, shape, copied), before=False)
    buffers = {**program.buffers, made: Buffer(made, shape, target.dtype)}
    return MadeNames(program.with_body(body, buffers=buffers), (copy_name, made))
