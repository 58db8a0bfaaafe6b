"""What kernels for NVIDIA GPUs share, wherever they run: artifacts of PTX, and calls on copies of arrays."""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from searchlab.backend import Allocate, Array, Arrays, Artifact, Kernel, Runs
from searchlab.cuda.kernel_use import KernelUse, use_notes
from searchlab.cuda.ptx_module import PtxKernel
from searchlab.dtype import DTYPES
from searchlab.errors import KernelError
from searchlab.ir.program import Layout
from searchlab.ir.stmt import Buffer
from searchlab.runtime.kernel import pack
from searchlab.runtime.memory import aligned
from searchlab.targets import CudaTarget


@dataclass(frozen=True)
class CudaArtifact(Artifact):
    """The PTX of a program's kernels; `scratch` are the buffers that they pass to each other.

    `uses` are what each kernel needs of a multiprocessor, once an assembler has been asked.
    """

    target: CudaTarget
    kernels: tuple[PtxKernel, ...]
    scratch: tuple[Buffer, ...]
    uses: tuple[KernelUse, ...] = ()

    @property
    def size(self) -> int:
        """Characters of PTX."""
        return sum(len(k.text) for k in self.kernels)


class PreparedCall:
    """A kernel with its data: a call runs it and copies the results back, `timed` runs it by the device's clock."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def __call__(self) -> None:
        self._runs()
        self._runs.read_back()

    def timed(self, count: int) -> float | None:
        """The seconds of some runs without copies; None if only the caller can tell."""
        return self._runs(count)


class CudaKernel(Kernel):
    """PTX that is run on copies of the arrays, by a device or by the emulator."""

    def __init__(self, artifact: CudaArtifact) -> None:
        self.artifact: CudaArtifact = artifact
        self._constants: dict[str, Array] = {}
        self._layouts: dict[str, Layout] = {la.buffer: la for la in artifact.layouts}

    def notes(self) -> dict[str, str]:
        """What the assembler says of the kernels."""
        return use_notes(self.artifact.uses)

    @abstractmethod
    def runs(self, inputs: Arrays, outputs: Arrays) -> Runs:
        """Runs on copies of these inputs, which have the layouts of the schedule."""

    def bind(self, **constants: Any) -> Self:
        """The kernel with constant inputs fixed: they are packed now, and left out of later calls."""
        known = [b.name for b in self.artifact.inputs]
        for name in constants:
            if name not in known:
                raise KernelError(f"{self.artifact.name} has no input '{name}'; inputs: {', '.join(known)}")
        packed = {name: self._accepted(name, x) for name, x in constants.items()}
        bound = copy(self)
        bound._constants = self._constants | packed
        return bound

    def prepare(self, *arrays: Any, out: Any = None) -> tuple[PreparedCall, tuple[Array, ...]]:
        """A function that runs the kernel on copies of the inputs, made now, and copies the outputs back."""
        a = self.artifact
        given = [b.name for b in a.inputs if b.name not in self._constants]
        if len(arrays) != len(given):
            raise KernelError(f"{a.name} takes {len(given)} inputs ({', '.join(given)}), got {len(arrays)}")
        outputs = self._outputs(out)
        named = {b.name: y for b, y in zip(a.outputs, outputs, strict=True)}
        inputs = {name: np.asarray(x) for name, x in zip(given, arrays, strict=True)}
        return PreparedCall(self.ready(inputs, self._constants, named, _no_memory)), outputs

    def pack(self, inputs: Arrays) -> dict[str, Array]:
        """Inputs in the layouts chosen by the schedule."""
        return {name: self._accepted(name, inputs[name]) for name in self._layouts}

    def ready(self, inputs: Arrays, packed: Arrays, outputs: Arrays, allocate: Allocate) -> Runs:
        """Runs on copies of these arrays; scratch memory is where the kernels run."""
        there = {name: self._accepted(name, x) for name, x in inputs.items() if name not in packed} | dict(packed)
        return self.runs(there, outputs)

    def _accepted(self, name: str, x: Any) -> Array:
        layout, buffer, array = self._layouts.get(name), self.program.buffers[name], np.asarray(x)
        _check(self.artifact.name, array, buffer if layout is None else layout.original)
        return array if layout is None else pack(layout, buffer, array)

    def _outputs(self, out: Any) -> tuple[Array, ...]:
        buffers = self.artifact.outputs
        if out is None:
            return tuple(aligned(shape_of(b), DTYPES[b.dtype].storage) for b in buffers)
        given = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        if len(given) != len(buffers):
            raise KernelError(f"{self.artifact.name} has {len(buffers)} outputs, `out` has {len(given)}")
        for b, y in zip(buffers, given, strict=True):
            _check(self.artifact.name, y, b)
        return given


def shape_of(buffer: Buffer) -> tuple[int, ...]:
    """The extents of a buffer."""
    return tuple(int(str(e)) for e in buffer.shape)


def size_of(buffer: Buffer) -> int:
    """The bytes of a buffer."""
    return int(np.prod(shape_of(buffer), dtype=np.int64)) * DTYPES[buffer.dtype].bytes


def bytes_of(array: Array) -> Array:
    """A copy of an array as bytes."""
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


def _check(name: str, array: Any, buffer: Buffer) -> None:
    storage = np.dtype(DTYPES[buffer.dtype].storage)
    if not isinstance(array, np.ndarray) or array.dtype != storage or array.shape != shape_of(buffer):
        given = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
        raise KernelError(f"{name}: '{buffer.name}' must be {storage}{list(shape_of(buffer))}, got {given}")


def _no_memory(size: int) -> tuple[int, object]:
    return 0, None
