"""Sums whose loop is bound to threadIdx.x: threads exchange their parts by shuffles, warps by way of shared memory.

    for t in 64 threadIdx.x:            v = part[t]
      Y[i] = Y[i] + part[t]             v = v + (v of the thread whose number differs in bit 4, 3, 2, 1, 0)
                                  =>    if t % 32 == 0: s[t // 32] = v
                                        v = s[0] + s[1]
                                        if t == 0: Y[i] = init + v

Threads for which a condition does not hold take part with the identity of the operation, since all lanes of a warp must
come to a shuffle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from searchlab.errors import BuildError
from searchlab.ir.expr import ZERO, Binary, Expr, Load, Var, all_of, conditions, index, select, value_of
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.statement_tree import map_expressions
from searchlab.ir.stmt import Alloc, Buffer, If, Loop, Stmt, Store, Update, seq
from searchlab.ir.sums import as_sum, identity
from searchlab.ir.thread_stmt import Shuffle
from searchlab.ir.walk import Substitution, variables
from searchlab.targets.cuda import WARP

_X, _Y, _Z = (Var(axis.value) for axis in (LoopKind.THREAD_X, LoopKind.THREAD_Y, LoopKind.THREAD_Z))


@dataclass(frozen=True)
class ThreadSum:
    """A sum over the threads of an axis: the loops inside it, the conditions of its terms, and the update."""

    loop: Loop
    around: tuple[Loop, ...]
    asked: tuple[Expr, ...]
    update: Update


def thread_sum(loop: Loop) -> ThreadSum | None:
    """The sum that a loop of threads carries, if it does."""
    around, asked, s = _opened(loop.body)
    if not isinstance(s, Update) or loop.var not in variables(s.first) or any(lp.kind.is_thread for lp in around):
        return None
    if any(loop.var in variables(i) for i in s.indices):
        return None
    return ThreadSum(loop, tuple(around), tuple(asked), s)


def _opened(s: Stmt) -> tuple[list[Loop], list[Expr], Stmt]:
    """The loops and the conditions around a statement, and that statement."""
    around: list[Loop] = []
    asked: list[Expr] = []
    while isinstance(s, (Loop, If)):
        if isinstance(s, Loop):
            around.append(s)
        else:
            asked += conditions(s.condition)
        s = s.body
    return around, asked, s


def summed_by_threads(
    where: str, found: ThreadSum, block: tuple[int, int, int], name: str, store: Callable[[Update], Stmt]
) -> Stmt:
    """What one thread of a block does for the sum; `store` says who stores the result."""
    op, dtype = as_sum(found.update), found.update.value.dtype
    nothing = identity(op.op, dtype) if op is not None else None
    if op is None or nothing is None:
        raise BuildError(
            f"{where}: loop '{found.loop.name}' is bound to {found.loop.kind}, but what it carries is no sum, "
            f"or one of {dtype} without an identity"
        )
    held = _Held(name, op.op, dtype, block)
    mine = Substitution({found.loop.var: _X})
    inside = [*found.asked, *([found.loop.extent > _X] if value_of(found.loop.extent) != block[0] else [])]
    condition = mine(all_of(inside))
    term = mine(op.term)
    start = held.put(term if value_of(condition) else select(condition, term, nothing))
    first = Substitution({found.loop.var: ZERO})
    own = Load(found.update.buffer, found.update.indices, dtype)
    u = found.update
    total = Update(u.buffer, u.indices, Binary(op.op, own, held.value), u.init, first(u.first))
    # a condition of the element guards the store, one of the term only that
    elements = {v for e in u.indices for v in variables(e)}
    stored = [c for c in found.asked if found.loop.var not in variables(c)]
    if any(variables(c) & elements for c in found.asked if c not in stored):
        raise BuildError(f"{where}: a condition inside loop '{found.loop.name}' concerns the sum and its element")
    last = store(total)
    body = held.around(seq(start, *held.exchanges(), If(all_of(stored), last) if stored else last))
    for lp in reversed(found.around):
        body = lp.with_body(body)
    return map_expressions(body, mine)


@dataclass(frozen=True)
class _Held:
    """The value that a thread holds, the one that it gets from another, and those of warps in shared memory."""

    name: str
    op: str
    dtype: str
    block: tuple[int, int, int]

    @property
    def value(self) -> Load:
        return Load(f"{self.name}.v", (ZERO,), self.dtype)

    @property
    def lanes(self) -> int:
        """Threads that exchange values directly: those of a row, or the largest part of it that warps are made of."""
        return gcd(self.block[0], WARP)

    @property
    def groups(self) -> int:
        return self.block[0] // self.lanes

    def put(self, value: Expr) -> Store:
        return Store(self.value.buffer, (ZERO,), value)

    def around(self, body: Stmt) -> Stmt:
        for kind in ("v", "o"):
            body = Alloc(Buffer(f"{self.name}.{kind}", (index(1),), self.dtype, "local"), body)
        return Alloc(self.parts, body) if self.groups > 1 else body

    @property
    def parts(self) -> Buffer:
        return Buffer(
            f"{self.name}.s", (index(self.block[1] * self.block[2]), index(self.groups)), self.dtype, "shared"
        )

    def exchanges(self) -> list[Stmt]:
        """All threads of a row get the sum of their values."""
        done: list[Stmt] = []
        lanes = self.lanes
        other = Load(f"{self.name}.o", (ZERO,), self.dtype)
        while lanes > 1:
            lanes //= 2
            done.append(Shuffle(other.buffer, (ZERO,), self.value, lanes))
            done.append(self.put(Binary(self.op, self.value, other)))
        if self.groups == 1:
            return done
        row = (_Z if self.block[2] > 1 else ZERO) * self.block[1] + (_Y if self.block[1] > 1 else ZERO)
        keep = Store(self.parts.name, (row, _X // self.lanes), self.value)
        done.append(If((_X % self.lanes).equals(0), keep) if self.lanes > 1 else keep)
        total: Expr = Load(self.parts.name, (row, ZERO), self.dtype)
        for n in range(1, self.groups):
            total = Binary(self.op, total, Load(self.parts.name, (row, index(n)), self.dtype))
        return [*done, self.put(total)]
