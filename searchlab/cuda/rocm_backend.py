"""The back end for GPUs of AMD: programs become assembly, from which their use of registers and memory is read.

Kernels are those for NVIDIA's GPUs up to LLVM IR; there, what is special to a vendor has another name.  Nothing runs
them: code for these targets cannot be loaded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from searchlab.backend import Artifact, Backend, Kernel
from searchlab.cuda.kernel_use import KernelUse, checked_use
from searchlab.cuda.ptx_module import PIPELINE, PtxKernel, kernel_ir
from searchlab.cuda.spmd import launches
from searchlab.errors import BuildError
from searchlab.ir.program import Program
from searchlab.llvm import jit
from searchlab.lower.passes import Lowered
from searchlab.targets import Target
from searchlab.targets.rocm import RocmTarget

LLVM_IR, ASSEMBLY = "LLVM IR", "assembly"
_BARRIER = "@llvm.nvvm.barrier.cta.sync.aligned.all"
_RENAMED = (
    ("define ptx_kernel ", "define amdgpu_kernel "),
    ("@llvm.nvvm.read.ptx.sreg.tid.", "@llvm.amdgcn.workitem.id."),
    ("@llvm.nvvm.read.ptx.sreg.ctaid.", "@llvm.amdgcn.workgroup.id."),
    (f"declare void {_BARRIER}(i32)", "declare void @llvm.amdgcn.s.barrier()"),
    # what was written before a barrier is visible to the whole block after it
    (
        f"call void {_BARRIER}(i32 0)",
        'fence syncscope("workgroup") release\n'
        "  call void @llvm.amdgcn.s.barrier()\n"
        '  fence syncscope("workgroup") acquire',
    ),
)
_COUNTS = {"registers": "vgpr_count", "spills": "vgpr_spill_count", "scratch": "private_segment_fixed_size"}


@dataclass(frozen=True)
class RocmArtifact(Artifact):
    """The assembly of a program's kernels, and what each of them uses."""

    target: RocmTarget
    kernels: tuple[PtxKernel, ...]
    uses: tuple[KernelUse, ...]

    @property
    def size(self) -> int:
        """Characters of assembly."""
        return sum(len(k.text) for k in self.kernels)


class RocmBackend(Backend):
    """Assembles programs for GPUs of AMD."""

    forms = (LLVM_IR, ASSEMBLY)

    def lower(self, program: Program, target: Target) -> Lowered:
        """What one thread of each kernel does, with barriers."""
        return launches(program, rocm_of(target)).lowered(program)

    def build(self, program: Program, target: Target) -> RocmArtifact:
        """The assembly of a program, with its use of registers and memory; ConstraintError if it cannot run."""
        rocm = rocm_of(target)
        made = launches(program, rocm)
        kernels = []
        for n, kernel in enumerate(made.kernels):
            ir, shared = kernel_ir(made, kernel, f"kernel{n}", rocm)
            text = jit.assembly(amd_ir(ir), rocm, level=3, pipeline=PIPELINE)
            kernels.append(PtxKernel(f"kernel{n}", text, kernel.grid, kernel.block, shared))
        return RocmArtifact(program, rocm, tuple(kernels), tuple(_use(k, rocm) for k in kernels))

    def load(self, artifact: Artifact) -> Kernel:
        """Refused: there is no emulator and no driver for such code."""
        raise BuildError(f"{artifact.name}: code for {artifact.target.name} can be read here, but not run")

    def require(self, target: Target) -> None:
        """Refused, as no machine runs such code here."""
        raise BuildError(f"code for {target.name} can be read here, but not run; targets that run: native, cuda")

    def sources(self) -> tuple[Path, ...]:
        """Lowering, LLVM IR and this package."""
        return tuple(Path(__file__).parents[1] / package for package in ("lower", "llvm", "cuda"))

    def listing(self, program: Program, target: Target, form: str) -> str:
        """LLVM IR as it is written, or assembly with its counts at the end."""
        rocm = rocm_of(target)
        if form == ASSEMBLY:
            return "\n".join(k.text for k in self.build(program, target).kernels)
        made = launches(program, rocm)
        return "\n".join(amd_ir(kernel_ir(made, k, f"kernel{n}", rocm)[0]) for n, k in enumerate(made.kernels))


def rocm_of(target: Target) -> RocmTarget:
    """The target as a GPU of AMD."""
    if not isinstance(target, RocmTarget):
        raise BuildError(f"{target.name} is a target of kind {target.kind!r}, not a GPU of AMD")
    return target


def amd_ir(ir: str) -> str:
    """LLVM IR of a kernel for NVIDIA's GPUs as one for AMD's."""
    for theirs, ours in _RENAMED:
        ir = ir.replace(theirs, ours)
    ir = re.sub(r'"nvvm.maxntid"="(\d+)"', r'"amdgpu-flat-work-group-size"="1,\1"', ir)
    # arrays of a thread have addresses of their own kind
    stack = r"\1.own = alloca \2, addrspace(5)\n  \1 = addrspacecast ptr addrspace(5) \1.own to ptr"
    ir = re.sub(r"(%\w+) = alloca (.*)", stack, ir)
    if left := re.search(r"@(llvm\.nvvm\.[\w.]+)", ir):
        raise BuildError(f"{left[1]} is an instruction of NVIDIA's GPUs; choose a schedule without it")
    return ir


def _use(kernel: PtxKernel, target: RocmTarget) -> KernelUse:
    counts = {name: _count(kernel.text, key) for name, key in _COUNTS.items()}
    shared = _count(kernel.text, "group_segment_fixed_size")
    if shared != kernel.shared and not kernel.dynamic:
        raise BuildError(f"{kernel.entry}: the assembly has {shared} bytes of LDS, expected {kernel.shared}")
    return checked_use(kernel, target, counts["registers"], counts["spills"])


def _count(text: str, key: str) -> int:
    found = re.search(rf"\.{key}:\s*(\d+)", text)
    if found is None:
        raise BuildError(f"the assembly tells no {key}")
    return int(found[1])
