"""Loads the kernel of this folder onto an NVIDIA GPU; requires numpy and pycuda.

from kernel import load
kernel = load()
c = kernel(a, b)                 # arrays of numpy: copied to the device and back
kernel.launch(a_address, b_address, c_address)    # or addresses on the device: returns at once
"""

from __future__ import annotations

import atexit
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

DESCRIPTION = "kernel.json"


class ExportedGpuKernel:
    """Kernels on the first device, in its primary context."""

    def __init__(self, about: dict[str, Any], folder: Path) -> None:
        import pycuda.driver as drv

        drv.init()
        self._drv, self.about = drv, about
        self.inputs, self.outputs = about["inputs"], about["outputs"]
        self._context = drv.Device(0).retain_primary_context()
        self._context.push()
        atexit.register(self._context.pop)
        self._scratch = [drv.mem_alloc(size) for size in about["scratch"]]
        self._kernels = [self._loaded(k, checked(folder / k["file"], about)) for k in about["kernels"]]

    def __repr__(self) -> str:
        arrays = ", ".join(f"{a['name']}: {a['dtype']}{a['shape']}" for a in self.inputs)
        return f"<kernel {self.about['function']}({arrays}) for {self.about['arch']}>"

    def __call__(self, *arrays: Any) -> Any:
        """The outputs as arrays of numpy: one, or a tuple of several."""
        run, outputs = self.prepare(*arrays)
        run(1)
        made = tuple(outputs())
        return made[0] if len(made) == 1 else made

    def launch(self, *addresses: int) -> None:
        """Launches the kernels on addresses of the device, inputs first; returns before they are done."""
        count = len(self.inputs) + len(self.outputs)
        if len(addresses) != count:
            raise ValueError(f"{self.about['function']} takes {count} addresses, got {len(addresses)}")
        every = (*addresses, *(int(s) for s in self._scratch))
        for function, k in self._kernels:
            grid, block = tuple(k["grid"]), tuple(k["block"])
            function.prepared_call(grid, block, *every, shared_size=k["dynamic"])

    def prepare(self, *arrays: Any) -> tuple[Callable[[int], float], Callable[[], list[Any]]]:
        """A function that runs the kernels n times and returns their seconds, and one that copies the outputs back."""
        if len(arrays) != len(self.inputs):
            names = ", ".join(a["name"] for a in self.inputs)
            raise ValueError(f"{self.about['function']} takes {len(self.inputs)} arrays ({names}), got {len(arrays)}")
        for a, x in zip(self.inputs, arrays, strict=True):
            _check(a, x)
        drv = self._drv
        sizes = [int(np.prod(a["shape"])) * _dtype(a).itemsize for a in (*self.inputs, *self.outputs)]
        memory = [drv.mem_alloc(size) for size in sizes]
        addresses = [int(m) for m in memory]
        for at, x in zip(addresses, arrays, strict=False):
            drv.memcpy_htod(at, np.ascontiguousarray(x).view(np.uint8).reshape(-1))
        begin, end = drv.Event(), drv.Event()

        def run(count: int) -> float:
            begin.record()
            for _ in range(count):
                self.launch(*addresses)
            end.record()
            end.synchronize()
            return float(begin.time_till(end)) * 1e-3

        def outputs() -> list[Any]:
            made = []
            for a, m in zip(self.outputs, memory[len(self.inputs) :], strict=True):
                data = np.empty(int(np.prod(a["shape"])) * _dtype(a).itemsize, np.uint8)
                drv.memcpy_dtoh(data, int(m))
                made.append(data.view(_dtype(a)).reshape(a["shape"]))
            return made

        return run, outputs

    def _loaded(self, kernel: dict[str, Any], image: bytes) -> tuple[Any, dict[str, Any]]:
        drv = self._drv
        module = drv.module_from_buffer(image)
        function = module.get_function(kernel["entry"])
        if kernel["dynamic"]:
            function.set_attribute(drv.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel["dynamic"])
        count = len(self.inputs) + len(self.outputs) + len(self._scratch)
        kernel = {**kernel, "module": module}  # which must live as long as its function
        return function.prepare("P" * count), kernel


def _check(argument: dict[str, Any], array: Any) -> None:
    name, shape = argument["name"], tuple(argument["shape"])
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != _dtype(argument):
        got = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
        raise ValueError(f"'{name}' must be a numpy array {_dtype(argument)}{list(shape)}, got {got}")


def _dtype(argument: dict[str, Any]) -> np.dtype[Any]:
    """The type of arrays that hold such elements: numpy has no bfloat16."""
    return np.dtype("uint16" if argument["dtype"] == "bfloat16" else argument["dtype"])


def checked(path: Path, about: dict[str, Any]) -> bytes:
    """The contents of a code file; ValueError if its checksum differs."""
    code = path.read_bytes()
    if hashlib.sha256(code).hexdigest() != about["sha256"][path.name]:
        raise ValueError(f"{path} is damaged: its checksum is not the one in {DESCRIPTION}; export the kernel again")
    return code


def load(folder: str | Path | None = None) -> ExportedGpuKernel:
    """The kernel of a folder, by default the folder of this file."""
    here = Path(__file__).parent if folder is None else Path(folder)
    return ExportedGpuKernel(json.loads((here / DESCRIPTION).read_text(encoding="utf-8")), here)
