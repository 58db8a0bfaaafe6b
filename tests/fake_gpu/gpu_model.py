"""A GPU for tests: memory in numpy, kernels by the emulator of PTX, a clock that counts their steps, a log of calls.

The packages `pycuda` and `cuda.bindings` beside this file present it under the names of the real ones, so that code
that uses these runs as it is.  FAKE_GPU_LOG is a file for the log.

A kernel whose PTX contains `// fault: KIND` does what KIND says: `illegal` (address), `resources` (too many for a
launch), `memory` (none left), `hang`.  After an illegal address the device refuses everything, as real ones do.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any

import numpy as np

from searchlab.cuda.ptx_machine import run_kernel
from searchlab.cuda.ptx_memory import PtxFault, TrackedMemory
from searchlab.cuda.ptx_text import PtxText, read_ptx

NAME, BUS = "Fake GPU", "0000:01:00.0"
STEP_MS = 1e-4
MEMORY = 1 << 30
ATTRIBUTES = {
    "COMPUTE_CAPABILITY_MAJOR": 8,
    "COMPUTE_CAPABILITY_MINOR": 7,
    "MAX_THREADS_PER_MULTIPROCESSOR": 1280,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 12,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 90 << 10,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 89 << 10,
    "RESERVED_SHARED_MEMORY_PER_BLOCK": 1024,
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 64 << 10,
    "MULTIPROCESSOR_COUNT": 7,
    "L2_CACHE_SIZE": 1 << 20,
}


class Failure(Exception):
    """An error of the driver, by the name of its code without the prefix."""


class FakeKernel:
    """A kernel that is loaded."""

    registers, local_bytes = 40, 0

    def __init__(self, image: bytes, entry: str) -> None:
        source = image.rstrip(b"\0").decode()
        fault = re.search(r"// fault: (\w+)", source)
        self.text: PtxText = read_ptx(source)
        self.fault, self.entry = fault[1] if fault else "", entry
        self.most_dynamic = 48 << 10
        if self.text.entry != entry:
            raise Failure("NOT_FOUND")

    @property
    def shared_bytes(self) -> int:
        return self.text.sizes["shared"]


class FakeGpu:
    """The only device."""

    def __init__(self) -> None:
        self._memory: dict[int, Any] = {}
        self._next = 1 << 33
        self._clock_ms = 0.0
        self._broken = ""
        self._pending = ""

    # --- calls --------------------------------------------------------------------------------------------------------

    def log(self, call: str, *arguments: Any) -> None:
        """Notes a call; refuses it if an earlier one has ruined the device."""
        if path := os.environ.get("FAKE_GPU_LOG"):
            with open(path, "a") as file:
                file.write(json.dumps([os.getpid(), call, *arguments]) + "\n")
        if self._broken:
            raise Failure(self._broken)

    def allocate(self, size: int) -> int:
        self.log("allocate", size)
        if size > MEMORY - sum(len(data) for data in self._memory.values()):
            raise Failure("OUT_OF_MEMORY")
        address, self._next = self._next, self._next + -(-size // 512) * 512
        self._memory[address] = np.full(size, 0xCD, np.uint8)
        return address

    def free(self, address: int) -> None:
        self.log("free", self._memory.pop(address).nbytes)

    def write(self, address: int, data: Any) -> None:
        self.log("write", data.nbytes)
        self._at(address)[: data.nbytes] = data

    def read(self, address: int, data: Any) -> None:
        self.log("read", data.nbytes)
        self.finish()
        data[...] = self._at(address)[: data.nbytes]

    def fill(self, address: int, value: int, size: int) -> None:
        self.log("fill", value, size)
        self._at(address)[:size] = value

    def load(self, image: bytes, entry: str) -> FakeKernel:
        self.log("load", entry)
        return FakeKernel(image, entry)

    def launch(self, kernel: FakeKernel, grid: tuple, block: tuple, addresses: list[int], dynamic: int) -> None:
        self.log("launch", kernel.entry, list(grid), list(block), dynamic)
        if kernel.fault == "resources" or dynamic > kernel.most_dynamic:
            raise Failure("LAUNCH_OUT_OF_RESOURCES")
        if kernel.fault == "memory":
            raise Failure("OUT_OF_MEMORY")
        if kernel.fault == "hang":
            time.sleep(3600)
        if kernel.fault == "illegal":
            self._pending = "ILLEGAL_ADDRESS"
            return
        arrays = [TrackedMemory(f"array {n}", self._at(a), written=True) for n, a in enumerate(addresses)]
        try:
            self._clock_ms += STEP_MS * run_kernel(kernel.text, grid, block, arrays, dynamic)
        except PtxFault:
            self._pending = "ILLEGAL_ADDRESS"

    def finish(self) -> None:
        """Waits for all work, and reports what went wrong in it."""
        if self._pending:
            self._broken = self._pending
            raise Failure(self._broken)

    def record(self) -> float:
        self.log("record")
        return self._clock_ms

    def _at(self, address: int) -> Any:
        for base, data in self._memory.items():
            if base <= address < base + len(data):
                return data[address - base :]
        raise Failure("INVALID_VALUE")


GPU = FakeGpu()
GPU.log("visible", os.environ.get("CUDA_VISIBLE_DEVICES", ""))
