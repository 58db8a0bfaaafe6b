"""Loop nests of single stages: made for a new stage, or recognised as still as they were made."""

from __future__ import annotations

from collections.abc import Callable

from searchlab.ir.expr import TRUE, Expr, Var
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import swap
from searchlab.ir.stmt import Block, Iter, Loop, Seq, Stmt, Store, seq
from searchlab.schedule.primitive import check, fresh, leaves_in, loops_around
from searchlab.schedule.reduction import check_perfect


def stage_nest(
    program: Program, block: str, shape: tuple[Expr, ...], store: Callable[[tuple[Var, ...]], Store]
) -> Stmt:
    """A new stage with a loop for each dimension of `shape`; `store` is given its iteration variables."""
    at = tuple(Var(f"v{n}") for n in range(len(shape)))
    loops = [(Var(fresh(program, f"{block}_{n}")), extent) for n, extent in enumerate(shape)]
    iters = tuple(Iter(v, extent) for v, extent in zip(at, shape, strict=True))
    body: Stmt = Block(block, iters, tuple(v for v, _ in loops), store(at))
    for var, extent in reversed(loops):
        body = Loop(var, extent, body)
    return body


def untouched_nest(program: Program, b: Block, what: str) -> list[Loop]:
    """The loops of a block that is alone in them and bound to one for each iteration variable; refuses others."""
    nest = loops_around(program, b.name)
    check(bool(nest), f"block '{b.name}' has no loops")
    plain = b.bindings == tuple(lp.var for lp in nest)
    check(plain, f"the loops of '{b.name}' have been changed already; {what} first")
    check(b.predicate == TRUE, f"block '{b.name}' has a predicate")
    check_perfect(program, b, nest, what)
    return nest


def top_holding(body: Stmt, block: str) -> Stmt:
    """The statement of an outermost sequence that holds a block."""
    parts = body.body if isinstance(body, Seq) else (body,)
    return next(p for p in parts if any(b.name == block for b in leaves_in(p)))


def inserted(body: Stmt, anchor: Stmt, new: Stmt, *, before: bool) -> Stmt:
    """The body with a new statement directly before or after another."""
    result = swap(body, anchor, seq(new, anchor) if before else seq(anchor, new))
    assert result is not None
    return result
