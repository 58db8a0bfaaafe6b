"""Kernels as they are measured: many runs in one call, on packed inputs and scratch memory that are handed in.

A call from Python takes a microsecond or two, as long as a small kernel; so the loop over runs is native code too.
"""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from searchlab.llvm import abi
from searchlab.llvm.jit import LoadedObject, compile_ir
from searchlab.measure.guard import Array
from searchlab.runtime.kernel import Kernel
from searchlab.runtime.threadpool import parallel_for_address
from searchlab.targets import detect

# from a number of bytes to an address and the object that keeps them alive
Allocate = Callable[[int], tuple[int, object]]

_REPEAT = f"""
define void @repeat(ptr %kernel, {", ".join(abi.PARAMETERS)}, i64 %count) nounwind {{
entry:
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %loop, label %out
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void %kernel({", ".join(abi.PARAMETERS)})
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %out
out:
  ret void
}}
"""
_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *abi.WORDS, ctypes.c_int64)


class KernelRuns:
    """`runs(n)` runs a kernel n times on the same arrays."""

    def __init__(self, words: tuple[int, ...], keep: Any) -> None:
        self._words, self._keep = words, keep
        self._repeat = repeater()

    def __call__(self, count: int = 1) -> None:
        self._repeat(*self._words, count)


class MeasuredKernel(Kernel):
    """A kernel whose code is loaded once and made ready for several sets of arrays."""

    _allocate: Allocate

    def ready(
        self, inputs: Mapping[str, Array], packed: Mapping[str, Array], outputs: Mapping[str, Array], allocate: Allocate
    ) -> KernelRuns:
        """Runs on these arrays; `packed` have the layout the code expects, `allocate` gives scratch memory."""
        other = copy.copy(self)
        other._constants, other._allocate = dict(packed), allocate
        given = [inputs[b.name] for b in self.artifact.inputs if b.name not in packed]
        runs, _ = other.prepare(*given, out=[outputs[b.name] for b in self.artifact.outputs])
        assert isinstance(runs, KernelRuns)
        return runs

    def _runner(self, pointers: Any, numbers: Any, sizes: Mapping[str, int], keep: Any) -> KernelRuns:
        a = self.artifact
        threads = a.target.threads
        layout = abi.ScratchLayout.of(a.shared, a.private, sizes)
        base, scratch = self._allocate(layout.total(threads))
        pool = parallel_for_address(threads) if a.parallel else 0
        words = layout.words(ctypes.addressof(pointers), ctypes.addressof(numbers), base, pool, threads)
        return KernelRuns((self._object.address(a.entry), *words), (self, pointers, numbers, keep, scratch))


@cache
def repeater() -> Any:
    """The loop over runs, as a function; loaded once, so that children can inherit it."""
    target = detect()
    code = LoadedObject(compile_ir(_REPEAT, target), target)
    address = code.address("repeat")
    code.keep()
    return _SIGNATURE(address)
