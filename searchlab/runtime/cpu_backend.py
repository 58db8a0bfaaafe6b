"""The back end for CPUs: programs become LLVM IR, object code, and kernels that work in the memory of the process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from searchlab.backend import Artifact, Backend, Package
from searchlab.errors import BuildError
from searchlab.ir.program import Program
from searchlab.llvm import jit
from searchlab.llvm.module import generate
from searchlab.lower.passes import Lowered, lower
from searchlab.runtime.clock_probe import pulse
from searchlab.runtime.kernel import CpuArtifact, CpuKernel
from searchlab.runtime.runs import repeater
from searchlab.runtime.standalone.code import CpuStandalone
from searchlab.runtime.standalone.wasm import wasm_package
from searchlab.runtime.threadpool import parallel_for_address
from searchlab.targets import Target, cpu_of
from searchlab.targets.cpu import WASM

LLVM_IR, ASSEMBLY = "LLVM IR", "assembly"


class CpuBackend(Backend):
    """Builds and runs programs on CPUs."""

    forms = (LLVM_IR, ASSEMBLY)

    def lower(self, program: Program, target: Target) -> Lowered:
        """The plain loops that LLVM IR is generated from."""
        return lower(program, target)

    def build(self, program: Program, target: Target) -> CpuArtifact:
        """Object code of a program."""
        cpu = cpu_of(target)
        code = generate(lower(program, cpu), cpu)
        made = jit.compile_ir(code.ir, cpu)
        return CpuArtifact(program, cpu, made, code.entry, code.sizes, code.shared, code.private, code.parallel)

    def load(self, artifact: Artifact) -> CpuKernel:
        """The kernel of object code, in this process."""
        if not isinstance(artifact, CpuArtifact):
            raise BuildError(f"{artifact.name}: a {type(artifact).__name__} is not object code for a CPU")
        return CpuKernel(artifact)

    def require(self, target: Target) -> None:
        """Raises BuildError unless this CPU has every feature that code for `target` may use."""
        jit.check_runs_here(cpu_of(target))

    def sources(self) -> tuple[Path, ...]:
        """Lowering, LLVM IR and the runtime."""
        return tuple(Path(__file__).parents[1] / package for package in ("lower", "llvm", "runtime"))

    def versions(self) -> dict[str, str]:
        """Versions of LLVM, llvmlite and numpy."""
        from importlib import metadata  # slow to import, and few processes write records

        import llvmlite.binding

        made_by = {"llvm": ".".join(map(str, llvmlite.binding.llvm_version_info))}
        return made_by | {package: metadata.version(package) for package in ("llvmlite", "numpy")}

    def listing(self, program: Program, target: Target, form: str) -> str:
        """Optimised LLVM IR, or assembly."""
        cpu = cpu_of(target)
        show = {LLVM_IR: jit.optimized_ir, ASSEMBLY: jit.assembly}[form]
        return show(generate(lower(program, cpu), cpu).ir, cpu)

    def standalone(self, name: str, program: Program, target: Target) -> CpuStandalone:
        """Kernel, packing and thread pool as one module."""
        return CpuStandalone(name, program, cpu_of(target))

    def package(self, name: str, program: Program, target: Target, title: str) -> Package | None:
        """WebAssembly is a module with a page; other code is a C library."""
        cpu = cpu_of(target)
        return wasm_package(CpuStandalone(name, program, cpu), title) if cpu.arch == WASM else None

    def open_standalone(self, code: bytes, target: Target) -> jit.LoadedObject:
        """The object file of an export, linked against this process."""
        return jit.LoadedObject(code, cpu_of(target))

    # --- timing -------------------------------------------------------------------------------------------------------

    def warm_up(self, target: Target) -> None:
        """Loads the loop over runs, the clock probe and the thread pool; its threads start in the children."""
        repeater(), pulse()
        if target.threads > 1:
            parallel_for_address(1)

    def clock_probe(self) -> Callable[[], float]:
        """The time of a short computation: cores are slower while their neighbours are busy."""
        return pulse()

    def evictor(self, target: Target) -> Callable[[], None]:
        """A function that evicts all earlier data from the caches."""
        cpu = cpu_of(target)
        # the cache sizes of a target are per core
        size = min(max(4 * cpu.l3 * cpu.cores, 32 << 20), 256 << 20)
        memory = np.ones(size // 8, np.int64)

        def evict() -> None:
            np.add(memory, 1, out=memory)

        return evict
