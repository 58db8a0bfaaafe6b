"""Calls everything that searchlab uses of a package that reaches GPUs; `python real_calls.py MODULE:CLASS`.

It runs beside libcuda_stub.c, whose kernel copies an array, in an interpreter that has the package.
"""

import importlib
import sys

import numpy as np

from searchlab.cuda.driver import GpuError
from searchlab.targets.cuda_devices import LIMITS

module, name = sys.argv[1].split(":")
cls = getattr(importlib.import_module(module), name)
assert cls.count() == 1
gpu = cls(0)
assert (gpu.name, gpu.bus_id) == ("stub", "0000:01:00.0")
facts = gpu.facts()
assert facts["threads_per_block"] == 1001 and set(LIMITS) < set(facts)
function = gpu.load(b".visible .entry kernel0()", "kernel0", 64 << 10)
assert (function.registers, function.local_bytes, function.shared_bytes) == (34, 33, 31)
data = np.arange(64, dtype=np.uint8)
source, target = gpu.allocate(64), gpu.allocate(64)
gpu.write(source, data)
gpu.fill(target, 7, 64)
made = np.zeros(64, np.uint8)
gpu.read(target, made)
assert (made == 7).all()
launch = gpu.launcher(function, (2, 1, 1), (8, 1, 1), (source, target), 64 << 10)
assert gpu.timed(launch, 3) == 1.5e-3
gpu.finish()
gpu.read(target, made)
assert (made == data).all()
for fails, error in (
    (lambda: gpu.allocate(1 << 30), MemoryError),
    (lambda: gpu.load(b"nothing", "kernel0"), GpuError),
    (lambda: gpu.load(b".visible .entry kernel0()", "kernel1"), GpuError),
    (lambda: gpu.timed(gpu.launcher(function, (2, 2, 1), (8, 1, 1), (source, target)), 1), GpuError),
    (lambda: gpu.timed(gpu.launcher(function, (2, 1, 1), (8, 1, 1), (source, target), 65 << 10), 1), GpuError),
):
    try:
        fails()
    except error as told:
        assert str(told), error
    else:
        raise AssertionError(f"no {error.__name__}")
gpu.free(source)
print("all calls are right")
