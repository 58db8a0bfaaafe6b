"""GPUs of AMD as targets: programs are scheduled and assembled for them; nothing here runs them.

parse("rocm:arch=gfx90a"), parse({"rocm": {"arch": "gfx90a"}})
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from searchlab.errors import TargetError
from searchlab.targets.cuda import CudaTarget
from searchlab.targets.target import kinds

DEFAULT = "gfx90a"
_COLUMNS = ("threads_per_sm", "blocks_per_sm", "warp", "registers_per_sm", "registers_per_thread")
_LDS = 64 << 10
# from AMD's descriptions of the instruction sets: threads, blocks, lanes of a wave, vector registers of a compute unit
# (one for each lane), and of a thread
_ARCHS = {
    "gfx906": (2560, 16, 64, 256 << 8, 256),
    "gfx90a": (2048, 16, 64, 512 << 8, 512),
    "gfx942": (2048, 16, 64, 512 << 8, 512),
    "gfx1030": (2048, 16, 32, 1024 << 7, 256),
    "gfx1100": (2048, 16, 32, 1536 << 7, 256),
}


@dataclass(frozen=True, slots=True)
class RocmTarget(CudaTarget):
    """A GPU of AMD: blocks, threads and shared memory (LDS) are as on NVIDIA's, limits and code are its own.

    `sm` is what AMD calls a compute unit, `warp` a wave.
    """

    kind: ClassVar[str] = "rocm"
    backend: ClassVar[str] = "searchlab.cuda.rocm_backend:RocmBackend"

    @property
    def triple(self) -> str:
        """LLVM's name of the platform."""
        return "amdgcn-amd-amdhsa"

    @property
    def features(self) -> str:
        """What the architecture has is known by its name."""
        return ""

    def enabled_features(self) -> frozenset[str]:
        """The features that generated code may rely on."""
        return frozenset()

    @property
    def async_copies(self) -> bool:
        """Copies go through registers."""
        return False

    @property
    def shuffles(self) -> bool:
        """Exchanges of lanes are not written for it."""
        return False

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """One name; the architecture is an option."""
        return ("rocm",)

    @classmethod
    def named(cls, name: str, options: Mapping[str, Any]) -> RocmTarget:
        """The GPU of an architecture, gfx90a unless another is given."""
        if unknown := set(options) - {"arch"}:
            raise TargetError(f"target {name!r}: unknown option {sorted(unknown)[0]!r}; known: arch")
        arch = str(options.get("arch", DEFAULT))
        if arch not in _ARCHS:
            raise TargetError(f"target {name!r}: unknown architecture {arch!r}; known: {', '.join(_ARCHS)}")
        limits = dict(zip(_COLUMNS, _ARCHS[arch], strict=True))
        return cls(arch, shared_per_sm=_LDS, shared_per_block=_LDS, reserved_shared=0, shared_unit=512, **limits)

    def resident_blocks(self, threads: int, registers: int, shared: int) -> int:
        """How many blocks are on one compute unit at once; a block of one wave does not count against their number.

        Registers are given to waves in pieces of 8 for each lane.
        """
        if not 1 <= threads <= self.threads_per_block or registers > self.registers_per_thread:
            return 0
        if shared > self.shared_per_block:
            return 0
        waves = -(-threads // self.warp)
        by_threads = self.threads_per_sm // (waves * self.warp)
        each = max(1, -(-registers // 8)) * 8 * self.warp
        by_registers = self.registers_per_sm // each // waves
        taken = -(-shared // self.shared_unit) * self.shared_unit
        by_shared = self.shared_per_sm // taken if taken else by_threads
        return min(self.blocks_per_sm if waves > 1 else by_threads, by_threads, by_registers, by_shared)

    def __str__(self) -> str:
        limits = f"{self.threads_per_block} of {self.threads_per_sm} threads, {self.shared_per_block >> 10} KiB LDS"
        return f"{self.arch} (AMD GPU): per block and compute unit {limits}, waves of {self.warp}"


kinds.add(RocmTarget, RocmTarget.kind)
