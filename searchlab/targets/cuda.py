"""NVIDIA GPUs as targets: the limits of an architecture, and how many blocks of a kernel are resident at once.

parse("cuda:arch=sm_80"), parse({"cuda": {"arch": "sm_80"}})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from searchlab.dtype import DTYPES
from searchlab.errors import TargetError
from searchlab.targets.cuda_devices import CudaDevice, cuda_devices
from searchlab.targets.target import Target, kinds

Amount = TypeVar("Amount", bound=Any)  # numbers, and whatever computes with them
DEFAULT = "sm_80"
WARP = 32
VECTOR_BITS = 128  # the widest access of one thread
STATIC_SHARED = 48 << 10  # bytes that a kernel can declare; more must be asked for when it is launched
_PARTS = 4  # of a multiprocessor: each has a quarter of the registers, and warps of its own
_REGISTER_UNIT = 256  # registers are given to warps in such pieces
_COLUMNS = ("threads_per_sm", "blocks_per_sm", "shared_per_sm", "shared_per_block", "reserved_shared", "shared_unit")
# from the table of technical specifications in NVIDIA's programming guide
_ARCHS = {
    "sm_75": (1024, 16, 64 << 10, 64 << 10, 0, 256),
    "sm_80": (2048, 32, 164 << 10, 163 << 10, 1024, 128),
    "sm_86": (1536, 16, 100 << 10, 99 << 10, 1024, 128),
    "sm_89": (1536, 24, 100 << 10, 99 << 10, 1024, 128),
    "sm_90": (2048, 32, 228 << 10, 227 << 10, 1024, 128),
}


@dataclass(frozen=True, slots=True)
class CudaTarget(Target):
    """An NVIDIA GPU, by the limits of one streaming multiprocessor (SM); shared memory is in bytes.

    `reserved_shared` is what the system takes of every block's, and `shared_unit` what amounts are rounded up to.
    """

    kind: ClassVar[str] = "cuda"
    backend: ClassVar[str] = "searchlab.cuda.cuda_backend:CudaBackend"

    arch: str
    threads_per_sm: int
    blocks_per_sm: int
    shared_per_sm: int
    shared_per_block: int
    reserved_shared: int
    shared_unit: int
    threads_per_block: int = 1024
    registers_per_sm: int = 64 << 10
    registers_per_thread: int = 255
    warp: int = WARP
    vector_registers: int = 48
    threads: int = 1

    @property
    def name(self) -> str:
        """The architecture."""
        return self.arch

    @property
    def triple(self) -> str:
        """LLVM's name of the platform."""
        return "nvptx64-nvidia-cuda"

    @property
    def cpu(self) -> str:
        """LLVM's name of the processor."""
        return self.arch

    @property
    def features(self) -> str:
        """The version of PTX, for LLVM."""
        return "+ptx78"

    def enabled_features(self) -> frozenset[str]:
        """The features that generated code may rely on."""
        return frozenset({"ptx78"})

    @property
    def shuffles(self) -> bool:
        """Whether threads of a warp exchange values in the code that is written for it."""
        return True

    @property
    def async_copies(self) -> bool:
        """Whether threads can copy to shared memory without waiting."""
        return capability(self.arch) >= 80

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """One name; the architecture is an option."""
        return ("cuda",)

    @classmethod
    def named(cls, name: str, options: Mapping[str, Any]) -> CudaTarget:
        """The GPU of an architecture; without one, the first of this machine, or sm_80 where there is none."""
        if unknown := set(options) - {"arch"}:
            raise TargetError(f"target {name!r}: unknown option {sorted(unknown)[0]!r}; known: arch")
        if "arch" not in options and (devices := cuda_devices().found):
            return cls.of_device(devices[0])
        arch = str(options.get("arch", DEFAULT))
        if arch not in _ARCHS:
            raise TargetError(f"target {name!r}: unknown architecture {arch!r}; known: {', '.join(_ARCHS)}")
        return cls(arch, **dict(zip(_COLUMNS, _ARCHS[arch], strict=True)))

    @classmethod
    def of_device(cls, device: CudaDevice) -> CudaTarget:
        """A GPU with the limits that its driver tells, and code for the newest architecture that both know."""
        known = [arch for arch in _ARCHS if capability(arch) <= device.capability]
        if not known:
            oldest = next(iter(_ARCHS))
            raise TargetError(f"{device.name} is sm_{device.capability}; the oldest supported is {oldest}")
        limits = dict(zip(_COLUMNS, _ARCHS[known[-1]], strict=True))
        told = ("threads_per_sm", "blocks_per_sm", "shared_per_sm", "shared_per_block", "reserved_shared")
        limits |= {name: getattr(device, name) for name in told}
        return cls(
            known[-1],
            **limits,
            threads_per_block=device.threads_per_block,
            registers_per_sm=device.registers_per_sm,
        )

    def lanes(self, dtype: str) -> int:
        """How many values of `dtype` one access of a thread can move."""
        if dtype not in DTYPES:
            raise TargetError(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")
        return VECTOR_BITS // DTYPES[dtype].bits

    def resident_blocks(self, threads: int, registers: int, shared: int) -> int:
        """How many blocks are on one SM at once, given threads of a block, registers of a thread, shared bytes.

        0: such a block cannot run at all.
        """
        if not 1 <= threads <= self.threads_per_block or registers > self.registers_per_thread:
            return 0
        if shared > self.shared_per_block:
            return 0
        return self.resident(threads, max(registers, 1), max(shared, 1), min)

    def resident(
        self, threads: Amount, registers: Amount, shared: Amount, least: Callable[[Amount, Any], Amount]
    ) -> Amount:
        """The same for amounts of any kind, such as expressions, all at least 1; `least` is the smaller of two."""
        nothing = threads * 0  # numbers that are of that kind, too
        warps = (threads + (self.warp - 1)) // self.warp
        by_threads = (nothing + self.threads_per_sm // self.warp) // warps
        piece = (registers * self.warp + (_REGISTER_UNIT - 1)) // _REGISTER_UNIT * _REGISTER_UNIT
        by_registers = (nothing + self.registers_per_sm // _PARTS) // piece * _PARTS // warps
        found = least(least(by_threads, by_registers), self.blocks_per_sm)
        taken = (shared + (self.reserved_shared + self.shared_unit - 1)) // self.shared_unit * self.shared_unit
        return least(found, (nothing + self.shared_per_sm) // taken)

    def occupancy(self, threads: int, registers: int, shared: int) -> float:
        """The share of an SM's warps that are in use when it runs as many blocks as it can."""
        warps = -(-threads // self.warp)
        return self.resident_blocks(threads, registers, shared) * warps * self.warp / self.threads_per_sm

    def __str__(self) -> str:
        shared = f"{self.shared_per_block >> 10} of {self.shared_per_sm >> 10} KiB shared memory"
        limits = f"{self.threads_per_block} of {self.threads_per_sm} threads, {shared}"
        return f"{self.arch} (NVIDIA GPU): per block and SM {limits}, {self.registers_per_sm >> 10} Ki registers"


def capability(arch: str) -> int:
    """The number of an architecture: 80 for sm_80; code for a lower one runs on devices of a higher one."""
    return int(arch.removeprefix("sm_"))


kinds.add(CudaTarget, CudaTarget.kind)
