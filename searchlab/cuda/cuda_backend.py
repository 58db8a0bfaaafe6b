"""The back end for NVIDIA GPUs: programs become PTX, which a device runs, or an emulator on this machine's CPU.

    kernel = compile(program, parse("cuda:arch=sm_80"))
    c = kernel(a, b)

Without a GPU kernels run in `ptx_machine`, which finds races and stray accesses on the way; times of such kernels are
times of the emulator (`Backend.emulated`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from searchlab.backend import Array, Arrays, Artifact, Backend, Package, Runs
from searchlab.cuda.cuda_kernel import CudaArtifact, CudaKernel, bytes_of, size_of
from searchlab.cuda.cuda_package import cuda_package
from searchlab.cuda.kernel_use import assembled_use
from searchlab.cuda.ptx_machine import run_kernel
from searchlab.cuda.ptx_memory import TrackedMemory
from searchlab.cuda.ptx_module import kernel_ir, ptx
from searchlab.cuda.ptx_text import PtxText, read_ptx
from searchlab.cuda.spmd import launches
from searchlab.errors import BuildError
from searchlab.ir.program import Program
from searchlab.lower.passes import Lowered
from searchlab.targets import CudaTarget, Target
from searchlab.targets.cuda import capability
from searchlab.targets.cuda_devices import cuda_devices

LLVM_IR, PTX = "LLVM IR", "PTX"


class EmulatedKernel(CudaKernel):
    """PTX that is run by the emulator."""

    def __init__(self, artifact: CudaArtifact) -> None:
        super().__init__(artifact)
        self._texts = [read_ptx(k.text) for k in artifact.kernels]

    def runs(self, inputs: Arrays, outputs: Arrays) -> EmulatedRuns:
        """Runs on the emulated device."""
        return EmulatedRuns(self.artifact, self._texts, inputs, outputs)


class EmulatedRuns(Runs):
    """Kernels with their data on the emulated device."""

    def __init__(self, artifact: CudaArtifact, texts: list[PtxText], inputs: Arrays, outputs: Arrays) -> None:
        self._artifact, self._texts, self._outputs = artifact, texts, outputs
        self._inputs = {name: bytes_of(x) for name, x in inputs.items()}
        self._results: dict[str, Array] = {}

    def __call__(self, count: int = 1) -> None:
        """Runs all kernels, in their order; what one has written others may read."""
        for _ in range(count):
            self._results = self._run()

    def _run(self) -> dict[str, Array]:
        a = self._artifact
        arrays = [TrackedMemory(b.name, self._inputs[b.name], written=True, writable=False) for b in a.inputs]
        made = [
            TrackedMemory(b.name, np.full(size_of(b), 0xAB, np.uint8), written=False) for b in (*a.outputs, *a.scratch)
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
    """Builds programs for NVIDIA GPUs, and runs them on a device or in an emulator."""

    forms = (LLVM_IR, PTX)

    @property
    def emulated(self) -> bool:
        """Whether there is no device."""
        return not cuda_devices().found

    def lower(self, program: Program, target: Target) -> Lowered:
        """What one thread of each kernel does, with barriers."""
        return launches(program, cuda_of(target)).lowered(program)

    def build(self, program: Program, target: Target) -> CudaArtifact:
        """The PTX of a program."""
        cuda = cuda_of(target)
        made = launches(program, cuda)
        return CudaArtifact(program, cuda, ptx(made, cuda), made.scratch)

    def examined(self, artifact: Artifact) -> CudaArtifact:
        """The artifact with what ptxas says, where it is found; raises ConstraintError for what cannot run."""
        made = cuda_artifact(artifact)
        return replace(made, uses=tuple(assembled_use(k, made.target) for k in made.kernels))

    def load(self, artifact: Artifact) -> CudaKernel:
        """A kernel on the first device, or in the emulator."""
        made = cuda_artifact(artifact)
        if self.emulated:
            return EmulatedKernel(made)
        from searchlab.cuda.device_kernel import DeviceKernel
        from searchlab.cuda.driver import open_gpu

        return DeviceKernel(made, open_gpu())

    def require(self, target: Target) -> None:
        """Raises BuildError if the device is older than the code; the emulator runs code for all architectures."""
        wanted = capability(cuda_of(target).arch)
        for device in cuda_devices().found[:1]:
            if device.capability < wanted:
                older = f"{device.name} is sm_{device.capability}"
                raise BuildError(f"{target.name}: {older}, which cannot run code for sm_{wanted}; write target: cuda")

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

    def package(self, name: str, program: Program, target: Target, title: str) -> Package:
        """PTX, cubin, a launcher in C++, and what the Python loader needs."""
        return cuda_package(name, self.build(program, target), title)

    # --- timing -------------------------------------------------------------------------------------------------------

    def warm_up(self, target: Target) -> None:
        """Finds out about devices, so that forked processes need not; none is opened here."""
        cuda_devices()

    def open_device(self, target: Target) -> None:
        """Opens the device, which maps more memory than candidates may have."""
        if not self.emulated:
            from searchlab.cuda.driver import open_gpu

            open_gpu()

    @property
    def device_kind(self) -> str:
        """A GPU, if there is one."""
        return "" if self.emulated else "GPU"

    def evictor(self, target: Target) -> Callable[[], None]:
        """A function that overwrites the device's L2 cache; the emulator has none."""
        if self.emulated:
            return lambda: None
        from searchlab.cuda.device_kernel import flusher
        from searchlab.cuda.driver import open_gpu

        return flusher(open_gpu())


def cuda_artifact(artifact: Artifact) -> CudaArtifact:
    """The artifact as PTX."""
    if not isinstance(artifact, CudaArtifact):
        raise BuildError(f"{artifact.name}: a {type(artifact).__name__} is not PTX")
    return artifact


def cuda_of(target: Target) -> CudaTarget:
    """The target as an NVIDIA GPU."""
    if not isinstance(target, CudaTarget):
        raise BuildError(f"{target.name} is a target of kind {target.kind!r}, not an NVIDIA GPU")
    return target
