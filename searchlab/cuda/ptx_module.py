"""Kernels as LLVM IR for NVPTX, and as PTX text.

Pointers are generic in the IR that is written; LLVM finds out which memory they point to, so that all statements and
values are written by the code that writes them for CPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from searchlab.cuda.spmd import SHARED, GridKernel, Launches
from searchlab.dtype import DTYPES
from searchlab.errors import BuildError
from searchlab.ir.expr import value_of
from searchlab.ir.loopkind import BLOCKS, THREADS
from searchlab.ir.stmt import Alloc, Barrier, Buffer, Loop, Prefetch
from searchlab.llvm import jit
from searchlab.llvm.module import BodyWriter, Generation
from searchlab.llvm.ssa import TYPES, Function, Known, Linear
from searchlab.llvm.values import BufferPlace
from searchlab.targets import CudaTarget
from searchlab.targets.cuda import STATIC_SHARED

ALIGN = 256  # of memory on the device
_LOCAL = 512 << 10  # bytes that a thread can have
_SHARED_ALIGN = 16
# LLVM finds common subexpressions and promotes local arrays that code generation has left
PIPELINE = ("sroa", "instcombine", "simplifycfg")
_REGISTERS = {axis: f"{'ctaid' if axis in BLOCKS else 'tid'}.{axis.value[-1]}" for axis in (*BLOCKS, *THREADS)}


@dataclass(frozen=True)
class PtxKernel:
    """The PTX of one launch; `shared` are bytes of a block's shared memory."""

    entry: str
    text: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int


class _KernelFunction(Function):
    """A function that the host launches."""

    linkage = "ptx_kernel"


def kernel_ir(made: Launches, kernel: GridKernel, entry: str, target: CudaTarget) -> tuple[str, int]:
    """The LLVM IR of one kernel, and the bytes of shared memory that it declares."""
    g = _KernelGeneration(kernel.name, target)
    buffers = (*made.parameters, *made.scratch)
    names = [f"%b{n}" for n in range(len(buffers))]
    function = _KernelFunction(entry, [f"ptr noalias nonnull align {ALIGN} {n}" for n in names], g.module)
    places = {b.name: BufferPlace(b, n, ALIGN) for b, n in zip(buffers, names, strict=True)}
    KernelWriter(g, function, places, inside=True).visit(kernel.body)
    if g.used > STATIC_SHARED:
        raise BuildError(f"{kernel.name}: {g.used} bytes of shared memory; a kernel can declare {STATIC_SHARED}")
    g.module.functions.append(function.text())
    text = g.module.text().replace('"prefer-vector-width"="512"', f'"nvvm.maxntid"="{prod(kernel.block)}"')
    return "\n".join([*g.arrays, text]), g.used


def ptx(made: Launches, target: CudaTarget) -> tuple[PtxKernel, ...]:
    """The PTX of all kernels of a program."""
    found = []
    for n, kernel in enumerate(made.kernels):
        entry = f"kernel{n}"
        ir, shared = kernel_ir(made, kernel, entry, target)
        text = jit.assembly(ir, target, level=3, pipeline=PIPELINE)
        found.append(PtxKernel(entry, text, kernel.grid, kernel.block, shared))
    return tuple(found)


class _KernelGeneration(Generation):
    """A module with the arrays that its kernel has in shared memory."""

    def __init__(self, name: str, target: CudaTarget) -> None:
        super().__init__(name, target)
        self.arrays: list[str] = []
        self.used = 0

    def array(self, buffer: Buffer, count: int) -> str:
        """A pointer to an array in shared memory."""
        name = f"@shared{len(self.arrays)}"
        type_ = f"[{count} x {TYPES[buffer.dtype]}]"
        self.arrays.append(f"{name} = internal addrspace(3) global {type_} poison, align {_SHARED_ALIGN}")
        self.used = -(-self.used // _SHARED_ALIGN) * _SHARED_ALIGN + count * DTYPES[buffer.dtype].bytes
        return f"addrspacecast (ptr addrspace(3) {name} to ptr)"


class KernelWriter(BodyWriter):
    """Writes what one thread does."""

    g: _KernelGeneration

    def visit_loop(self, s: Loop) -> None:
        """The axes of blocks and threads are registers, everything else is a loop."""
        if s.kind not in _REGISTERS:
            super().visit_loop(s)
            return
        name = f"llvm.nvvm.read.ptx.sreg.{_REGISTERS[s.kind]}"
        self.f.declare(f"declare i32 @{name}()")
        narrow = self.f.hoist(f"call i32 @{name}()")
        self.f.env[s.var] = Linear(0, ((self.f.hoist(f"zext nneg i32 {narrow} to i64", narrow), 1),))
        self.visit(s.body)

    def visit_barrier(self, s: Barrier) -> None:
        """All threads of the block wait for each other; what was loaded before may have changed."""
        self.f.declare("declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32) convergent nounwind")
        self.f.line("call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)")
        self.f.known = Known()

    def visit_prefetch(self, s: Prefetch) -> None:
        """Threads of other warps run while one waits for memory; nothing is prefetched."""

    def visit_alloc(self, s: Alloc) -> None:
        """An array in shared memory, or one of the thread, in registers where all indices are numbers."""
        buffer, count = s.buffer, prod(value_of(e) or 0 for e in s.buffer.shape)
        if count * DTYPES[buffer.dtype].bytes > _LOCAL:
            raise BuildError(f"{self.g.module.name}: '{buffer.name}' has {count} elements, too many for one thread")
        if buffer.scope == SHARED:
            pointer, align = self.g.array(buffer, count), _SHARED_ALIGN
        else:
            pointer, align = self.f.alloca(f"[{count} x {TYPES[buffer.dtype]}]", _SHARED_ALIGN), _SHARED_ALIGN
        self.w.put(BufferPlace(buffer, pointer, align))
        self.visit(s.body)
