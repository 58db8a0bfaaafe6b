"""From a program whose loops are bound to blocks and threads to kernels: what one thread does, with its indices given.

    for i_0 in 4 blockIdx.x:                     for blockIdx.x in 4 blockIdx.x:
      for i_1 in 256 threadIdx.x:        =>        for threadIdx.x in 256 threadIdx.x:
        Y[i_0*256 + i_1] = ...                       Y[blockIdx.x*256 + threadIdx.x] = ...

Every outermost statement of a program is a kernel: it begins when the one before it has ended.  In a kernel the loops
of blocks are outermost; loops of threads may follow each other, and what they mean is that all threads finish one
before any begins the next, which `barriers` sees to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from searchlab.cuda.barriers import check_private, with_barriers
from searchlab.cuda.double_buffer import with_async_copies, with_double_buffers
from searchlab.cuda.fragments import padded_rows, with_fragments
from searchlab.cuda.interior import with_interiors
from searchlab.cuda.thread_sums import ThreadSum, summed_by_threads, thread_sum
from searchlab.errors import BuildError
from searchlab.ir.expr import ZERO, Expr, Var, all_of, index, value_of
from searchlab.ir.loopkind import BLOCKS, THREADS, LoopKind
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import kept, map_expressions, own_accesses, statements, touches
from searchlab.ir.stmt import Alloc, Buffer, If, Loop, Stmt, Store, parts_of, seq
from searchlab.ir.visitor import Rewriter
from searchlab.ir.walk import Substitution
from searchlab.llvm.callsite import check_intrinsics
from searchlab.lower.flatten import REGISTERS, flatten
from searchlab.lower.invariants import hoist_invariants
from searchlab.lower.passes import Lowered
from searchlab.lower.registers import place_reductions
from searchlab.lower.storage import place_buffers
from searchlab.targets import CudaTarget

SHARED, LOCAL, GLOBAL = "shared", "local", "global"
_RUN = {LoopKind.PARALLEL: LoopKind.SERIAL}  # how one thread runs loops that are not bound to axes
Extents = dict[LoopKind, int]


@dataclass(frozen=True)
class GridKernel:
    """What one thread of a launch does: the loops of the axes of blocks and threads, with the statements in them."""

    name: str
    extents: tuple[tuple[LoopKind, int], ...]
    body: Stmt
    registers: int = 0  # that a thread gets along with; 0: nothing is said

    def shape(self, axes: tuple[LoopKind, ...]) -> tuple[int, int, int]:
        """The number of blocks, or of threads in a block, along x, y and z."""
        x, y, z = (dict(self.extents).get(axis, 1) for axis in axes)
        return x, y, z

    @property
    def grid(self) -> tuple[int, int, int]:
        """The number of blocks."""
        return self.shape(BLOCKS)

    @property
    def block(self) -> tuple[int, int, int]:
        """The number of threads in a block."""
        return self.shape(THREADS)


@dataclass(frozen=True)
class Launches:
    """The kernels of a program in the order in which they run, and the buffers that they pass to each other."""

    name: str
    kernels: tuple[GridKernel, ...]
    parameters: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]

    def lowered(self, program: Program) -> Lowered:
        """All kernels as one body of plain loops, for listings."""
        body = seq(*(k.body for k in self.kernels))
        return Lowered(self.name, (*self.parameters, *self.scratch), program.inputs, program.outputs, body)


def launches(program: Program, target: CudaTarget) -> Launches:
    """The kernels of a program; raises BuildError for what threads cannot run, or what is not proved free of races."""
    _check(program, target)
    body = flatten(program)
    scopes = _scopes(program, body)
    buffers = {n: replace(b, scope=scopes.get(n, b.scope)) for n, b in program.buffers.items()}
    resolved = replace(program, buffers=buffers)
    body = place_buffers(resolved, body, [n for n, scope in scopes.items() if scope == SHARED], padded_rows(body))
    kernels = []
    for n, part in enumerate(parts_of(body)):
        kernels.append(_kernel(f"{program.name}: kernel {n}", resolved, part, target))
    scratch = tuple(buffers[n] for n, scope in scopes.items() if scope == GLOBAL)
    parameters = tuple(buffers[n] for n in (*program.inputs, *program.outputs))
    return Launches(program.name, tuple(kernels), parameters, scratch)


def _check(program: Program, target: CudaTarget) -> None:
    if program.symbols:
        names = ", ".join(v.name for v in program.symbols)
        raise BuildError(f"{program.name} still has symbols: {names}; kernels for GPUs need numbers")
    check_intrinsics(program.name, program.body, target)


# --- memory -----------------------------------------------------------------------------------------------------------


def _scopes(program: Program, body: Stmt) -> dict[str, str]:
    """Where each intermediate buffer is: in global memory between kernels, in a block's shared memory, in a thread."""
    inner = [n for n in program.buffers if n not in program.inputs and n not in program.outputs]
    return {n: _scope(program, body, n) for n in inner if touches(body, n)}


def _scope(program: Program, body: Stmt, name: str) -> str:
    declared = program.buffers[name].scope
    used = [part for part in parts_of(body) if touches(part, name)]
    if len(used) > 1:
        if declared != GLOBAL:
            raise BuildError(
                f"{program.name}: '{name}' is in {declared} memory, but {len(used)} kernels use it; "
                "compute it inside the loops of blocks of its reader (compute_at)"
            )
        return GLOBAL
    if declared != GLOBAL:
        return declared
    found = list(_places(used[0], name, ()))
    one = len({tuple(map(id, threads)) for threads, _ in found}) == 1
    return LOCAL if one or _is_own(found) else SHARED


_Places = list[tuple[tuple[Loop, ...], tuple[Expr, ...]]]


def _places(s: Stmt, name: str, loops: tuple[Loop, ...]) -> Iterator[tuple[tuple[Loop, ...], tuple[Expr, ...]]]:
    """Each access to a buffer, with the loops of threads around it."""
    here = (*loops, s) if isinstance(s, Loop) and s.kind in THREADS else loops
    for indices in own_accesses(s, name):
        yield here, indices
    for child in s.children():
        yield from _places(child, name, here)


def _is_own(found: _Places) -> bool:
    """Whether every thread has elements of its own: for each axis there is an index that is the thread's number."""
    axes = {lp.kind for threads, _ in found for lp in threads}
    own = [{(d, lp.kind) for lp in threads for d, i in enumerate(indices) if i == lp.var} for threads, indices in found]
    return bool(axes) and axes == {axis for _, axis in frozenset.intersection(*map(frozenset, own))}


# --- kernels ----------------------------------------------------------------------------------------------------------


def _kernel(where: str, program: Program, part: Stmt, target: CudaTarget) -> GridKernel:
    extents = _extents(where, part)
    body = kept(_Thread(where, program, extents).visit(_inside_blocks(where, part), frozenset()))
    for axis in (*THREADS, *BLOCKS):
        if axis in extents:
            body = Loop(Var(axis.value), index(extents[axis]), body, axis)
    _check_size(where, extents, target)
    body, fragments = with_fragments(where, program, body)
    program = replace(program, buffers={**program.buffers, **fragments})
    private = [n for n, b in program.buffers.items() if b.scope == LOCAL and touches(body, n)]
    check_private(where, body, private)
    body = place_buffers(program, body, [*private, *fragments])
    body = with_double_buffers(where, place_reductions(body, target), target)
    body = hoist_invariants(with_async_copies(with_interiors(body), target))
    parameters = (*program.inputs, *program.outputs)
    common = {n for n, b in program.buffers.items() if n not in program.inputs and b.scope in (SHARED, GLOBAL)}
    common |= {s.buffer.name for s in statements(body) if isinstance(s, Alloc) and s.buffer.scope == SHARED}
    outside = {n for n in common if n in parameters or (n in program.buffers and program.buffers[n].scope == GLOBAL)}
    return GridKernel(where, tuple(extents.items()), with_barriers(where, body, common, outside), _registers(part))


def _registers(part: Stmt) -> int:
    """The registers that threads of a kernel get along with, as one of its loops says."""
    loops = (s for s in statements(part) if isinstance(s, Loop))
    return max((value_of(index(x)) or 0 for lp in loops for key, x in lp.annotations if key == REGISTERS), default=0)


def _check_size(where: str, extents: Extents, target: CudaTarget) -> None:
    threads = 1
    for axis in THREADS:
        threads *= extents.get(axis, 1)
    if threads > target.threads_per_block or extents.get(LoopKind.THREAD_Z, 1) > 64:
        raise BuildError(
            f"{where}: a block of {threads} threads; {target.name} allows {target.threads_per_block}, 64 of them in z"
        )
    for axis in BLOCKS:
        most = (1 << 31) - 1 if axis == LoopKind.BLOCK_X else (1 << 16) - 1
        if extents.get(axis, 1) > most:
            raise BuildError(f"{where}: {extents[axis]} blocks along {axis}; at most {most} are possible")


def _extents(where: str, part: Stmt) -> Extents:
    """The extent of every axis: that of the largest loop bound to it."""
    found: Extents = {}
    for lp in (s for s in statements(part) if isinstance(s, Loop)):
        if lp.kind in BLOCKS or lp.kind in THREADS:
            extent = value_of(lp.extent)
            if extent is None:
                raise BuildError(f"{where}: loop '{lp.name}' is bound to {lp.kind}, but its extent is no number")
            found[lp.kind] = max(found.get(lp.kind, 1), extent)
    return found


def _inside_blocks(where: str, part: Stmt) -> Stmt:
    """The statement without its loops of blocks, which must be outermost and on different axes."""
    seen: set[LoopKind] = set()
    while isinstance(part, Loop) and part.kind in BLOCKS:
        if part.kind in seen:
            raise BuildError(f"{where}: two loops are bound to {part.kind}, one inside the other")
        seen.add(part.kind)
        part = map_expressions(part.body, Substitution({part.var: Var(part.kind.value)}))
    for lp in statements(part):
        if isinstance(lp, Loop) and lp.kind in BLOCKS:
            raise BuildError(f"{where}: loop '{lp.name}' is bound to {lp.kind}, but it is not outermost")
    return part


@dataclass(frozen=True)
class _Thread(Rewriter[[frozenset[LoopKind]]]):
    """What one thread runs of the loops of all: `bound` are the axes of the loops around a statement."""

    where: str
    program: Program
    extents: Extents
    sums: list[ThreadSum] = field(default_factory=list)

    def visit_loop(self, s: Loop, bound: frozenset[LoopKind]) -> Stmt | None:
        if s.kind not in THREADS:
            kind = LoopKind.UNROLLED if s.kind.is_virtual else _RUN.get(s.kind, s.kind)
            return replace(s, kind=kind, body=kept(self.visit(s.body, bound)))
        if s.kind in bound:
            raise BuildError(f"{self.where}: two loops are bound to {s.kind}, one inside the other ('{s.name}')")
        if s.kind == LoopKind.THREAD_X and (found := thread_sum(s)) is not None:
            return self.visit_sum(found, bound)
        axis, extent = Var(s.kind.value), value_of(s.extent)
        mine = Substitution({s.var: ZERO if extent == 1 else axis})
        body = kept(self.visit(map_expressions(s.body, mine), bound | {s.kind}))
        if extent == self.extents[s.kind]:
            return body
        return If(axis.equals(0) if extent == 1 else axis < s.extent, body)

    def visit_sum(self, found: ThreadSum, bound: frozenset[LoopKind]) -> Stmt:
        """All threads get the result, and the first stores it, or each if it has the buffer."""
        x, y, z = (self.extents.get(axis, 1) for axis in THREADS)
        self.sums.append(found)
        name = f"{found.update.buffer}.sum{len(self.sums)}"
        return summed_by_threads(
            self.where, found, (x, y, z), name, lambda u: kept(self.visit_store(u, bound - {LoopKind.THREAD_X}))
        )

    def visit_store(self, s: Store, bound: frozenset[LoopKind]) -> Stmt | None:
        """A store outside of the loops of an axis is done by its first thread, or by all if each has the buffer."""
        if self.program.buffers[s.buffer].scope == LOCAL:
            return s
        free = [a for a in THREADS if self.extents.get(a, 1) > 1 and a not in bound]
        first: list[Expr] = [Var(a.value).equals(0) for a in free]
        return If(all_of(first), s) if first else s
