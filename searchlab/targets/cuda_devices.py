"""Which NVIDIA GPUs this machine has: asked of a process of its own, so that this one may still fork.

SEARCHLAB_CUDA is the package that reaches them, pycuda or cuda-bindings, or `emulator` for none.  By default it is the
first that is installed.  CUDA_VISIBLE_DEVICES limits the devices, as everywhere.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from searchlab import interpreter
from searchlab.errors import TargetError

CHOICE, VISIBLE = "SEARCHLAB_CUDA", "CUDA_VISIBLE_DEVICES"
EMULATOR = "emulator"
_MODULES = {"pycuda": "pycuda", "cuda-bindings": "cuda.bindings"}
_SECONDS = 60.0  # starting a driver takes seconds on machines with many devices
_CODE = "from searchlab.cuda.driver import describe; describe()"
# fields of `CudaDevice` and of targets -> CUDA's names
LIMITS = {
    "threads_per_sm": "MAX_THREADS_PER_MULTIPROCESSOR",
    "blocks_per_sm": "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "shared_per_sm": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "shared_per_block": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "reserved_shared": "RESERVED_SHARED_MEMORY_PER_BLOCK",
    "threads_per_block": "MAX_THREADS_PER_BLOCK",
    "registers_per_sm": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "sms": "MULTIPROCESSOR_COUNT",
    "l2": "L2_CACHE_SIZE",
}


@dataclass(frozen=True)
class CudaDevice:
    """A GPU: its name, the package that reaches it, architecture (86 is sm_86) and limits; sizes are in bytes."""

    name: str
    package: str
    capability: int
    threads_per_sm: int
    blocks_per_sm: int
    shared_per_sm: int
    shared_per_block: int
    reserved_shared: int
    threads_per_block: int
    registers_per_sm: int
    sms: int
    l2: int


@dataclass(frozen=True)
class CudaDevices:
    """The devices that were found, in the driver's order; `missing` says why there are none."""

    found: tuple[CudaDevice, ...] = ()
    missing: str = ""


def chosen() -> str | None:
    """The package that reaches GPUs; None: none is installed, or kernels are to be emulated."""
    name = os.environ.get(CHOICE, "").strip()
    if name == EMULATOR:
        return None
    if name and name not in _MODULES:
        raise TargetError(f"{CHOICE}={name}: accepted are {', '.join((*_MODULES, EMULATOR))}")
    return next((n for n in ([name] if name else _MODULES) if _installed(_MODULES[n])), None)


def cuda_devices() -> CudaDevices:
    """The devices of this machine."""
    name = chosen()
    if name is None:
        wanted = os.environ.get(CHOICE) or " or ".join(_MODULES)
        return CudaDevices(missing=f"{wanted} is {'chosen' if wanted == EMULATOR else 'not installed'}")
    return _asked(name, os.environ.get(VISIBLE))


def visible_device(number: int) -> dict[str, str]:
    """The environment of a process that sees only one of the devices of this one."""
    here = os.environ.get(VISIBLE)
    names = here.split(",") if here else []
    if here is not None and number >= len(names):
        raise TargetError(f"device {number}: {VISIBLE} leaves {len(names)}")
    return {VISIBLE: names[number].strip() if names else str(number)}


@cache
def _asked(package: str, visible: str | None) -> CudaDevices:
    """What a process of its own finds; both arguments reach it through the environment."""
    command = interpreter.command("-c", _CODE)
    try:
        done = subprocess.run(
            command, env=interpreter.environment(), capture_output=True, text=True, timeout=_SECONDS, check=True
        )
        found = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return CudaDevices(missing=f"{package} did not answer within {_SECONDS:g} s")
    except (subprocess.CalledProcessError, ValueError):
        return CudaDevices(missing=f"{package} ends the process that asks it for devices")
    if isinstance(found, str):
        return CudaDevices(missing=f"{package}: {found}")
    return CudaDevices(tuple(CudaDevice(**one) for one in found), "" if found else f"{package} finds no device")


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False
