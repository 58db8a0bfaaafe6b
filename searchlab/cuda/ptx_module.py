"""Kernels as LLVM IR for NVPTX, and as PTX text.

Pointers are generic in the IR that is written; LLVM finds out which memory they point to, so that all statements and
values are written by the code that writes them for CPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

from searchlab.cuda.double_buffer import SIZES
from searchlab.cuda.fragments import without_lanes
from searchlab.cuda.spmd import SHARED, GridKernel, Launches
from searchlab.cuda.warp_site import WarpSite
from searchlab.dtype import DTYPES
from searchlab.errors import BuildError
from searchlab.intrinsics import find_intrinsic
from searchlab.ir.expr import Load, value_of
from searchlab.ir.loopkind import BLOCKS, THREADS
from searchlab.ir.statement_tree import statements
from searchlab.ir.stmt import Alloc, Barrier, Buffer, Loop, Prefetch, Stmt, Tensorized
from searchlab.ir.thread_stmt import AsyncCopy, Shuffle
from searchlab.llvm import jit
from searchlab.llvm.module import BodyWriter, Generation
from searchlab.llvm.ssa import TYPES, Function, Known, Linear
from searchlab.llvm.values import BufferPlace, ValueWriter
from searchlab.targets import CudaTarget
from searchlab.targets.cuda import STATIC_SHARED, WARP

ALIGN = 256  # of memory on the device
_LOCAL = 512 << 10  # bytes that a thread can have
_SHARED_ALIGN = 16
_REGISTER_STEP = 8  # registers are given to threads in such steps
_NARROW = 1 << 30  # elements and threads, below which indices have 32 bits, tiles that overhang included
# LLVM finds common subexpressions and promotes local arrays that code generation has left
PIPELINE = ("sroa", "instcombine", "simplifycfg")
_REGISTERS = {axis: f"{'ctaid' if axis in BLOCKS else 'tid'}.{axis.value[-1]}" for axis in (*BLOCKS, *THREADS)}


@dataclass(frozen=True)
class PtxKernel:
    """The PTX of one launch; `shared` are bytes of a block's shared memory, all of which the PTX declares unless they
    are `dynamic`: then as many must be asked for at launch, and permitted before."""

    entry: str
    text: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int

    @property
    def dynamic(self) -> int:
        """Bytes of shared memory to ask for at launch."""
        return self.shared if self.shared > STATIC_SHARED else 0


class _KernelFunction(Function):
    """A function that the host launches; its indices have 32 bits where arrays are small enough."""

    linkage = "ptx_kernel"

    def narrow(self) -> None:
        """Lets indices have 32 bits."""
        self.bits, self.index = 32, "i32"

    def pointer(self, base: str, dtype: str, form: Linear, *, inside: bool = True) -> str:
        """The address of an element: what each scope adds is summed up before it is added to an address of 64 bits."""
        whole = (base, dtype, form.const, form.terms, inside)
        known = self.memo.get(whole)
        if known is not None:
            return known
        key = (base, dtype, form.terms, inside)  # unrolled copies of a statement differ by a constant
        known = self.memo.get(key)
        if known is None:
            known = base
            scopes: dict[int, list[tuple[str, int]]] = {}
            for name, c in form.terms:
                scopes.setdefault(self.depth.get(name, 0), []).append((name, c))
            for _, terms in sorted(scopes.items()):
                step = Linear(0, ((self.value(Linear(0, tuple(terms))), 1),))
                known = super().pointer(known, dtype, step, inside=inside)
            if known in self.depth:
                self.memo[key] = known
        address = super().pointer(known, dtype, Linear(form.const), inside=inside)
        if address in self.depth:
            self.memo[whole] = address
        return address


def kernel_ir(made: Launches, kernel: GridKernel, entry: str, target: CudaTarget) -> tuple[str, int]:
    """The LLVM IR of one kernel, and the bytes of shared memory that it uses."""
    memory = shared_memory(kernel.body)
    if memory.size > target.shared_per_block:
        limit = f"a block on {target.name} can have {target.shared_per_block}"
        raise BuildError(f"{kernel.name}: {memory.size} bytes of shared memory; {limit}")
    waits = any(isinstance(s, AsyncCopy) for s in statements(kernel.body))
    g = _KernelGeneration(kernel.name, target, memory, waits=waits)
    buffers = (*made.parameters, *made.scratch)
    names = [f"%b{n}" for n in range(len(buffers))]
    function = _KernelFunction(entry, [f"ptr noalias nonnull align {ALIGN} {n}" for n in names], g.module)
    if max(prod(kernel.grid) * prod(kernel.block), *(_count(b) for b in buffers)) < _NARROW:
        function.narrow()
    places = {b.name: BufferPlace(b, n, ALIGN) for b, n in zip(buffers, names, strict=True)}
    KernelWriter(g, function, places).visit(without_lanes(kernel.body))
    g.module.functions.append(function.text())
    # threads that branch by a table go separate ways, and the emulator has no such branches
    attributes = f'"nvvm.maxntid"="{prod(kernel.block)}" "no-jump-tables"="true"'
    if blocks := _blocks_at_stake(kernel, memory.size, target):
        attributes += f' "nvvm.minctasm"="{blocks}"'
    text = g.module.text().replace('"prefer-vector-width"="512"', attributes)
    return "\n".join([*memory.declarations(), text]), memory.size


def _blocks_at_stake(kernel: GridKernel, shared: int, target: CudaTarget) -> int:
    """The blocks that are resident with the registers that threads get along with, if a few more would leave out one.

    Then the assembler must make room for these.  Elsewhere it is left alone: told of a limit that it would have kept
    to by itself, it has been seen to keep values in memory.
    """
    if not kernel.registers:
        return 0
    threads = prod(kernel.block)
    blocks, fewer = (target.resident_blocks(threads, kernel.registers + n, shared) for n in (0, _REGISTER_STEP))
    return blocks if fewer < blocks else 0


def ptx(made: Launches, target: CudaTarget) -> tuple[PtxKernel, ...]:
    """The PTX of all kernels of a program."""
    found = []
    for n, kernel in enumerate(made.kernels):
        entry = f"kernel{n}"
        ir, shared = kernel_ir(made, kernel, entry, target)
        text = jit.assembly(ir, target, pipeline=PIPELINE)
        found.append(PtxKernel(entry, text, kernel.grid, kernel.block, shared))
    return tuple(found)


@dataclass(frozen=True)
class SharedMemory:
    """The arrays in shared memory with their offsets, and the bytes that they take.

    Up to 48 KiB they are arrays of their own, of which LLVM knows that they are apart; beyond, parts of one whose size
    the launch decides.
    """

    offsets: dict[Buffer, int]
    size: int

    def declarations(self) -> list[str]:
        """The arrays as globals of LLVM IR."""
        if self.size > STATIC_SHARED:
            return [f"@dynamic = external addrspace(3) global [0 x i8], align {_SHARED_ALIGN}"]
        kinds = [f"[{_count(b)} x {TYPES[b.dtype]}] poison, align {self.align(b)}" for b in self.offsets]
        return [f"@shared{n} = internal addrspace(3) global {kind}" for n, kind in enumerate(kinds)]

    def align(self, buffer: Buffer) -> int:
        """What the address of an array is known to be a multiple of: no more than its size is, since LLVM reads beyond
        the ends of arrays up to there."""
        return gcd(_SHARED_ALIGN, _count(buffer) * DTYPES[buffer.dtype].bytes)

    def pointer(self, buffer: Buffer) -> str:
        """Where an array begins."""
        if self.size > STATIC_SHARED:
            at = f"getelementptr inbounds (i8, ptr addrspace(3) @dynamic, i64 {self.offsets[buffer]})"
        else:
            at = f"@shared{list(self.offsets).index(buffer)}"
        return f"addrspacecast (ptr addrspace(3) {at} to ptr)"


def shared_memory(body: Stmt) -> SharedMemory:
    """Where a kernel has its arrays in shared memory; copies of a statement have one in common."""
    offsets: dict[Buffer, int] = {}
    size = 0
    for s in statements(body):
        if isinstance(s, Alloc) and s.buffer.scope == SHARED and s.buffer not in offsets:
            offsets[s.buffer] = -(-size // _SHARED_ALIGN) * _SHARED_ALIGN
            size = offsets[s.buffer] + _count(s.buffer) * DTYPES[s.buffer.dtype].bytes
    return SharedMemory(offsets, size)


class _KernelGeneration(Generation):
    """A module with the arrays that its kernel has in shared memory."""

    def __init__(self, name: str, target: CudaTarget, memory: SharedMemory, *, waits: bool) -> None:
        super().__init__(name, target)
        self.memory = memory
        self.waits = waits  # for asynchronous copies


class _KernelValues(ValueWriter):
    """Writes values; all that is known of an address is told, so that LLVM joins neighbouring accesses."""

    def align(self, place: BufferPlace, form: Linear, lanes: int) -> int:
        """The largest power of two, up to 16 bytes, that an address is known to be a multiple of."""
        size = DTYPES[place.buffer.dtype].bytes
        return gcd(_SHARED_ALIGN, place.align, form.const * size, *(c * size for _, c in form.terms))


class KernelWriter(BodyWriter):
    """Writes what one thread does."""

    g: _KernelGeneration

    def __init__(self, generator: _KernelGeneration, function: Function, places: dict[str, BufferPlace]) -> None:
        super().__init__(generator, function, places, inside=True)
        self.w = _KernelValues(function, dict(places), generator.target)

    def visit_loop(self, s: Loop) -> None:
        """The axes of blocks and threads are registers, everything else is a loop."""
        if s.kind not in _REGISTERS:
            super().visit_loop(s)
            return
        name = f"llvm.nvvm.read.ptx.sreg.{_REGISTERS[s.kind]}"
        self.f.declare(f"declare i32 @{name}()")
        own = self.f.hoist(f"call i32 @{name}()")
        own = own if self.f.bits == 32 else self.f.hoist(f"zext nneg i32 {own} to i64", own)
        self.f.env[s.var] = Linear(0, ((own, 1),))
        self.f.fixed.add(s.var)
        self.visit(s.body)

    def visit_barrier(self, s: Barrier) -> None:
        """All threads of the block wait for each other; what was loaded before may have changed.

        Before, each waits for the copies that it has begun.
        """
        if self.g.waits:
            self.f.declare("declare void @llvm.nvvm.cp.async.wait.all()")
            self.f.line("call void @llvm.nvvm.cp.async.wait.all()")
        self.f.declare("declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32) convergent nounwind")
        self.f.line("call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)")
        self.f.known = Known()

    def visit_tensorized(self, s: Tensorized) -> None:
        """What the threads of a warp do together."""
        find_intrinsic(s.intrinsic).emit(WarpSite(s, self.f, self.w))

    def visit_shuffle(self, s: Shuffle) -> None:
        """Words of 32 bits go to other lanes: smaller values are widened, larger ones are two words."""
        dtype = s.value.dtype
        bits, type_ = DTYPES[dtype].bits, TYPES[dtype]
        text = self.w.spread(self.w.write(s.value), dtype, 1)
        kind = f"i{bits}"
        text = text if type_ == kind else self.f.let(f"bitcast {type_} {text} to {kind}")
        if bits == 64:
            halves = self.f.let(f"bitcast i64 {text} to <2 x i32>")
            words = [self.f.let(f"extractelement <2 x i32> {halves}, i64 {n}") for n in range(2)]
            low, high = (self._exchanged(word, s.mask) for word in words)
            one = self.f.let(f"insertelement <2 x i32> poison, i32 {low}, i64 0")
            two = self.f.let(f"insertelement <2 x i32> {one}, i32 {high}, i64 1")
            text = self.f.let(f"bitcast <2 x i32> {two} to i64")
        else:
            text = text if bits == 32 else self.f.let(f"zext {kind} {text} to i32")
            text = self._exchanged(text, s.mask)
            text = text if bits == 32 else self.f.let(f"trunc i32 {text} to {kind}")
        text = text if type_ == kind else self.f.let(f"bitcast {kind} {text} to {type_}")
        place, form = self.w.places[s.buffer], self.f.linear(self.w.offset(s.buffer, s.indices))
        address = self.f.pointer(place.pointer, dtype, form)
        self.w.put_away(dtype, 1, text, address, DTYPES[dtype].bytes)
        self.w.forget(s.buffer)

    def _exchanged(self, word: str, mask: int) -> str:
        self.f.declare("declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32) convergent nounwind")
        return self.f.let(f"call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 {word}, i32 {mask}, i32 {WARP - 1})")

    def visit_asynccopy(self, s: AsyncCopy) -> None:
        """Pieces of 16 bytes, or as many as addresses are known to be multiples of; smaller ones pass by registers."""
        assert isinstance(s.value, Load)
        source, target = self.w.places[s.value.buffer], self.w.places[s.buffer]
        dtype, n = target.buffer.dtype, self.w.lanes.count if self.w.lanes is not None else 1
        offsets = self.w.offset(s.value.buffer, s.value.indices), self.w.offset(s.buffer, s.indices)
        whole = self.w.lanes is None or all(self.w.stride(e) == 1 for e in offsets)
        forms = [self.f.linear(e) for e in offsets]
        known = (self.w.align(place, form, n) for place, form in zip((source, target), forms, strict=True))
        size = min(n * DTYPES[dtype].bytes, *known)
        if not whole or size not in SIZES:
            self.visit_store(s)
            return
        name = f"llvm.nvvm.cp.async.{'cg' if size == 16 else 'ca'}.shared.global.{size}"
        self.f.declare(f"declare void @{name}(ptr addrspace(3) noalias, ptr addrspace(1) noalias)")
        step = size // DTYPES[dtype].bytes
        for first in range(0, n, step):
            at = [Linear(form.const + first, form.terms) for form in forms]
            there, here = (self.f.pointer(p.pointer, dtype, x) for p, x in zip((source, target), at, strict=True))
            near = self.f.let(f"addrspacecast ptr {here} to ptr addrspace(3)")
            far = self.f.let(f"addrspacecast ptr {there} to ptr addrspace(1)")
            self.f.line(f"call void @{name}(ptr addrspace(3) {near}, ptr addrspace(1) {far})")
        self.w.forget(s.buffer)

    def visit_prefetch(self, s: Prefetch) -> None:
        """Threads of other warps run while one waits for memory; nothing is prefetched."""

    def visit_alloc(self, s: Alloc) -> None:
        """An array in shared memory, or one of the thread, in registers where all indices are numbers."""
        buffer, count = s.buffer, _count(s.buffer)
        if count * DTYPES[buffer.dtype].bytes > _LOCAL:
            raise BuildError(f"{self.g.module.name}: '{buffer.name}' has {count} elements, too many for one thread")
        if buffer.scope == SHARED:
            pointer, align = self.g.memory.pointer(buffer), self.g.memory.align(buffer)
        else:
            pointer, align = self.f.alloca(f"[{count} x {TYPES[buffer.dtype]}]", _SHARED_ALIGN), _SHARED_ALIGN
        self.w.put(BufferPlace(buffer, pointer, align))
        self.visit(s.body)


def _count(buffer: Buffer) -> int:
    return prod(value_of(e) or 0 for e in buffer.shape)
