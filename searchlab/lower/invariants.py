"""Loop invariants: divisions and functions of values that a loop does not change are computed once, before the loop.

LLVM's own hoisting is not part of the short pipeline, and code generation hoists index arithmetic only.  Without this
pass a stage that is inlined into another, such as a mean into what it is subtracted from, costs a division per vector.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from searchlab.dtype import FLOATS, HALVES
from searchlab.ir.expr import ZERO, Binary, Call, Const, Expr, Load, Select, Var, value_of
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.statement_tree import kept, written
from searchlab.ir.stmt import Alloc, Buffer, If, Loop, Stmt, Store, Tensorized, seq
from searchlab.ir.visitor import Rewriter
from searchlab.ir.walk import loads, rebuild, variables, walk
from searchlab.lower.registers import REGISTER


def hoist_invariants(body: Stmt) -> Stmt:
    """The body with costly values that a loop does not change computed before it, as far outside as possible."""
    return kept(_Hoister().visit(body))


@dataclass
class _Hoister(Rewriter[[]]):
    count: int = 0

    def visit_tensorized(self, s: Tensorized) -> Stmt | None:
        return s  # what an intrinsic is matched with stays as it is

    def visit_loop(self, s: Loop) -> Stmt | None:
        if s.kind != LoopKind.PARALLEL and not s.kind.is_thread and _runs(s):
            found = _Found(frozenset(written(s)), s.name, self.count)
            body = found.visit(s.body, _bound(s, _Inside()))
            self.count += len(found.values)
            if found.values:
                return found.before(s.with_body(kept(self.visit(kept(body)))))
        return s.with_body(kept(self.visit(s.body)))


@dataclass(frozen=True)
class _Inside:
    """The variables of the loops from the hoisting one inwards, and those of them that run in lanes."""

    bound: frozenset[Var] = frozenset()
    lanes: frozenset[Var] = frozenset()


def _bound(s: Loop, outer: _Inside) -> _Inside:
    lanes = {s.var} if s.kind == LoopKind.VECTORIZED else frozenset[Var]()
    return _Inside(outer.bound | {s.var}, outer.lanes | lanes)


def _runs(s: Loop) -> bool:
    """Whether at least one iteration is certain: an access that never happens may be out of bounds."""
    return (value_of(s.extent) or 0) >= 1


@dataclass
class _Found(Rewriter[[_Inside]]):
    """Replaces the values that a loop does not change by elements of new buffers, and remembers them."""

    changed: frozenset[str]
    prefix: str
    first: int
    values: dict[Expr, Buffer] = field(default_factory=dict)

    def before(self, s: Stmt) -> Stmt:
        """The statement behind the computation of all values found."""
        body = seq(*(Store(buffer.name, (ZERO,), value) for value, buffer in self.values.items()), s)
        for buffer in self.values.values():
            body = Alloc(buffer, body)
        return body

    def visit_loop(self, s: Loop, inside: _Inside) -> Stmt | None:
        return s.with_body(kept(self.visit(s.body, _bound(s, inside)))) if _runs(s) else s

    def visit_if(self, s: If, inside: _Inside) -> Stmt | None:
        return s  # a condition may guard its accesses

    def visit_tensorized(self, s: Tensorized, inside: _Inside) -> Stmt | None:
        return s

    def visit_store(self, s: Store, inside: _Inside) -> Stmt | None:
        return Store(s.buffer, s.indices, self.replaced(s.value, inside))

    def replaced(self, e: Expr, inside: _Inside) -> Expr:
        if isinstance(e, (Select, Load)):  # a side of a selection may not be evaluated; indices are hoisted elsewhere
            return e
        if e.dtype in FLOATS and loads(e):
            if self.fixed(e, inside):
                return self.element(e) if any(map(_costly, walk(e))) else e
            if isinstance(e, Binary) and _by_reciprocal(e, inside.lanes) and loads(e.b) and self.fixed(e.b, inside):
                return Binary("mul", self.replaced(e.a, inside), self.element(Binary("div", Const(1.0, e.dtype), e.b)))
        return rebuild(e, lambda part: self.replaced(part, inside))

    def fixed(self, e: Expr, inside: _Inside) -> bool:
        """Whether an expression has the same value in all iterations, and may be evaluated before them."""
        return (
            inside.bound.isdisjoint(variables(e))
            and self.changed.isdisjoint(ld.buffer for ld in loads(e))
            and not any(isinstance(x, Select) for x in walk(e))
        )

    def element(self, e: Expr) -> Load:
        """The element that holds the value of an expression."""
        if e not in self.values:
            name = f"{self.prefix}.h{self.first + len(self.values)}"
            self.values[e] = Buffer(name, (Const(1),), e.dtype, REGISTER)
        return Load(self.values[e].name, (ZERO,), e.dtype)


def _costly(e: Expr) -> bool:
    return isinstance(e, Call) or (isinstance(e, Binary) and e.op == "div")


def _by_reciprocal(e: Binary, lanes: frozenset[Var]) -> bool:
    """Whether lanes are divided by one number, which code generation does by its reciprocal (`llvm.values`)."""
    return e.op == "div" and e.dtype not in HALVES and not lanes.isdisjoint(variables(e.a) - variables(e.b))
