"""Double buffers: a loop copies what its next iteration needs while it computes with what the last one has copied.

    for k in K double_buffer:               copy(0) to S[0]
      copy(k) to S                          for k in K:
      use(k) of S                   =>        if k + 1 < K: copy(k + 1) to S[(k + 1) % 2]
                                              use(k) of S[k % 2]

Where the architecture copies asynchronously (`cp.async`, from sm_80 on), copies begin before the work and are complete
at the next barrier.  Elsewhere values are loaded to registers before the work and stored to the other half after it.
`barriers` sees that the halves of one iteration are apart, so one barrier is left of two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from searchlab.dtype import DTYPES
from searchlab.errors import BuildError
from searchlab.ir.algebra import flat_index
from searchlab.ir.expr import ZERO, Expr, Load, Select, Var, index, value_of
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.statement_tree import kept, map_accesses, map_expressions, read, statements, stores, written
from searchlab.ir.stmt import Alloc, Buffer, If, Loop, Stmt, Store, parts_of, seq
from searchlab.ir.thread_stmt import AsyncCopy
from searchlab.ir.visitor import Rewriter
from searchlab.ir.walk import Substitution
from searchlab.lower.flatten import DOUBLE_BUFFER
from searchlab.targets import CudaTarget

SIZES = (4, 8, 16)  # bytes that one asynchronous copy moves
_HELD = 64  # values of one nest that a thread holds in registers


def with_double_buffers(where: str, body: Stmt, target: CudaTarget) -> Stmt:
    """The body of a kernel with its annotated loops rewritten."""
    return kept(_Doubled(where, target).visit(body))


def with_async_copies(body: Stmt, target: CudaTarget) -> Stmt:
    """The body of a kernel with asynchronous copies, from global memory to double buffers, where they are possible."""
    if not copies_asynchronously(target):
        return body
    doubled = {s.buffer.name for s in statements(body) if isinstance(s, Alloc) and is_doubled(s.buffer)}
    private = {s.buffer.name for s in statements(body) if isinstance(s, Alloc)}

    def visit(s: Stmt) -> Stmt | None:
        if isinstance(s, Store) and s.buffer in doubled and isinstance(s.value, Load) and s.value.buffer not in private:
            return AsyncCopy(s.buffer, s.indices, s.value)
        return s.map_children(visit)

    return kept(visit(body))


def copies_asynchronously(target: CudaTarget) -> bool:
    """Whether an architecture has `cp.async`."""
    return target.async_copies


def is_doubled(buffer: Buffer) -> bool:
    """Whether a buffer has two halves."""
    return buffer.name.endswith(_DOUBLED)


_DOUBLED = ".2"


@dataclass(frozen=True)
class _Doubled(Rewriter[[]]):
    where: str
    target: CudaTarget

    def visit_loop(self, s: Loop) -> Stmt | None:
        if not any(key == DOUBLE_BUFFER and value for key, value in s.annotations):
            return s.map_children(self.visit)
        loop = replace(s, annotations=())
        return loop if value_of(s.extent) == 1 else self.doubled(loop)

    def doubled(self, loop: Loop) -> Stmt:
        shared, others, parts = _opened(loop.body)
        copies, work = self.separated(loop, shared, parts)
        for old in shared:
            copies, work = [[_in_half(x, old) for x in group] for group in (copies, work)]
        first, following = (Substitution({_HALF: ZERO, loop.var: ZERO}), Substitution({_HALF: (loop.var + 1) % 2}))
        after = Substitution({loop.var: loop.var + 1})
        early, late, held = self.stages([map_expressions(map_expressions(c, after), following) for c in copies])
        now = [map_expressions(x, Substitution({_HALF: loop.var % 2})) for x in work]
        more = loop.var + 1 < loop.extent
        body = seq(*(If(more, x) for x in early), *now, *(If(more, x) for x in late))
        for buffer in (*held, *others):
            body = Alloc(buffer, body)
        whole = seq(*(map_expressions(c, first) for c in copies), loop.with_body(body))
        for old in shared:
            whole = Alloc(_doubled(old), whole)
        return whole

    def separated(self, loop: Loop, shared: list[Buffer], parts: tuple[Stmt, ...]) -> tuple[list[Stmt], list[Stmt]]:
        """The copies to shared memory, and the work that follows them."""
        names = {b.name for b in shared}
        copies = [p for p in parts if names & set(written(p))]
        work = [p for p in parts if not names & set(written(p))]
        problem = ""
        if value_of(loop.extent) is None:
            problem = "its extent is no number"
        elif not copies:
            problem = "copies nothing to shared memory"
        elif parts[: len(copies)] != tuple(copies):
            problem = "works before it has copied everything"
        elif any(set(read(c)) & set(written(loop)) for c in copies):
            problem = "copies what it has computed itself"
        if problem:
            raise BuildError(f"{self.where}: loop '{loop.name}' is to be double-buffered, but {problem}")
        return copies, work

    def stages(self, copies: list[Stmt]) -> tuple[list[Stmt], list[Stmt], list[Buffer]]:
        """What of the copies comes before the work and what after it, and the buffers that hold values meanwhile."""
        early: list[Stmt] = []
        late: list[Stmt] = []
        held: list[Buffer] = []
        for copy in copies:
            staged = None if self.asynchronous(copy) else _staged(copy)
            if staged is None:
                early.append(copy)
            else:
                fetch, put, buffer = staged
                early.append(fetch)
                late.append(put)
                held.append(buffer)
        return early, late, held

    def asynchronous(self, copy: Stmt) -> bool:
        """Whether the inner part of a copy moves whole pieces of memory without looking at them."""
        for store in stores(copy):
            value = store.value.a if isinstance(store.value, Select) else store.value
            vectors = (s for s in statements(copy) if isinstance(s, Loop) and s.kind == LoopKind.VECTORIZED)
            size = prod(value_of(lp.extent) or 0 for lp in vectors) * DTYPES[store.value.dtype].bytes
            if not isinstance(value, Load) or size not in SIZES:
                return False
        return copies_asynchronously(self.target)


_HALF = Var("half")  # stands for the half of double buffers until it is known


def _opened(body: Stmt) -> tuple[list[Buffer], list[Buffer], tuple[Stmt, ...]]:
    """The shared buffers of a loop's body, its other buffers, and its statements."""
    shared: list[Buffer] = []
    others: list[Buffer] = []
    while isinstance(body, Alloc):
        (shared if body.buffer.scope == "shared" else others).append(body.buffer)
        body = body.body
    return shared, others, parts_of(body)


def _doubled(old: Buffer) -> Buffer:
    return replace(old, name=old.name + _DOUBLED, shape=(index(2), index(prod(value_of(e) or 0 for e in old.shape))))


def _in_half(s: Stmt, old: Buffer) -> Stmt:
    """The statement with accesses to a buffer in one half of its double."""

    def place(p: tuple[str, tuple[Expr, ...]]) -> tuple[str, tuple[Expr, ...]]:
        return (old.name + _DOUBLED, (_HALF, flat_index(p[1], old.shape))) if p[0] == old.name else p

    return map_accesses(s, place)


def _staged(copy: Stmt) -> tuple[Stmt, Stmt, Buffer] | None:
    """A nest around one store as two: from memory to registers, and from there to where it belongs."""
    around: list[Stmt] = []
    s = copy
    while len(s.children()) == 1:
        around.append(s)
        (s,) = s.children()
    loops = [x for x in around if isinstance(x, Loop)]
    extents = [value_of(lp.extent) or 0 for lp in loops]
    if not isinstance(s, Store) or not 0 < prod(extents) <= _HELD:
        return None
    name = f"{s.buffer}.next"
    at = tuple(lp.var for lp in loops) or (ZERO,)
    held = Buffer(name, tuple(lp.extent for lp in loops) or (index(1),), s.value.dtype, "local")
    fetch: Stmt = Store(name, at, s.value)
    put: Stmt = Store(s.buffer, s.indices, Load(name, at, s.value.dtype))
    for x in reversed(around):
        if isinstance(x, Loop) and x.kind != LoopKind.VECTORIZED:
            x = replace(x, kind=LoopKind.UNROLLED)
        fetch, put = (kept(x.map_children(lambda _, inside=inside: inside)) for inside in (fetch, put))  # type: ignore[misc]
    return fetch, put, held
