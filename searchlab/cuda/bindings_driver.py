"""GPUs through cuda-bindings, NVIDIA's own package: the functions of the driver as they are named in C."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from searchlab.cuda.driver import Bytes, Gpu, GpuError, GpuFunction, Launch, Shape

_LONGEST = 256  # characters of a device's name


class BindingsFunction(GpuFunction):
    """A kernel by its handle; the module around it is never unloaded."""

    def __init__(self, drv: Any, handle: Any) -> None:
        self._drv, self.handle = drv, handle

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        return self._attribute("NUM_REGS")

    @property
    def local_bytes(self) -> int:
        """Bytes of a thread in memory."""
        return self._attribute("LOCAL_SIZE_BYTES")

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that the code declares."""
        return self._attribute("SHARED_SIZE_BYTES")

    def _attribute(self, name: str) -> int:
        kind = getattr(self._drv.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(_value(self._drv, self._drv.cuFuncGetAttribute(kind, self.handle)))


class BindingsGpu(Gpu):
    """A device by its primary context, which libraries of this process would share."""

    package = "cuda-bindings"

    def __init__(self, number: int) -> None:
        self._drv = drv = _driver()
        self._device = _value(drv, drv.cuDeviceGet(number))
        context = _value(drv, drv.cuDevicePrimaryCtxRetain(self._device))
        _value(drv, drv.cuCtxSetCurrent(context))
        self.name = _text(_value(drv, drv.cuDeviceGetName(_LONGEST, self._device)))
        self.bus_id = _text(_value(drv, drv.cuDeviceGetPCIBusId(_LONGEST, self._device)))
        self._events = _value(drv, drv.cuEventCreate(0)), _value(drv, drv.cuEventCreate(0))

    @classmethod
    def count(cls) -> int:
        """The number of devices."""
        drv = _driver()
        return int(_value(drv, drv.cuDeviceGetCount()))

    def attribute(self, name: str) -> int:
        """A property by CUDA's name of it."""
        kind = getattr(self._drv.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(_value(self._drv, self._drv.cuDeviceGetAttribute(kind, self._device)))

    def load(self, image: bytes, entry: str, dynamic: int = 0) -> BindingsFunction:
        """A kernel of a PTX text, which ends with a zero byte here, or of a cubin."""
        drv = self._drv
        module = _value(drv, drv.cuModuleLoadData(image + b"\0"))
        function = BindingsFunction(drv, _value(drv, drv.cuModuleGetFunction(module, entry.encode())))
        if dynamic:
            kind = drv.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _value(drv, drv.cuFuncSetAttribute(function.handle, kind, dynamic))
        return function

    def allocate(self, size: int) -> int:
        """The address of memory."""
        return int(_value(self._drv, self._drv.cuMemAlloc(size)))

    def free(self, address: int) -> None:
        """Gives memory back."""
        _value(self._drv, self._drv.cuMemFree(address))

    def write(self, address: int, data: Bytes) -> None:
        """Copies bytes of the host to the device."""
        _value(self._drv, self._drv.cuMemcpyHtoD(address, data.ctypes.data, data.nbytes))

    def read(self, address: int, data: Bytes) -> None:
        """Copies bytes of the device to an array of the host."""
        _value(self._drv, self._drv.cuMemcpyDtoH(data.ctypes.data, address, data.nbytes))

    def fill(self, address: int, value: int, size: int) -> None:
        """Sets bytes."""
        _value(self._drv, self._drv.cuMemsetD8Async(address, value, size, 0))

    def launcher(
        self, function: GpuFunction, grid: Shape, block: Shape, addresses: Sequence[int], dynamic: int = 0
    ) -> Launch:
        """A call whose arguments are in memory already: pointers to the addresses."""
        assert isinstance(function, BindingsFunction)
        drv, handle = self._drv, function.handle
        values = np.array(addresses, np.uint64)
        pointers = values.ctypes.data + 8 * np.arange(len(values), dtype=np.uint64)

        def launch() -> None:
            # `values` is named here so that it lives as long as the pointers to it
            _value(drv, drv.cuLaunchKernel(handle, *grid, *block, dynamic, 0, pointers.ctypes.data, 0), values)

        return launch

    def finish(self) -> None:
        """Waits for all work."""
        _value(self._drv, self._drv.cuCtxSynchronize())

    def timed(self, work: Launch, count: int) -> float:
        """The seconds between two events around the work."""
        drv, (begin, end) = self._drv, self._events
        _value(drv, drv.cuEventRecord(begin, 0))
        for _ in range(count):
            work()
        _value(drv, drv.cuEventRecord(end, 0))
        _value(drv, drv.cuEventSynchronize(end))
        return float(_value(drv, drv.cuEventElapsedTime(begin, end))) * 1e-3


def _driver() -> Any:
    """The module, with the driver initialised."""
    try:
        from cuda.bindings import driver as drv
    except ImportError as error:
        raise GpuError(f"cuda-bindings cannot be used: {error}") from error
    try:
        answer = drv.cuInit(0)
    except RuntimeError as error:  # the package is there, the driver is not
        raise GpuError(f"cuda-bindings finds no driver: {error}") from error
    _value(drv, answer)
    return drv


def _value(drv: Any, answer: tuple[Any, ...], keep: object = None) -> Any:
    """The result of a call, which comes with an error code."""
    code, *values = answer
    if code == drv.CUresult.CUDA_SUCCESS:
        return values[0] if values else None
    said = f"{code.name}: {_text(drv.cuGetErrorString(code)[1])}"
    if code == drv.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise MemoryError(f"of the GPU: {said}")
    raise GpuError(said)


def _text(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode(errors="replace")
