"""`pycuda.driver` as far as searchlab uses it; tests/cuda/test_real_packages.py has the real one."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from gpu_model import ATTRIBUTES, BUS, GPU, NAME, Failure, FakeKernel


class Error(Exception):
    pass


class MemoryError(Error):
    pass


class LogicError(Error):
    pass


class LaunchError(Error):
    pass


_CLASSES = {"OUT_OF_MEMORY": MemoryError, "LAUNCH_OUT_OF_RESOURCES": LaunchError}


def _call(what: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return what(*arguments)
    except Failure as failure:
        code = str(failure)
        raise _CLASSES.get(code, LogicError)(f"{what.__name__} failed: {code.lower().replace('_', ' ')}") from None


class device_attribute:
    pass


for _name in ATTRIBUTES:
    setattr(device_attribute, _name, _name)


class function_attribute:
    MAX_DYNAMIC_SHARED_SIZE_BYTES = "MAX_DYNAMIC_SHARED_SIZE_BYTES"


def init(flags: int = 0) -> None:
    pass


class Context:
    def push(self) -> None:
        pass

    def pop(self) -> None:
        pass

    @staticmethod
    def synchronize() -> None:
        _call(GPU.finish)


class Device:
    def __init__(self, number: int) -> None:
        if number != 0:
            raise LogicError("invalid device ordinal")

    @staticmethod
    def count() -> int:
        return 1

    def name(self) -> str:
        return NAME

    def pci_bus_id(self) -> str:
        return BUS

    def get_attribute(self, name: str) -> int:
        return ATTRIBUTES[name]

    def retain_primary_context(self) -> Context:
        return Context()


class Function:
    def __init__(self, kernel: FakeKernel) -> None:
        self._kernel = kernel
        self.num_regs, self.local_size_bytes = kernel.registers, kernel.local_bytes
        self.shared_size_bytes = kernel.shared_bytes

    def set_attribute(self, name: str, value: int) -> None:
        assert name == function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._kernel.most_dynamic = value

    def prepare(self, arg_types: str) -> Function:
        self._count = len(arg_types)
        return self

    def prepared_call(self, grid: tuple, block: tuple, *arguments: int, shared_size: int = 0) -> None:
        assert len(arguments) == self._count and all(type(a) is builtins.int for a in arguments)
        _call(GPU.launch, self._kernel, grid, block, list(arguments), shared_size)


class Module:
    def __init__(self, image: bytes) -> None:
        self._image = image

    def get_function(self, name: str) -> Function:
        return Function(_call(GPU.load, self._image, name))


def module_from_buffer(buffer: bytes) -> Module:
    return Module(buffer)


class DeviceAllocation:
    def __init__(self, address: int) -> None:
        self._address = address

    def __int__(self) -> int:
        return self._address

    def free(self) -> None:
        _call(GPU.free, self._address)


def mem_alloc(bytes: int) -> DeviceAllocation:
    return DeviceAllocation(_call(GPU.allocate, bytes))


def memcpy_htod(dest: int, src: Any) -> None:
    _call(GPU.write, dest, src)


def memcpy_dtoh(dest: Any, src: int) -> None:
    _call(GPU.read, src, dest)


def memset_d8_async(dest: int, data: int, size: int) -> None:
    _call(GPU.fill, dest, data, size)


class Event:
    def record(self) -> Event:
        self._at = _call(GPU.record)
        return self

    def synchronize(self) -> Event:
        _call(GPU.finish)
        return self

    def time_till(self, other: Event) -> float:
        return other._at - self._at
