"""Kernels on a device: data is copied there with margins around it, and times are those of the device's events."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from searchlab.backend import Arrays, Runs
from searchlab.cuda.cuda_kernel import CudaArtifact, CudaKernel, bytes_of, size_of
from searchlab.cuda.driver import Bytes, Gpu, GpuFunction
from searchlab.cuda.kernel_use import checked_use, use_notes
from searchlab.cuda.nvml import gpu_state
from searchlab.errors import KernelError

_MARGIN = 256  # bytes before and after an array, which keeps its alignment
_MARK = 0xA5
_UNWRITTEN = 0xFF  # NaN as a float
_LEAST_L2 = 32 << 20


class DeviceKernel(CudaKernel):
    """PTX that is loaded by the driver of a device."""

    def __init__(self, artifact: CudaArtifact, gpu: Gpu) -> None:
        super().__init__(artifact)
        self._gpu = gpu
        self._functions = [gpu.load(k.text.encode(), k.entry, k.dynamic) for k in artifact.kernels]

    def notes(self) -> dict[str, str]:
        """What the driver's compiler made of the kernels, and the state of the device."""
        a = self.artifact
        uses = [
            checked_use(k, a.target, f.registers, f.local_bytes)
            for k, f in zip(a.kernels, self._functions, strict=True)
        ]
        return {**use_notes(uses), "device": self._gpu.name, **gpu_state(self._gpu.bus_id)}

    def runs(self, inputs: Arrays, outputs: Arrays) -> GpuRuns:
        """Runs on copies of the arrays on the device."""
        return GpuRuns(self._gpu, self.artifact, self._functions, inputs, outputs)


class GpuRuns(Runs):
    """Kernels with their data on the device."""

    def __init__(
        self, gpu: Gpu, artifact: CudaArtifact, functions: list[GpuFunction], inputs: Arrays, outputs: Arrays
    ) -> None:
        self._gpu, self._name, self._outputs = gpu, artifact.name, outputs
        self._given = {b.name: bytes_of(inputs[b.name]) for b in artifact.inputs}
        arrays = (*artifact.inputs, *artifact.outputs, *artifact.scratch)
        self._places: dict[str, _Place] = {}
        weakref.finalize(self, _free, gpu, self._places)  # also if an allocation fails
        for b in arrays:
            self._places[b.name] = _Place(gpu, size_of(b), self._given.get(b.name))
        addresses = [self._places[b.name].address for b in arrays]
        self._launches = [
            gpu.launcher(f, k.grid, k.block, addresses, k.dynamic)
            for f, k in zip(functions, artifact.kernels, strict=True)
        ]

    def __call__(self, count: int = 1) -> float:
        """Runs all kernels in their order; returns their seconds on the device."""
        return self._gpu.timed(self._run, count)

    def _run(self) -> None:
        for launch in self._launches:
            launch()

    def read_back(self) -> None:
        """Copies the results to the host; raises KernelError if kernels wrote anywhere else."""
        for name, place in self._places.items():
            if place.damaged():
                raise KernelError(f"{self._name}: writes beyond the ends of '{name}' on the device")
        for name, data in self._given.items():
            if not np.array_equal(self._places[name].contents(), data):
                raise KernelError(f"{self._name}: changes its input '{name}' on the device")
        for name, out in self._outputs.items():
            out[...] = self._places[name].contents().view(out.dtype).reshape(out.shape)


class _Place:
    """An array on the device between two margins."""

    def __init__(self, gpu: Gpu, size: int, data: Bytes | None) -> None:
        self._gpu, self._size = gpu, size
        self.base = gpu.allocate(size + 2 * _MARGIN)
        self.address = self.base + _MARGIN
        for margin in self._margins:
            gpu.fill(margin, _MARK, _MARGIN)
        if data is None:
            gpu.fill(self.address, _UNWRITTEN, size)
        else:
            gpu.write(self.address, data)

    @property
    def _margins(self) -> tuple[int, int]:
        return self.base, self.address + self._size

    def contents(self) -> Bytes:
        """The bytes of the array."""
        return self._read(self.address, self._size)

    def damaged(self) -> bool:
        """Whether a margin has been written to."""
        return any((self._read(margin, _MARGIN) != _MARK).any() for margin in self._margins)

    def _read(self, address: int, size: int) -> Bytes:
        data = np.empty(size, np.uint8)
        self._gpu.read(address, data)
        return data


def _free(gpu: Gpu, places: dict[str, _Place]) -> None:
    with suppress(KernelError):  # after an error of a kernel the device refuses this as well
        for place in places.values():
            gpu.free(place.base)


def flusher(gpu: Gpu) -> Callable[[], None]:
    """A function that overwrites memory of twice the size of the L2 cache."""
    size = max(2 * gpu.attribute("L2_CACHE_SIZE"), _LEAST_L2)
    address = gpu.allocate(size)
    return lambda: gpu.fill(address, 0, size)
