"""CpuStandalone: a program with everything it needs to run without searchlab, as one LLVM module."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from searchlab.backend import Standalone
from searchlab.llvm import abi, jit
from searchlab.llvm.module import KernelCode, generate
from searchlab.lower.passes import lower
from searchlab.runtime import threadpool
from searchlab.runtime.standalone.cpu_needs import cpu_needs
from searchlab.runtime.standalone.entries import KERNEL, PACK, POOL, at_loading, entry_points, packing_entry, pool_setup
from searchlab.runtime.standalone.modules import joined, owned
from searchlab.runtime.standalone.packing import packing
from searchlab.runtime.standalone.tile_permission import ENTRY, SETUP, TILES, TYPE, asking
from searchlab.targets import CpuTarget, detect


@dataclass(frozen=True)
class CpuStandalone(Standalone):
    """A program for a CPU as a C function `name`."""

    target: CpuTarget

    @property
    def architecture(self) -> str:
        """LLVM's name of the instruction set."""
        return self.target.arch

    @property
    def platform(self) -> str:
        """LLVM's triple."""
        return self.target.triple

    @property
    def needs(self) -> list[str]:
        """The vector extensions that the code may use, limited to those that Linux names in the same way."""
        return cpu_needs(self.target, tiles=bool(self.permission))

    @property
    def permission(self) -> str:
        """AMX tiles, if it uses them."""
        return TILES if TYPE in self._kernel.ir else ""

    @property
    def linkable(self) -> str:
        """Empty if this machine can link the object file, else the reason why not."""
        host = detect()
        if self.target.arch != host.arch:
            return f"code for {self.target.arch} is linked on such a machine, this one is {host.arch}"
        return ""

    @property
    def listings(self) -> dict[str, str]:
        """Optimised LLVM IR, and assembly."""
        return {"kernel.ll": self.optimized, "kernel.s": self.assembly}

    @cached_property
    def parallel(self) -> bool:
        """Whether it has parallel loops."""
        return self._kernel.parallel

    @property
    def threads(self) -> int:
        """The default number of threads."""
        return self.target.threads if self.parallel else 1

    @cached_property
    def scratch(self) -> tuple[int, int]:
        """Bytes of scratch memory: shared by all threads, and private to each."""
        layout = abi.ScratchLayout.of(self._kernel.shared, self._kernel.private)
        return layout.shared, layout.stride

    @cached_property
    def ir(self) -> str:
        """The module before optimisation by LLVM."""
        shared, stride = self.scratch
        count = len(self.inputs) + len(self.outputs)
        asks = self.permission and "linux" in self.target.triple
        entry = ENTRY if asks else ""
        parts = [
            owned(self._kernel.ir, KERNEL),
            entry_points(self.name, count, shared, stride, self.threads, self.parallel, entry),
        ]
        alone = self.target.with_threads(1)
        for layout in self.program.layouts:
            code = generate(lower(packing(layout, self.program.buffers[layout.buffer]), alone), alone)
            parts += [owned(code.ir, f"{PACK}.{layout.buffer}"), packing_entry(self.name, layout.buffer)]
        if self.parallel:
            parts.append(owned(threadpool.pool_ir(self.target), POOL))
            parts.append(pool_setup(self.name, threadpool.SPIN_SECONDS, "linux" in self.target.triple))
        if asks:
            parts.append(asking(self.name, count))
        first = [*([SETUP] if asks else []), *([f"{self.name}_setup"] if self.parallel else [])]
        return joined([*parts, *([at_loading(first)] if first else [])])

    @cached_property
    def object(self) -> bytes:
        """The machine code, ready for a linker."""
        return jit.compile_ir(self.ir, self.target)

    @cached_property
    def optimized(self) -> str:
        """The module after optimisation by LLVM."""
        return jit.optimized_ir(self.ir, self.target)

    @cached_property
    def assembly(self) -> str:
        """The machine code as text."""
        return jit.assembly(self.ir, self.target)

    @cached_property
    def _kernel(self) -> KernelCode:
        return generate(lower(self.program, self.target), self.target)
