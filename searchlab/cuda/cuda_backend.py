"""The back end for NVIDIA GPUs: programs become PTX, which an emulator runs on this machine's CPU.

    kernel = compile(program, parse("cuda:arch=sm_80"))
    c = kernel(a, b)                    # by `ptx_machine`, which finds races and stray accesses on the way

No GPU is used, so times of these kernels are times of the emulator (`Backend.emulated`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from searchlab.backend import Allocate, Array, Arrays, Artifact, Backend, Kernel, Runs
from searchlab.cuda.ptx_machine import run_kernel
from searchlab.cuda.ptx_memory import TrackedMemory
from searchlab.cuda.ptx_module import PtxKernel, kernel_ir, ptx
from searchlab.cuda.ptx_text import PtxText, read_ptx
from searchlab.cuda.spmd import launches
from searchlab.dtype import DTYPES
from searchlab.errors import BuildError, KernelError
from searchlab.ir.program import Layout, Program
from searchlab.ir.stmt import Buffer
from searchlab.lower.passes import Lowered
from searchlab.runtime.kernel import pack
from searchlab.runtime.memory import aligned
from searchlab.targets import CudaTarget, Target

LLVM_IR, PTX = "LLVM IR", "PTX"


@dataclass(frozen=True)
class CudaArtifact(Artifact):
    """The PTX of a program's kernels; `scratch` are the buffers that they pass to each other."""

    target: CudaTarget
    kernels: tuple[PtxKernel, ...]
    scratch: tuple[Buffer, ...]

    @property
    def size(self) -> int:
        """Characters of PTX."""
        return sum(len(k.text) for k in self.kernels)


class EmulatedKernel(Kernel):
    """PTX that is run by the emulator, on copies of the arrays."""

    def __init__(self, artifact: CudaArtifact, constants: Arrays | None = None) -> None:
        self.artifact: CudaArtifact = artifact
        self._constants = dict(constants or {})
        self._layouts: dict[str, Layout] = {la.buffer: la for la in artifact.layouts}
        self._texts = [read_ptx(k.text) for k in artifact.kernels]

    def bind(self, **constants: Any) -> EmulatedKernel:
        """The kernel with constant inputs fixed: they are packed now, and left out of later calls."""
        known = [b.name for b in self.artifact.inputs]
        for name in constants:
            if name not in known:
                raise KernelError(f"{self.artifact.name} has no input '{name}'; inputs: {', '.join(known)}")
        packed = {name: self._accepted(name, x) for name, x in constants.items()}
        return EmulatedKernel(self.artifact, self._constants | packed)

    def prepare(self, *arrays: Any, out: Any = None) -> tuple[Callable[[], None], tuple[Array, ...]]:
        """A function that copies inputs to the emulated device, runs the kernel and copies the outputs back."""
        a = self.artifact
        given = [b.name for b in a.inputs if b.name not in self._constants]
        if len(arrays) != len(given):
            raise KernelError(f"{a.name} takes {len(given)} inputs ({', '.join(given)}), got {len(arrays)}")
        outputs = self._outputs(out)
        named = {b.name: y for b, y in zip(a.outputs, outputs, strict=True)}
        inputs = {name: np.asarray(x) for name, x in zip(given, arrays, strict=True)}
        runs = self.ready(inputs, self._constants, named, _no_memory)

        def run() -> None:
            runs()
            runs.read_back()

        return run, outputs

    def pack(self, inputs: Arrays) -> dict[str, Array]:
        """Inputs in the layouts chosen by the schedule."""
        return {name: self._accepted(name, inputs[name]) for name in self._layouts}

    def ready(self, inputs: Arrays, packed: Arrays, outputs: Arrays, allocate: Allocate) -> EmulatedRuns:
        """Runs on copies of these arrays."""
        there = {name: self._accepted(name, x) for name, x in inputs.items() if name not in packed} | dict(packed)
        return EmulatedRuns(self.artifact, self._texts, there, outputs)

    def _accepted(self, name: str, x: Any) -> Array:
        layout, buffer, array = self._layouts.get(name), self.program.buffers[name], np.asarray(x)
        _check(self.artifact.name, array, buffer if layout is None else layout.original)
        return array if layout is None else pack(layout, buffer, array)

    def _outputs(self, out: Any) -> tuple[Array, ...]:
        buffers = self.artifact.outputs
        if out is None:
            return tuple(aligned(_shape(b), DTYPES[b.dtype].storage) for b in buffers)
        given = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        if len(given) != len(buffers):
            raise KernelError(f"{self.artifact.name} has {len(buffers)} outputs, `out` has {len(given)}")
        for b, y in zip(buffers, given, strict=True):
            _check(self.artifact.name, y, b)
        return given


class EmulatedRuns(Runs):
    """Kernels with their data on the emulated device."""

    def __init__(self, artifact: CudaArtifact, texts: list[PtxText], inputs: Arrays, outputs: Arrays) -> None:
        self._artifact, self._texts, self._outputs = artifact, texts, outputs
        self._inputs = {name: _bytes(x) for name, x in inputs.items()}
        self._results: dict[str, Array] = {}

    def __call__(self, count: int = 1) -> None:
        """Runs all kernels, in their order; what one has written others may read."""
        for _ in range(count):
            self._results = self._run()

    def _run(self) -> dict[str, Array]:
        a = self._artifact
        arrays = [TrackedMemory(b.name, self._inputs[b.name], written=True, writable=False) for b in a.inputs]
        made = [
            TrackedMemory(b.name, np.full(_size(b), 0xAB, np.uint8), written=False) for b in (*a.outputs, *a.scratch)
        ]
        for kernel, text in zip(a.kernels, self._texts, strict=True):
            for memory in made:
                memory.launch()
            run_kernel(text, kernel.grid, kernel.block, [*arrays, *made], kernel.dynamic)
        return {b.name: memory.data for b, memory in zip(a.outputs, made)}

    def read_back(self) -> None:
        """Copies the results to the arrays of the host."""
        for name, data in self._results.items():
            out = self._outputs[name]
            out[...] = data.view(out.dtype).reshape(out.shape)


class CudaBackend(Backend):
    """Builds programs for NVIDIA GPUs, and runs them in an emulator."""

    forms = (LLVM_IR, PTX)
    emulated = True

    def lower(self, program: Program, target: Target) -> Lowered:
        """What one thread of each kernel does, with barriers."""
        return launches(program, cuda_of(target)).lowered(program)

    def build(self, program: Program, target: Target) -> CudaArtifact:
        """The PTX of a program."""
        cuda = cuda_of(target)
        made = launches(program, cuda)
        return CudaArtifact(program, cuda, ptx(made, cuda), made.scratch)

    def load(self, artifact: Artifact) -> EmulatedKernel:
        """A kernel that the emulator runs."""
        if not isinstance(artifact, CudaArtifact):
            raise BuildError(f"{artifact.name}: a {type(artifact).__name__} is not PTX")
        return EmulatedKernel(artifact)

    def require(self, target: Target) -> None:
        """The emulator runs code for all architectures."""
        cuda_of(target)

    def sources(self) -> tuple[Path, ...]:
        """Lowering, LLVM IR and this package."""
        return tuple(Path(__file__).parents[1] / package for package in ("lower", "llvm", "cuda"))

    def versions(self) -> dict[str, str]:
        """Versions of LLVM and numpy."""
        import llvmlite.binding

        return {"llvm": ".".join(map(str, llvmlite.binding.llvm_version_info)), "numpy": np.__version__}

    def listing(self, program: Program, target: Target, form: str) -> str:
        """LLVM IR as it is written, or PTX."""
        cuda = cuda_of(target)
        made = launches(program, cuda)
        if form == PTX:
            return "\n".join(k.text for k in ptx(made, cuda))
        return "\n".join(kernel_ir(made, k, f"kernel{n}", cuda)[0] for n, k in enumerate(made.kernels))


def cuda_of(target: Target) -> CudaTarget:
    """The target as an NVIDIA GPU."""
    if not isinstance(target, CudaTarget):
        raise BuildError(f"{target.name} is a target of kind {target.kind!r}, not an NVIDIA GPU")
    return target


def _shape(buffer: Buffer) -> tuple[int, ...]:
    return tuple(int(str(e)) for e in buffer.shape)


def _size(buffer: Buffer) -> int:
    return int(np.prod(_shape(buffer), dtype=np.int64)) * DTYPES[buffer.dtype].bytes


def _bytes(array: Array) -> Array:
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


def _check(name: str, array: Any, buffer: Buffer) -> None:
    storage = np.dtype(DTYPES[buffer.dtype].storage)
    if not isinstance(array, np.ndarray) or array.dtype != storage or array.shape != _shape(buffer):
        given = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
        raise KernelError(f"{name}: '{buffer.name}' must be {storage}{list(_shape(buffer))}, got {given}")


def _no_memory(size: int) -> tuple[int, object]:
    return 0, None
