"""Repeated runs of CPU kernels for measurement: many in one call.

A call from Python takes a microsecond or two, as long as a small kernel; so the loop over runs is native code too.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from searchlab.backend import Runs
from searchlab.llvm import abi
from searchlab.llvm.jit import LoadedObject, compile_ir
from searchlab.targets import detect

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


class CpuRuns(Runs):
    """Runs the code at `address` with these words as arguments; `keep` holds the objects that must stay alive."""

    def __init__(self, address: int, words: tuple[int, ...], keep: Any) -> None:
        self.words, self._keep = (address, *words), keep  # the call, for code that makes it itself
        self._repeat = repeater()

    def __call__(self, count: int = 1) -> None:
        self._repeat(*self.words, count)


@cache
def repeater() -> Any:
    """The loop over runs, as a function; loaded once, so that forked children inherit it."""
    target = detect()
    code = LoadedObject(compile_ir(_REPEAT, target), target)
    address = code.address("repeat")
    code.keep()
    return _SIGNATURE(address)
