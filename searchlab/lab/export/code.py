"""Code: a program with all that it needs to run without searchlab, as one LLVM module."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property

from searchlab.errors import ExportError
from searchlab.ir.evaluate import evaluate
from searchlab.ir.program import Buffer, Layout, Program
from searchlab.lab.export.entries import KERNEL, PACK, POOL, entry_points, packing_entry, pool_setup
from searchlab.lab.export.modules import joined, owned
from searchlab.lab.export.packing import packing
from searchlab.llvm import abi, jit
from searchlab.llvm.module import KernelCode as Generated
from searchlab.llvm.module import generate
from searchlab.lower.passes import lower
from searchlab.runtime import threadpool
from searchlab.targets import CpuTarget

_LONGEST = 64


def identifier(text: str) -> str:
    """A text as a name of C, a file or a folder: `matmul(m=64, n=64)` is `matmul_m64_n64`."""
    found = re.sub(r"[^0-9A-Za-z]+", "_", text.replace("=", "")).strip("_") or "kernel"
    if len(found) > _LONGEST:
        found = f"{found[: _LONGEST - 9].rstrip('_')}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return f"k_{found}" if found[0].isdigit() else found


@dataclass(frozen=True)
class Argument:
    """An array of the exported function; `packed` is the shape in which the kernel takes it, if that is another."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    packed: tuple[int, ...] | None = None


@dataclass(frozen=True)
class ExportCode:
    """A program for a target as a function `name` of C."""

    name: str
    program: Program
    target: CpuTarget

    def __post_init__(self) -> None:
        if sizes := self.program.sizes:
            raise ExportError(f"{self.program.name} has sizes known only at run time ({', '.join(sizes)}): fix them")
        if not re.fullmatch(r"[A-Za-z_]\w*", self.name, re.ASCII):
            raise ExportError(f"'{self.name}' is not a C identifier: use letters, digits and underscores")

    @cached_property
    def inputs(self) -> tuple[Argument, ...]:
        """The arrays it reads, in order."""
        packed = {la.buffer: la for la in self.program.layouts}
        return tuple(self._argument(n, packed.get(n)) for n in self.program.inputs)

    @cached_property
    def outputs(self) -> tuple[Argument, ...]:
        """The arrays it writes, after the inputs."""
        return tuple(self._argument(n, None) for n in self.program.outputs)

    def _argument(self, name: str, layout: Layout | None) -> Argument:
        buffer = self.program.buffers[name]
        if layout is None:
            return Argument(name, buffer.dtype, _shape(buffer))
        return Argument(name, buffer.dtype, _shape(layout.original), _shape(buffer))

    @cached_property
    def parallel(self) -> bool:
        """Whether it has loops for several threads."""
        return self._kernel.parallel

    @property
    def threads(self) -> int:
        """How many threads it uses unless told otherwise."""
        return self.target.threads if self.parallel else 1

    @cached_property
    def scratch(self) -> tuple[int, int]:
        """Bytes of scratch memory: what all threads share, and what each of them has."""
        layout = abi.ScratchLayout.of(self._kernel.shared, self._kernel.private)
        return layout.shared, layout.stride

    @cached_property
    def ir(self) -> str:
        """The module, before LLVM has optimised it."""
        shared, stride = self.scratch
        count = len(self.inputs) + len(self.outputs)
        parts = [
            owned(self._kernel.ir, KERNEL),
            entry_points(self.name, count, shared, stride, self.threads, self.parallel),
        ]
        alone = self.target.with_threads(1)
        for layout in self.program.layouts:
            code = generate(lower(packing(layout, self.program.buffers[layout.buffer]), alone), alone)
            parts += [owned(code.ir, f"{PACK}.{layout.buffer}"), packing_entry(self.name, layout.buffer)]
        if self.parallel:
            parts.append(owned(threadpool.pool_ir(self.target), POOL))
            parts.append(pool_setup(self.name, threadpool.SPIN_SECONDS, "linux" in self.target.triple))
        return joined(parts)

    @cached_property
    def object(self) -> bytes:
        """The machine code, ready for a linker."""
        return jit.compile_ir(self.ir, self.target)

    @cached_property
    def optimized(self) -> str:
        """The module as LLVM turns it into machine code."""
        return jit.optimized_ir(self.ir, self.target)

    @cached_property
    def assembly(self) -> str:
        """The machine code as text."""
        return jit.assembly(self.ir, self.target)

    @cached_property
    def _kernel(self) -> Generated:
        return generate(lower(self.program, self.target), self.target)


def _shape(buffer: Buffer) -> tuple[int, ...]:
    return tuple(int(evaluate(e, {})) for e in buffer.shape)
