"""GPUs through pycuda: PTX is loaded by `module_from_buffer`, which needs no compiler, launched by prepared calls."""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from searchlab.cuda.driver import Bytes, Gpu, GpuError, GpuFunction, Launch, Shape


class PycudaFunction(GpuFunction):
    """A kernel of pycuda; the module around it must live as long."""

    def __init__(self, function: Any, module: Any) -> None:
        self.function, self._module = function, module

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        return int(self.function.num_regs)

    @property
    def local_bytes(self) -> int:
        """Bytes of a thread in memory."""
        return int(self.function.local_size_bytes)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that the code declares."""
        return int(self.function.shared_size_bytes)


class PycudaGpu(Gpu):
    """A device by its primary context, which libraries of this process would share."""

    package = "pycuda"

    def __init__(self, number: int) -> None:
        self._drv = drv = _driver()
        with _reported(drv):
            self._device = drv.Device(number)
            self._context = self._device.retain_primary_context()
            self._context.push()
            atexit.register(self._context.pop)  # pycuda aborts a process that ends with a context
            self.name, self.bus_id = str(self._device.name()), str(self._device.pci_bus_id())
            self._events = drv.Event(), drv.Event()
        self._memory: dict[int, Any] = {}

    @classmethod
    def count(cls) -> int:
        """The number of devices."""
        drv = _driver()
        with _reported(drv):
            return int(drv.Device.count())

    def attribute(self, name: str) -> int:
        """A property by CUDA's name of it."""
        with _reported(self._drv):
            return int(self._device.get_attribute(getattr(self._drv.device_attribute, name)))

    def load(self, image: bytes, entry: str, dynamic: int = 0) -> PycudaFunction:
        """A kernel of a PTX text or cubin."""
        drv = self._drv
        with _reported(drv):
            module = drv.module_from_buffer(image)
            function = module.get_function(entry)
            if dynamic:
                function.set_attribute(drv.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic)
        return PycudaFunction(function, module)

    def allocate(self, size: int) -> int:
        """The address of memory."""
        with _reported(self._drv):
            made = self._drv.mem_alloc(size)
        self._memory[int(made)] = made
        return int(made)

    def free(self, address: int) -> None:
        """Gives memory back."""
        with _reported(self._drv):
            self._memory.pop(address).free()

    def write(self, address: int, data: Bytes) -> None:
        """Copies bytes of the host to the device."""
        with _reported(self._drv):
            self._drv.memcpy_htod(address, data)

    def read(self, address: int, data: Bytes) -> None:
        """Copies bytes of the device to an array of the host."""
        with _reported(self._drv):
            self._drv.memcpy_dtoh(data, address)

    def fill(self, address: int, value: int, size: int) -> None:
        """Sets bytes."""
        with _reported(self._drv):
            self._drv.memset_d8_async(address, value, size)

    def launcher(
        self, function: GpuFunction, grid: Shape, block: Shape, addresses: Sequence[int], dynamic: int = 0
    ) -> Launch:
        """A prepared call."""
        assert isinstance(function, PycudaFunction)
        prepared, arguments = function.function.prepare("P" * len(addresses)), tuple(addresses)

        def launch() -> None:
            prepared.prepared_call(grid, block, *arguments, shared_size=dynamic)

        return launch

    def finish(self) -> None:
        """Waits for all work."""
        with _reported(self._drv):
            self._context.synchronize()

    def timed(self, work: Launch, count: int) -> float:
        """The seconds between two events around the work."""
        begin, end = self._events
        with _reported(self._drv):
            begin.record()
            for _ in range(count):
                work()
            end.record()
            end.synchronize()
            return float(begin.time_till(end)) * 1e-3


def _driver() -> Any:
    """The module, with the driver initialised: both fail where there is no GPU."""
    try:
        import pycuda.driver as drv
    except ImportError as error:
        raise GpuError(f"pycuda cannot be used: {error}") from error
    with _reported(drv):
        drv.init()
    return drv


@contextmanager
def _reported(drv: Any) -> Iterator[None]:
    """Errors of pycuda as those that measuring knows."""
    try:
        yield
    except drv.MemoryError as error:
        raise MemoryError(f"of the GPU: {error}") from error
    except drv.Error as error:
        raise GpuError(str(error)) from error
