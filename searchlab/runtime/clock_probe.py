"""The clock probe of a core, its pulse: the time of a short computation that uses only registers.

It keeps the vector units busy, so it slows down whenever something else uses them (a neighbour on the same physical
core) or the clock is lower; and it does not touch the caches, so it can run directly before or after what is timed.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import cache

from searchlab.llvm.jit import LoadedObject, compile_ir
from searchlab.targets import detect

_CHAINS = 10  # more than enough for two units with a latency of four
_ROUNDS = 32_000  # 50 us at 3 GHz


@cache
def pulse() -> Callable[[], float]:
    """The function that times the probe, in seconds; loaded once, so that forked children inherit it."""
    target = detect()
    code = LoadedObject(compile_ir(_text(), target), target)
    beat = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(code.address("pulse"))
    code.keep()
    clock = time.perf_counter

    def take() -> float:
        start = clock()
        beat(_ROUNDS)
        return clock() - start

    take()
    return take


def _text() -> str:
    """The LLVM IR: chains of x = x / 2 + 1, which stay near 2, on generic vectors that any machine supports."""
    names = range(_CHAINS)
    kind = "<8 x float>"
    half, one = (f"splat (float {value})" for value in ("0.5", "1.0"))
    start = "\n".join(f"  %x{n} = phi {kind} [ %seed, %entry ], [ %y{n}, %loop ]" for n in names)
    step = "\n".join(
        f"  %y{n} = call {kind} @llvm.fmuladd.v8f32({kind} %x{n}, {kind} {half}, {kind} {one})" for n in names
    )
    total = "\n".join(f"  %s{n + 1} = fadd {kind} %s{n}, %y{n}" for n in names)
    return f"""
declare {kind} @llvm.fmuladd.v8f32({kind}, {kind}, {kind})
define float @pulse(i64 %rounds) nounwind {{
entry:
  %first = sitofp i64 %rounds to float
  %seed = insertelement {kind} {one}, float %first, i64 0
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{start}
{step}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %rounds
  br i1 %more, label %loop, label %out
out:
  %s0 = fadd {kind} %y0, %y0
{total}
  %result = extractelement {kind} %s{_CHAINS}, i64 0
  ret float %result
}}
"""
