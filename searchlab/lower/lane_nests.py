"""What passes over stores in lanes share: the buffers in scope, and the loops that they put around shorter ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from searchlab.ir.expr import ZERO, Const, Var
from searchlab.ir.statement_tree import map_expressions
from searchlab.ir.stmt import Alloc, Buffer, Loop, Stmt, Store, Tensorized
from searchlab.ir.visitor import Rewriter
from searchlab.ir.walk import Substitution, variables
from searchlab.targets import Target

Buffers = Mapping[str, Buffer]


@dataclass
class LaneRewriter(Rewriter[[Buffers]]):
    """Rewrites statements for a target, given the buffers that they can reach."""

    target: Target

    def visit_tensorized(self, s: Tensorized, buffers: Buffers) -> Stmt | None:
        """As it is: an intrinsic was matched with it."""
        return s

    def visit_alloc(self, s: Alloc, buffers: Buffers) -> Stmt | None:
        """With its buffer in reach of what is inside."""
        return self.other(s, {**buffers, s.buffer.name: s.buffer})


def outer_variable(loop: Loop, store: Store, taken: Iterable[str] = ()) -> Var:
    """A variable for a loop around the parts of another, which neither its store has nor what is `taken`."""
    names = {v.name for e in store.own_expressions() for v in variables(e)}.union(taken)
    name = f"{loop.name}_0"
    while name in names:
        name += "_0"
    return Var(name)


def repeated(var: Var, times: int, body: Stmt) -> Stmt:
    """A serial loop, or its only iteration."""
    return Loop(var, Const(times), body) if times > 1 else map_expressions(body, Substitution({var: ZERO}))
