"""What kernels for GPUs use and do, as columns: blocks, threads, shared memory, registers, occupancy, transactions.

A kernel is an outermost statement of a program whose loops are bound to axes.  All is per block or per thread of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from searchlab.analysis.access import access_columns
from searchlab.analysis.computing import tile
from searchlab.analysis.graph import Graph, Node
from searchlab.analysis.nest import Access, CalledLoops, LoopColumns, Nest, Statement
from searchlab.analysis.position import carries
from searchlab.analysis.ranges import Ranges
from searchlab.dtype import DTYPES
from searchlab.intrinsics.warp_products import room_between_rows
from searchlab.ir.expr import index
from searchlab.ir.loopkind import BLOCKS, THREADS, LoopKind
from searchlab.ir.stmt import Buffer
from searchlab.targets import CudaTarget
from searchlab.targets.cuda import WARP

SECTOR = 32  # bytes that memory moves at a time
BANKS = 32  # of shared memory, each of 4 bytes
_BANK_BYTES = 4
_WORD = 4  # bytes of a register
DOUBLE_BUFFER, REGISTERS = "double_buffer", "thread_registers"  # annotations of loops
_OTHER_REGISTERS = 8  # of a thread: addresses, counters
_AROUND_CALLS = 24  # the same, and what is copied meanwhile, where operands are fragments of calls
_EACH_RESULT, _EACH_OPERAND = 0.85, 4.9  # registers; operands of several terms are under way at once
_REGISTER_STEP = 8
_VECTOR_BYTES = 16
_MOST_OPERANDS = 48  # of a term that are in registers at once: others are loaded later


@dataclass(frozen=True, eq=False)
class WarpAccess:
    """How the threads of a warp go through one buffer: how often each does, and what one access of all of them costs.

    Of global memory, `cost` are the sectors that are moved; of shared memory, the turns that conflicts of banks take.
    """

    scope: str
    times: Node
    cost: Node
    bytes: Node  # that all threads of the warp ask for


@dataclass(frozen=True, eq=False)
class GpuStatement:
    """A statement of a kernel as the threads of a block run it."""

    nest: Nest
    statement: Statement

    def _along(self, axes: tuple[LoopKind, ...]) -> list[Node]:
        loops = {lp.loop.kind: lp.extent for lp in self.statement.loops}
        return [loops.get(axis, self.nest.graph.one) for axis in axes]

    @cached_property
    def blocks(self) -> Node:
        """How many blocks run it."""
        return self.nest.graph.product(self._along(BLOCKS))

    @property
    def called(self) -> CalledLoops | None:
        """The calls of an instruction of warps that compute it, if they do: their lanes are no loop."""
        found = self.statement.called
        return found if found is not None and found.intrinsic.fragments is not None else None

    @cached_property
    def threads(self) -> Node:
        """How many threads of a block run it."""
        return self.nest.graph.product(self._along(THREADS)) * (1 if self.called is None else WARP)

    @cached_property
    def own(self) -> Node:
        """How often a thread runs it, or calls the instruction that does."""
        bound = (*BLOCKS, *THREADS)
        return self.nest.graph.product(lp.extent for lp in self.loops if lp.loop.kind not in bound)

    @property
    def loops(self) -> tuple[LoopColumns, ...]:
        """The loops around it, or around its calls."""
        return self.statement.loops[: None if self.called is None else self.called.depth]

    @cached_property
    def tensor(self) -> Node:
        """Cycles of a multiprocessor's tensor cores that a warp takes."""
        pace = None if self.called is None else self.called.intrinsic.pace
        return self.own * (0.0 if pace is None else pace.cycles)

    @property
    def ahead(self) -> bool:
        """Whether a loop around it copies to shared memory a step ahead."""
        return any(note == (DOUBLE_BUFFER, True) for lp in self.statement.loops for note in lp.loop.annotations)

    @cached_property
    def warps(self) -> Node:
        """How many warps of a block run it."""
        return (self.threads + (WARP - 1)) // WARP

    @cached_property
    def lanes(self) -> Node:
        """Elements that one access of a thread moves."""
        g = self.nest.graph
        return g.product(1 + (lp.extent - 1) * lp.kinds["vectorized"] for lp in self.loops)

    @cached_property
    def warp(self) -> dict[LoopKind, Node]:
        """Along each axis, how many threads of one warp there are."""
        found, left = {}, self.nest.graph.const(WARP)
        for axis, extent in zip(THREADS, self._along(THREADS), strict=True):
            found[axis] = extent.least(left.most(1))
            left = left // extent
        return found

    def accesses(self) -> Iterator[WarpAccess]:
        """The accesses to memory; what a thread keeps by itself is in registers."""
        g = self.nest.graph
        written = (lp.kinds["unrolled"] + lp.kinds["vectorized"] for lp in self.loops)
        steps = g.product(1 + w * (lp.extent - 1) for lp, w in zip(self.loops, written, strict=True))
        for access in self.statement.accesses:
            scope = self._scope(access)
            if scope == "local":
                continue
            # what several unrolled iterations read of one element is loaded once
            times = self.own * self.elements(access) / steps / self.lanes
            if self.called is not None:
                asked = g.const(_WORD * WARP)
                yield WarpAccess(scope, times * self._words(access), self._fragment_turns(access, self.called), asked)
            elif scope == "shared":
                together = self._together(access)
                yield WarpAccess(scope, times / together, self._turns(access, together), together * access.bytes * WARP)
            else:
                yield WarpAccess(scope, times, self._sectors(access), self.lanes * access.bytes * WARP)

    def _words(self, access: Access) -> Node:
        """Registers that a thread fills of an operand for one call."""
        assert self.called is not None
        touched = self.nest.touched(access, self.statement.running(self.called.depth))
        return touched / (_WORD * WARP)

    def _fragment_turns(self, access: Access, called: CalledLoops) -> Node:
        """Turns of one word of a fragment: eight rows, which meet in banks, each with four words side by side."""
        rows, columns, _ = self.statement.loops[called.depth :]
        moves = access_columns(self.nest, self.statement, access).moves(rows)
        along = [self._compact_stride(access, lp) for lp in (rows, columns)]
        stride = along[0] * moves + along[1] * (1 - moves)
        return (_common_with_banks(stride * access.bytes / _BANK_BYTES) * (8 / BANKS)).most(1)

    @cached_property
    def term(self) -> Node:
        """Elements of operands that a thread needs for one term of all its sums, or registers for one step of calls."""
        g, s = self.nest.graph, self.statement
        total = g.zero
        for access in (a for a in s.accesses[1:] if self._scope(a) != "local"):
            columns, met = access_columns(self.nest, s, access), g.one
            for lp in self.loops:
                written = lp.kinds["unrolled"] + lp.kinds["vectorized"]
                if written is not g.zero:
                    mine = written * columns.moves(lp) * carries(self.nest, s, lp, "space")
                    met = met * (1 + mine * (lp.extent - 1))
            total = total + met * (1 if self.called is None else self._words(access))
        return total

    def elements(self, access: Access) -> Node:
        """Elements that a thread meets while its unrolled and vectorised loops run."""
        g, own = self.nest.graph, tile(self.nest, self.statement)
        columns = access_columns(self.nest, self.statement, access)
        box = (own.accumulators, *own.boxes)[self.statement.accesses.index(access)]
        met = g.one
        for lp in self.loops:
            written = lp.kinds["unrolled"] + lp.kinds["vectorized"]
            if written is not g.zero:
                met = met * (1 + written * columns.moves(lp) * (lp.extent - 1))
        return met.least(box)  # windows overlap, and virtual threads are far apart

    def _scope(self, access: Access) -> str:
        if access.buffer.scope != "global" or access.buffer.name not in self.nest.intermediate:
            return access.buffer.scope
        return "shared" if self._one_kernel(access) else "global"

    def _one_kernel(self, access: Access) -> bool:
        """Whether only one kernel uses a buffer, which code generation then puts into shared memory."""
        uses = [s for s, _ in self.nest.touching(access.buffer.name)]
        return all(s.loops[:1] == uses[0].loops[:1] for s in uses)

    def _sectors(self, access: Access) -> Node:
        """Sectors of the rows that a warp touches, but no more than threads would touch apart."""
        g = self.nest.graph
        extents = {lp.var: self._in_warp(lp) for lp in self.statement.loops}
        *outer, last = self.nest.region(access, self.statement.running(0), Ranges(g, extents))
        run = (last * access.bytes + (SECTOR - 1)) // SECTOR
        each = (self.lanes * access.bytes + (SECTOR - 1)) // SECTOR
        return (g.product(outer) * run).least(self._threads_in_warp * each)

    @cached_property
    def _threads_in_warp(self) -> Node:
        return self.nest.graph.product(self.warp.values())

    def _in_warp(self, lp: LoopColumns) -> Node:
        """The extent of a loop while a warp makes one access: its threads, and lanes of a vector."""
        if lp.loop.kind in THREADS:
            return self.warp[lp.loop.kind]
        return 1 + (lp.extent - 1) * lp.kinds["vectorized"]

    def _together(self, access: Access) -> Node:
        """Neighbouring elements of unrolled iterations, which code generation loads from shared memory at once."""
        g, most = self.nest.graph, max(1, _VECTOR_BYTES // access.bytes)
        found = g.one
        for lp in self.statement.loops:
            if lp.kinds["unrolled"] is not g.zero:
                neighbours = self._compact_stride(access, lp).equals(1) * lp.kinds["unrolled"]
                found = found.most(1 + neighbours * (lp.extent.least(most) - 1))
        return found

    def _turns(self, access: Access, together: Node) -> Node:
        """How many turns a warp takes: for all words that it wants, or because many are in one bank."""
        nest, g = self.nest, self.nest.graph
        threads, worst = g.one, g.one
        for lp in self.statement.loops:
            if lp.loop.kind in THREADS:
                words = self._compact_stride(access, lp) * access.bytes / _BANK_BYTES
                moved = words.least(1)  # threads that read the same word are served together
                met = access_columns(nest, self.statement, access).different(lp)
                apart = (self.warp[lp.loop.kind].least(met) * moved).most(1)
                threads = threads * apart
                worst = worst.most(apart * _common_with_banks(words) * moved / BANKS)
        wanted = threads.least(WARP) * self.lanes * together * (access.bytes / _BANK_BYTES) / BANKS
        return worst.most(wanted)

    def _compact_stride(self, access: Access, lp: LoopColumns) -> Node:
        """Elements between those of neighbouring threads, in a buffer that holds only what its block uses."""
        nest = self.nest
        _, sides = nest.allocated(access.buffer.name, read=True)
        total, size = nest.graph.zero, nest.graph.one
        room = _room(nest, access.buffer)
        for n, (e, side) in enumerate(zip(reversed(access.indices[0]), reversed(sides), strict=True)):
            total = total + nest.ranges.step(e, lp.var) * size
            size = size * (side + room(side) if n == 0 else side)
        return total.most(0 - total)


def _room(nest: Nest, buffer: Buffer) -> Callable[[Node], Node | int]:
    """Elements between the rows of a buffer, from their length: operands of calls of warps have some."""
    users = (s.called for s, a in nest.touching(buffer.name) if a.reads)
    if buffer.scope != "shared" or not any(c is not None and c.intrinsic.fragments is not None for c in users):
        return lambda row: 0
    size = DTYPES[buffer.dtype].bytes
    return lambda row: room_between_rows(row * size) / size


def _common_with_banks(words: Node) -> Node:
    """The greatest common divisor of a stride and the number of banks."""
    found = words.graph.one
    power = 2
    while power <= BANKS:
        found = found + (words % power).equals(0) * (power // 2)
        power *= 2
    return found


@dataclass(frozen=True, eq=False)
class GpuKernel:
    """The statements of one kernel, and what its blocks need."""

    nest: Nest
    statements: tuple[GpuStatement, ...]

    @property
    def graph(self) -> Graph:
        """Where its columns are."""
        return self.nest.graph

    @cached_property
    def blocks(self) -> Node:
        """Blocks of the launch."""
        return self.graph.largest(s.blocks for s in self.statements)

    @cached_property
    def threads(self) -> Node:
        """Threads of a block."""
        return self.graph.largest(s.threads for s in self.statements)

    @cached_property
    def warps(self) -> Node:
        """Warps of a block."""
        return (self.threads + (WARP - 1)) // WARP

    @cached_property
    def shared(self) -> Node:
        """Bytes of shared memory of a block, twice those that are copied if this is done a step ahead."""
        used = self.graph.total(self._bytes(name) for name in self._buffers("shared"))
        return used * 2 if any(s.ahead for s in self.statements) else used

    def _bytes(self, name: str) -> Node:
        """Bytes of a buffer in shared memory, with the room between rows of operands of calls."""
        buffer = self.nest.program.buffers[name]
        *outer, row = self.nest.allocated(name, read=True)[1]
        whole = row + _room(self.nest, buffer)(row)
        return self.graph.product([*outer, whole]) * DTYPES[buffer.dtype].bytes

    @cached_property
    def registers(self) -> Node:
        """The registers of a thread: those that it is said to get along with, else an estimate.

        That is its results, what one term of their sums takes, and some others; constants fit what ptxas gives to
        products (`benchmarks.gpu`, case `hidet`).
        """
        g = self.graph
        loops = (lp.loop for s in self.statements for lp in s.statement.loops)
        said = [note for loop in loops for key, note in loop.annotations if key == REGISTERS]
        if said:
            return self.nest.ranges.value(index(said[0]))
        held = g.total(self.nest.allocation(name)[1] for name in self._buffers("local")) / self.threads
        if any(s.called is not None for s in self.statements):
            wanted = held / _WORD + g.largest(s.term for s in self.statements) + _AROUND_CALLS
        else:
            term = g.largest(s.term.least(_MOST_OPERANDS) for s in self.statements)
            wanted = held * (_EACH_RESULT / 4) + term * _EACH_OPERAND + _OTHER_REGISTERS
        return (wanted + (_REGISTER_STEP - 1)) // _REGISTER_STEP * _REGISTER_STEP

    def _buffers(self, scope: str) -> list[str]:
        found: dict[str, None] = {}
        for s in self.statements:
            found |= {a.buffer.name: None for a in s.statement.accesses if s._scope(a) == scope}
        return [name for name in found if name in self.nest.intermediate]

    def resident(self, target: CudaTarget) -> Node:
        """Blocks that are on a multiprocessor at once, at least one."""
        return target.resident(self.threads, self.registers, self.shared.most(1), Node.least).most(1)


def gpu_kernels(nest: Nest) -> tuple[GpuKernel, ...]:
    """The kernels of a program, in order."""

    def make() -> tuple[GpuKernel, ...]:
        found: dict[int, list[GpuStatement]] = {}
        for n, s in enumerate(nest.statements):
            found.setdefault(id(s.loops[0]) if s.loops else -n, []).append(GpuStatement(nest, s))
        return tuple(GpuKernel(nest, tuple(statements)) for statements in found.values())

    return nest.made("gpu kernels", make)
