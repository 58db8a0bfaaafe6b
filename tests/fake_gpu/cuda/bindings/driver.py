"""`cuda.bindings.driver` as far as searchlab uses it; tests/cuda/test_real_packages.py has the real one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
from gpu_model import ATTRIBUTES, BUS, GPU, NAME, Failure, FakeKernel


class CUresult(Enum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NOT_FOUND = 500
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701


CUdevice_attribute = Enum("CUdevice_attribute", [f"CU_DEVICE_ATTRIBUTE_{name}" for name in ATTRIBUTES])


class CUfunction_attribute(Enum):
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


_OK = CUresult.CUDA_SUCCESS


def _call(what: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    try:
        return _OK, what(*arguments)
    except Failure as failure:
        return CUresult[f"CUDA_ERROR_{failure}"], None


def _done(what: Callable[..., Any], *arguments: Any) -> tuple[Any]:
    return (_call(what, *arguments)[0],)


def _host(address: int, size: int) -> Any:
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)


def cuInit(Flags: int) -> tuple[Any]:
    return (_OK,)


def cuDeviceGetCount() -> tuple[Any, int]:
    return _OK, 1


def cuDeviceGet(ordinal: int) -> tuple[Any, int]:
    return _OK, ordinal


def cuDeviceGetName(length: int, dev: int) -> tuple[Any, bytes]:
    return _OK, NAME.encode() + b"\0"


def cuDeviceGetPCIBusId(length: int, dev: int) -> tuple[Any, bytes]:
    return _OK, BUS.encode() + b"\0"


def cuDeviceGetAttribute(attrib: Any, dev: int) -> tuple[Any, int]:
    return _OK, ATTRIBUTES[attrib.name.removeprefix("CU_DEVICE_ATTRIBUTE_")]


def cuDevicePrimaryCtxRetain(dev: int) -> tuple[Any, int]:
    return _OK, 17


def cuCtxSetCurrent(ctx: int) -> tuple[Any]:
    return (_OK,)


def cuCtxSynchronize() -> tuple[Any]:
    return _done(GPU.finish)


def cuModuleLoadData(image: bytes) -> tuple[Any, bytes]:
    assert image.endswith(b"\0")
    return _OK, image


def cuModuleGetFunction(hmod: bytes, name: bytes) -> tuple[Any, Any]:
    return _call(GPU.load, hmod, name.decode())


def cuFuncGetAttribute(attrib: Any, hfunc: FakeKernel) -> tuple[Any, int]:
    name = attrib.name.removeprefix("CU_FUNC_ATTRIBUTE_")
    values = {"NUM_REGS": hfunc.registers, "LOCAL_SIZE_BYTES": hfunc.local_bytes}
    return _OK, (values | {"SHARED_SIZE_BYTES": hfunc.shared_bytes})[name]


def cuFuncSetAttribute(hfunc: FakeKernel, attrib: Any, value: int) -> tuple[Any]:
    assert attrib is CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    hfunc.most_dynamic = value
    return (_OK,)


def cuMemAlloc(bytesize: int) -> tuple[Any, int]:
    return _call(GPU.allocate, bytesize)


def cuMemFree(dptr: int) -> tuple[Any]:
    return _done(GPU.free, dptr)


def cuMemcpyHtoD(dstDevice: int, srcHost: int, ByteCount: int) -> tuple[Any]:
    return _done(GPU.write, dstDevice, _host(srcHost, ByteCount))


def cuMemcpyDtoH(dstHost: int, srcDevice: int, ByteCount: int) -> tuple[Any]:
    return _done(GPU.read, srcDevice, _host(dstHost, ByteCount))


def cuMemsetD8Async(dstDevice: int, uc: int, N: int, hStream: int) -> tuple[Any]:
    return _done(GPU.fill, dstDevice, uc, N)


def cuLaunchKernel(
    f: FakeKernel,
    gridDimX: int,
    gridDimY: int,
    gridDimZ: int,
    blockDimX: int,
    blockDimY: int,
    blockDimZ: int,
    sharedMemBytes: int,
    hStream: int,
    kernelParams: int,
    extra: int,
) -> tuple[Any]:
    pointers = (ctypes.c_uint64 * len(f.text.parameters)).from_address(kernelParams)
    addresses = [ctypes.c_uint64.from_address(p).value for p in pointers]
    grid, block = (gridDimX, gridDimY, gridDimZ), (blockDimX, blockDimY, blockDimZ)
    return _done(GPU.launch, f, grid, block, addresses, sharedMemBytes)


class _Event:
    at = 0.0


def cuEventCreate(Flags: int) -> tuple[Any, Any]:
    return _OK, _Event()


def cuEventRecord(hEvent: Any, hStream: int) -> tuple[Any]:
    code, hEvent.at = _call(GPU.record)
    return (code,)


def cuEventSynchronize(hEvent: Any) -> tuple[Any]:
    return _done(GPU.finish)


def cuEventElapsedTime(hStart: Any, hEnd: Any) -> tuple[Any, float]:
    return _OK, hEnd.at - hStart.at


def cuGetErrorString(error: CUresult) -> tuple[Any, bytes]:
    return _OK, error.name.removeprefix("CUDA_ERROR_").lower().replace("_", " ").encode()
