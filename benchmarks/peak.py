"""The peak performance of this machine: multiply-adds on vector registers without dependences or memory accesses."""

from __future__ import annotations

import ctypes
from functools import cache
from time import perf_counter

from searchlab.llvm import jit
from searchlab.targets import Target

_STEPS = 20_000


def _ir(lanes: int, accumulators: int) -> str:
    vector = f"<{lanes} x float>"
    names = [f"%a{n}" for n in range(accumulators)]
    # different initial values, or LLVM would merge the chains
    begins = []
    for n, a in enumerate(names):
        begins.append(f"  {a}.p = getelementptr float, ptr %p, i64 {lanes * n}")
        begins.append(f"  {a}.b = load {vector}, ptr {a}.p, align 4")
    phis = [f"  {a} = phi {vector} [{a}.b, %entry], [{a}.n, %loop]" for a in names]
    steps = [f"  {a}.n = call {vector} @llvm.fma.v{lanes}f32({vector} %x, {vector} %y, {vector} {a})" for a in names]
    sums = []
    total = f"{names[0]}.n"
    for n, a in enumerate(names[1:]):
        sums.append(f"  %s{n} = fadd {vector} {total}, {a}.n")
        total = f"%s{n}"
    return "\n".join([
        f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})",
        'define void @peak(ptr %p, i64 %n) "prefer-vector-width"="512" {',
        "entry:",
        f"  %x = load {vector}, ptr %p, align 4",
        f"  %q = getelementptr float, ptr %p, i64 {lanes}",
        f"  %y = load {vector}, ptr %q, align 4",
        *begins,
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [0, %entry], [%j, %loop]",
        *phis,
        *steps,
        "  %j = add i64 %i, 1",
        "  %c = icmp ult i64 %j, %n",
        "  br i1 %c, label %loop, label %end",
        "end:",
        *sums,
        f"  store {vector} {total}, ptr %p, align 4",
        "  ret void",
        "}",
    ])  # fmt: skip


@cache
def peak_flops(target: Target) -> float:
    """Single-precision operations per second of one core, the best of several short runs."""
    lanes, accumulators = target.lanes("float32"), min(24, target.vector_registers - 4)
    with jit.LoadedObject(jit.compile_ir(_ir(lanes, accumulators), target), target) as code:
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address("peak"))
        data = (ctypes.c_float * (accumulators * lanes))()
        best = float("inf")
        for _ in range(30):
            start = perf_counter()
            run(ctypes.addressof(data), _STEPS)
            best = min(best, perf_counter() - start)
    return 2.0 * lanes * accumulators * _STEPS / best
