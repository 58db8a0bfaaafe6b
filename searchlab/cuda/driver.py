"""GPUs of this machine: the few things that kernels need of a driver, and the choice between packages that offer them.

    gpu = open_gpu()                                  # the first device that CUDA_VISIBLE_DEVICES leaves
    launch = gpu.launcher(gpu.load(ptx, "kernel0"), grid, block, addresses)
    seconds = gpu.timed(launch, 10)                   # between two events of the device

The packages are pycuda and cuda-bindings, in this order; SEARCHLAB_CUDA names one of them, or `emulator` for none.
Opening a device starts threads and maps its memory, after which a process must not fork: only processes that run
kernels open one, and others ask `searchlab.targets` what there is.
"""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from searchlab.errors import BuildError, KernelError
from searchlab.named import Named
from searchlab.targets.cuda_devices import CHOICE, LIMITS, chosen

Bytes = npt.NDArray[np.uint8]
Shape = tuple[int, int, int]
Launch = Callable[[], None]
_CLASSES = {
    "pycuda": "searchlab.cuda.pycuda_driver:PycudaGpu",
    "cuda-bindings": "searchlab.cuda.bindings_driver:BindingsGpu",
}


class GpuError(KernelError):
    """What the driver reports.  After most errors of kernels the device refuses everything else to this process."""


class GpuFunction(ABC):
    """A kernel that is loaded: what the driver says about its machine code."""

    @property
    @abstractmethod
    def registers(self) -> int:
        """Registers of a thread."""

    @property
    @abstractmethod
    def local_bytes(self) -> int:
        """Bytes of a thread in memory: what was spilled, and arrays that do not fit into registers."""

    @property
    @abstractmethod
    def shared_bytes(self) -> int:
        """Bytes of shared memory that the code declares."""


class Gpu(ABC):
    """One device, open in this process; work is done in order, and most calls return before it is done."""

    package: ClassVar[str]
    name: str
    bus_id: str

    @classmethod
    @abstractmethod
    def count(cls) -> int:
        """The number of devices; raises GpuError if there is no driver."""

    @abstractmethod
    def __init__(self, number: int) -> None: ...

    @abstractmethod
    def attribute(self, name: str) -> int:
        """A property by CUDA's name of it, such as L2_CACHE_SIZE."""

    @abstractmethod
    def load(self, image: bytes, entry: str, dynamic: int = 0) -> GpuFunction:
        """A kernel of a PTX text or cubin, which may ask for `dynamic` bytes of shared memory when it is launched."""

    @abstractmethod
    def allocate(self, size: int) -> int:
        """The address of memory; raises MemoryError if there is not as much."""

    @abstractmethod
    def free(self, address: int) -> None:
        """Gives memory back."""

    @abstractmethod
    def write(self, address: int, data: Bytes) -> None:
        """Copies bytes of the host to the device."""

    @abstractmethod
    def read(self, address: int, data: Bytes) -> None:
        """Copies bytes of the device to an array of the host; waits for all work before it."""

    @abstractmethod
    def fill(self, address: int, value: int, size: int) -> None:
        """Sets bytes."""

    @abstractmethod
    def launcher(
        self, function: GpuFunction, grid: Shape, block: Shape, addresses: Sequence[int], dynamic: int = 0
    ) -> Launch:
        """A function that launches a kernel with these arguments, prepared so that a launch takes microseconds."""

    @abstractmethod
    def finish(self) -> None:
        """Waits for all work; raises GpuError for what it did wrong."""

    @abstractmethod
    def timed(self, work: Launch, count: int) -> float:
        """The seconds on the device from the beginning of the first to the end of the last of `count` times `work`."""

    @property
    def capability(self) -> tuple[int, int]:
        """The version of the architecture: (8, 6) is sm_86."""
        return self.attribute("COMPUTE_CAPABILITY_MAJOR"), self.attribute("COMPUTE_CAPABILITY_MINOR")

    def facts(self) -> dict[str, Any]:
        """What targets are made of: name, architecture and limits."""
        major, minor = self.capability
        limits = {ours: self.attribute(name) for ours, name in LIMITS.items()}
        return {"name": self.name, "package": self.package, "capability": major * 10 + minor, **limits}


def gpu_class() -> type[Gpu]:
    """The class for the package that is chosen; raises BuildError if none is installed."""
    name = chosen()
    if name is None:
        packages = " or ".join(_CLASSES)
        raise BuildError(f"no package that reaches GPUs is chosen: install {packages}, and leave {CHOICE} empty")
    return Named(_CLASSES[name], f"package {name}", BuildError).subclass(Gpu)  # type: ignore[type-abstract]


@cache
def open_gpu() -> Gpu:
    """The first device of this process, which stays open until it ends."""
    return gpu_class()(0)


def describe() -> None:
    """Prints what is known of all devices, as JSON; in a process of its own, since it opens them."""
    try:
        cls = gpu_class()
        found: object = [cls(number).facts() for number in range(cls.count())]
    except Exception as error:  # whatever a driver that does not work raises
        found = f"{type(error).__name__}: {error}"
    json.dump(found, sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # a context that is left behind must not delay the end
