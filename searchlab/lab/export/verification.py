"""Verification of an exported kernel: is it right, and as fast outside the laboratory as inside?

The exported library and the kernel as searchlab builds it run interleaved in this process, so that disturbances of the
machine affect both; the recorded time is then compared with both.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from searchlab.backend import backend_of
from searchlab.ir.program import Program
from searchlab.lab.export.gpu_loader import ExportedGpuKernel
from searchlab.lab.export.loader import ExportedKernel
from searchlab.lab.export.opening import exported
from searchlab.llvm.jit import LoadedObject, compile_ir
from searchlab.measure import Protocol
from searchlab.runtime.memory import placed
from searchlab.targets import Target, detect
from searchlab.timing.corelock import CoreLock
from searchlab.timing.ratios import ratio_interval
from searchlab.timing.sampler import Sampler
from searchlab.timing.turns import alternating, take_turns
from searchlab.workloads import Workload

Runs = Callable[[int], float | None]
ROUNDS = 9
_LEVEL = 0.9
_EXPORTED, _BUILT = "exported", "built"


@dataclass(frozen=True)
class Verified:
    """The result of a verification.

    `wrong` describes how the output differs from numpy's, None if it does not.  `exported_s` and `built_s` are the
    fastest times, `ratio` is exported over built within rounds, from `low` to `high`.
    """

    wrong: str | None
    recorded_s: float
    exported_s: float
    built_s: float
    ratio: float
    low: float
    high: float

    @property
    def gap(self) -> float:
        """The relative difference from the recorded time; above 0 is slower."""
        return self.exported_s / self.recorded_s - 1.0


def verify(
    folder: Path,
    workload: Workload,
    program: Program,
    target: Target,
    recorded_s: float,
    rounds: int = ROUNDS,
    protocol: Protocol | None = None,
) -> Verified:
    """Runs the kernel of an export folder beside the program it was made of."""
    kernel, timing = exported(folder), protocol or Protocol(repeats=3)
    inputs = {name: placed(x) for name, x in workload.inputs(seed=0).items()}
    with _alone(target.threads):
        made = kernel(*inputs.values())
        wrong = workload.check(made, inputs)
        if isinstance(kernel, ExportedGpuKernel):
            outputs: Sequence[Any] = made if isinstance(made, tuple) else (made,)
            ours: Runs = kernel.prepare(*inputs.values())[0]
        else:
            values, outputs = kernel.arrays(*inputs.values())
            ours = _exported_runs(kernel, values, outputs)
        theirs = _built_runs(program, target, inputs, dict(zip(program.outputs, outputs, strict=True)))
        contenders, probe = {_EXPORTED: ours, _BUILT: theirs}, backend_of(target).clock_probe()

        def sample(name: str) -> Sequence[float]:
            return Sampler(contenders[name], timing, target.threads, pulse=probe).take().times

        turns = take_turns(list(contenders), sample, lambda turns: turns.count < rounds, alternating)
    pairs = turns.pairs(_EXPORTED, _BUILT)
    ratio, low, high = ratio_interval(pairs, _LEVEL, seed=0)
    fastest = [min(side) for side in zip(*pairs, strict=True)]
    return Verified(wrong, recorded_s, fastest[0], fastest[1], ratio, low, high)


@contextmanager
def _alone(threads: int) -> Iterator[None]:
    """Cores on which no other searchlab process measures at the same time."""
    allowed = os.sched_getaffinity(0)
    with CoreLock(sorted(allowed), min(threads, len(allowed))) as lock:
        os.sched_setaffinity(0, lock.held)
        try:
            yield
        finally:
            os.sched_setaffinity(0, allowed)


def _built_runs(program: Program, target: Target, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Runs:
    """The kernel as measured in a search: packed inputs, a native loop over runs."""
    backend = backend_of(target)
    kernel = backend.load(backend.build(program, target))
    return kernel.ready(inputs, kernel.pack(inputs), outputs, _memory)


def _exported_runs(kernel: ExportedKernel, values: Sequence[Any], outputs: Sequence[Any]) -> Runs:
    """The exported function in a native loop, since a call from Python takes as long as a small kernel."""
    pointers = [x.ctypes.data for x in (*values, *outputs)]
    scratch, keep = _memory(kernel.scratch_bytes)
    function = kernel.address(f"{kernel.about['function']}_with")
    repeat = _repeat(len(pointers))

    def runs(count: int) -> None:
        repeat(function, *pointers, scratch, kernel.threads, count)

    runs.keep = (kernel, values, outputs, keep)  # type: ignore[attr-defined]
    return runs


def _memory(size: int) -> tuple[int, object]:
    raw = np.empty(size + 64, np.uint8)
    return raw.ctypes.data + (-raw.ctypes.data % 64), raw


def _repeat(buffers: int) -> Any:
    passed = ", ".join([*(f"ptr %x{n}" for n in range(buffers)), "ptr %scratch", "i64 %threads"])
    text = f"""
define void @repeat(ptr %kernel, {passed}, i64 %count) nounwind {{
entry:
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %loop, label %out
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void %kernel({passed})
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %out
out:
  ret void
}}
"""
    target = detect()
    code = LoadedObject(compile_ir(text, target), target)
    address = code.address("repeat")
    code.keep()
    words = [ctypes.c_void_p] * (buffers + 2)
    return ctypes.CFUNCTYPE(None, *words, ctypes.c_int64, ctypes.c_int64)(address)
