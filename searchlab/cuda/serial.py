"""Kernels of threads as loops for a CPU: an oracle for what they compute, and for whether their barriers suffice.

    for t in 64 threadIdx.x: { copy(t); barrier; use(t) }     =>     for t in 64: copy(t)
                                                                     for t in 64: use(t)

Threads run one after the other from barrier to barrier, in any order that is asked for; so do blocks.  A thread goes on
through the ends of loops until it meets a barrier: after the last one of an iteration it begins the next, as a real one
may.  What a kernel computes must not depend on the order, and differs from the truth where a barrier is missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import gcd, prod

import numpy as np

from searchlab.cuda.fragments import SCOPE as FRAGMENTS
from searchlab.cuda.spmd import SHARED, GridKernel, Launches
from searchlab.errors import BuildError
from searchlab.ir.expr import Expr, Load, Var, const, index, value_of
from searchlab.ir.loopkind import BLOCKS, THREADS, LoopKind
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import map_expressions, reindexed, rename_buffer, statements
from searchlab.ir.stmt import Alloc, Barrier, Buffer, If, Loop, Prefetch, Seq, Stmt, Store, Tensorized, seq
from searchlab.ir.thread_stmt import Shuffle
from searchlab.ir.visitor import Visitor
from searchlab.ir.walk import Substitution
from searchlab.llvm import jit
from searchlab.llvm.module import generate
from searchlab.lower.passes import Lowered
from searchlab.runtime.kernel import CpuArtifact, CpuKernel
from searchlab.targets import CpuTarget, detect

_STALE = 85  # what shared memory holds before it is written: a number of every type, and hardly a right one
_NOTHING = Seq(())
_CUTS = (Barrier, Shuffle, Tensorized)  # where threads wait for each other
_AXES = tuple(Var(axis.value) for axis in THREADS)


class ThreadOrder(StrEnum):
    """The order in which threads run between two barriers; shuffled ones differ from barrier to barrier."""

    FORWARD = "forward"
    REVERSED = "reversed"
    SHUFFLED = "shuffled"


def serial_kernel(
    made: Launches,
    program: Program,
    order: ThreadOrder = ThreadOrder.FORWARD,
    rng: np.random.Generator | None = None,
    target: CpuTarget | None = None,
) -> CpuKernel:
    """All kernels of a program as one kernel of this CPU, whose threads run in an order; `rng` shuffles them."""
    cpu = replace(target or detect(), threads=1)
    code = generate(serial_loops(made, program, order, rng), cpu)
    compiled = jit.compile_ir(code.ir, cpu)
    artifact = CpuArtifact(program, cpu, compiled, code.entry, code.sizes, code.shared, code.private, code.parallel)
    return CpuKernel(artifact)


def serial_loops(
    made: Launches, program: Program, order: ThreadOrder, rng: np.random.Generator | None = None
) -> Lowered:
    """All kernels of a program as plain loops, the kernels one after the other."""
    if order == ThreadOrder.SHUFFLED and rng is None:
        raise BuildError("shuffled threads need a random generator: serial_loops(..., rng=np.random.default_rng(0))")
    body = seq(*(_Serial(kernel, order, rng).body() for kernel in made.kernels))
    for buffer in made.scratch:
        body = Alloc(buffer, body)
    return Lowered(made.name, made.parameters, program.inputs, program.outputs, body)


@dataclass(frozen=True)
class _Parts:
    """What a thread does before the first barrier and after the last; what is between has loops over all threads."""

    head: Stmt
    middle: tuple[Stmt, ...]
    tail: Stmt


_Cut = Stmt | _Parts  # a statement without barriers stays one


@dataclass
class _Serial(Visitor[[], _Cut]):
    """Cuts a kernel at its barriers; `arrays` are the buffers that last from one barrier to the next."""

    kernel: GridKernel
    order: ThreadOrder
    rng: np.random.Generator | None
    arrays: list[Buffer] = field(default_factory=list)

    def body(self) -> Stmt:
        inside = self.kernel.body
        while isinstance(inside, Loop) and inside.kind in (*BLOCKS, *THREADS):
            inside = inside.body
        cut = self.visit(inside)
        parts = (self.threads(cut.head), *cut.middle, self.threads(cut.tail)) if isinstance(cut, _Parts) else (
            self.threads(cut),
        )  # fmt: skip
        stale = [_fill(b) for b in self.arrays if b.scope == SHARED]
        whole = self.over(BLOCKS, self.kernel.grid, seq(*stale, *parts))
        for buffer in self.arrays:
            whole = Alloc(buffer, whole)
        return whole

    # --- orders -------------------------------------------------------------------------------------------------------

    def threads(self, s: Stmt) -> Stmt:
        """All threads run a statement, one after the other."""
        return _NOTHING if s == _NOTHING else self.over(THREADS, self.kernel.block, s)

    def over(self, axes: tuple[LoopKind, ...], shape: tuple[int, int, int], s: Stmt) -> Stmt:
        count = prod(shape)
        turn = Var(f"{axes[0].value[:-2]}.turn")
        rest, put = self.permuted(turn, count), {}
        for axis, extent in zip(axes, shape, strict=True):
            put[Var(axis.value)] = rest % extent
            rest = rest // extent
        return Loop(turn, index(count), map_expressions(s, Substitution(put)))

    def permuted(self, turn: Expr, count: int) -> Expr:
        """The thread whose turn it is: steps of a length that has no divisor in common with their number visit all."""
        if self.order == ThreadOrder.FORWARD:
            return turn
        if self.order == ThreadOrder.REVERSED:
            return count - 1 - turn
        assert self.rng is not None
        steps = [n for n in range(1, max(2, count)) if gcd(n, count) == 1]
        step, first = int(self.rng.choice(steps)), int(self.rng.integers(count))
        return (turn * step + first) % count

    # --- cutting ------------------------------------------------------------------------------------------------------

    def visit(self, s: Stmt) -> _Cut:
        return super().visit(s) if any(map(_lasts, statements(s))) else s

    def visit_barrier(self, s: Barrier) -> _Cut:
        return _Parts(_NOTHING, (), _NOTHING)

    def visit_shuffle(self, s: Shuffle) -> _Cut:
        """All threads show their values, then each takes that of its partner; neither waits for other warps there."""
        shown = f"{s.buffer}.shown{len(self.arrays)}"
        self.arrays.append(Buffer(shown, tuple(map(index, self.kernel.block)), s.value.dtype, "local"))
        x, *rest = _AXES
        partner = x + s.mask - (x // s.mask % 2) * (2 * s.mask)
        take = Store(s.buffer, s.indices, Load(shown, (partner, *rest), s.value.dtype))
        return _Parts(Store(shown, _AXES, s.value), (self.threads(take),), _NOTHING)

    def visit_tensorized(self, s: Tensorized) -> _Cut:
        """What a warp does together, its first lane does."""
        return _Parts(_NOTHING, (self.threads(If(_AXES[0].equals(0), s.body)),), _NOTHING)

    def visit_seq(self, s: Seq) -> _Cut:
        return self.joined(self.visit(part) for part in s.body)

    def joined(self, parts: Iterable[_Cut]) -> _Cut:
        done: _Cut = _NOTHING
        for part in parts:
            if isinstance(done, _Parts) and isinstance(part, _Parts):
                between = self.threads(seq(done.tail, part.head))
                done = _Parts(done.head, (*done.middle, between, *part.middle), part.tail)
            elif isinstance(done, _Parts):
                assert isinstance(part, Stmt)
                done = replace(done, tail=seq(done.tail, part))
            elif isinstance(part, _Parts):
                done = replace(part, head=seq(done, part.head))
            else:
                done = seq(done, part)
        return done

    def visit_loop(self, s: Loop) -> _Cut:
        """An iteration's end and the beginning of the next one run together."""
        body, extent = self.visit(s.body), value_of(s.extent)
        if not isinstance(body, _Parts):
            return s.with_body(body)
        if extent is None:
            raise BuildError(f"{self.kernel.name}: loop '{s.name}' has barriers, but its extent is no number")
        if extent == 0:
            return _NOTHING
        first, last, following = (Substitution({s.var: e}) for e in (index(0), index(extent - 1), s.var + 1))
        turn = self.threads(seq(body.tail, map_expressions(body.head, following)))
        again = Loop(s.var, index(extent - 1), seq(*body.middle, turn))
        middle = [*([again] if extent > 1 else ()), *(map_expressions(x, last) for x in body.middle)]
        return _Parts(map_expressions(body.head, first), tuple(middle), map_expressions(body.tail, last))

    def visit_if(self, s: If) -> _Cut:
        """A condition that all threads agree on."""
        body = self.visit(s.body)
        if not isinstance(body, _Parts):
            return If(s.condition, body)
        middle = tuple(If(s.condition, x) for x in body.middle)
        head, tail = (x if x == _NOTHING else If(s.condition, x) for x in (body.head, body.tail))
        return _Parts(head, middle, tail)

    def visit_alloc(self, s: Alloc) -> _Cut:
        """Memory that lasts from one barrier to the next: of the block, or an array with an element for each thread."""
        if s.buffer.scope == SHARED:
            if s.buffer not in self.arrays:
                self.arrays.append(s.buffer)
            return self.visit(s.body)
        own = f"{s.buffer.name}.of{len(self.arrays)}"
        first = 1 if s.buffer.scope == FRAGMENTS else 0  # its first index is the lane already
        shape = (*map(index, self.kernel.block[first:]), *s.buffer.shape)
        self.arrays.append(replace(s.buffer, name=own, shape=shape, scope="local"))
        body = reindexed(rename_buffer(s.body, s.buffer.name, own), own, lambda indices: (*_AXES[first:], *indices))
        return self.visit(body)

    def visit_prefetch(self, s: Prefetch) -> _Cut:
        return s


def _lasts(s: Stmt) -> bool:
    return isinstance(s, _CUTS) or (isinstance(s, Alloc) and s.buffer.scope == SHARED)


def _fill(buffer: Buffer) -> Stmt:
    """Shared memory as a block finds it."""
    at = tuple(Var(f"{buffer.name}.at{d}") for d in range(len(buffer.shape)))
    fill: Stmt = Store(buffer.name, at, const(_STALE, buffer.dtype))
    for var, extent in reversed(list(zip(at, buffer.shape, strict=True))):
        fill = Loop(var, extent, fill)
    return fill
