"""A machine for columns: one native loop that runs any graph's code on blocks of candidates.

numpy would take a call for every operation, which costs more than the operation on a few dozen candidates; this takes
some nanoseconds, and is compiled once in a process, not once for every graph.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.llvm.jit import LoadedObject, compile_ir
from searchlab.targets import detect

BLOCK = 32  # candidates at a time: a few vectors for each operation, and all rows of a graph stay in the cache
_LANES = 8
_TYPE = f"<{_LANES} x double>"
_CALL = {"floor": "floor", "log2": "log2", "min": "minnum", "max": "maxnum"}
_PLAIN = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_COMPARE = {"le": "ole", "eq": "oeq"}
OPERATIONS = ("copy", *_PLAIN, *_CALL, *_COMPARE)
_UNARY = frozenset({"copy", "floor", "log2"})

Code = npt.NDArray[np.int32]
Rows = npt.NDArray[np.float64]


def run(code: Code, memory: Rows, inputs: Rows, rows: Code, out: Rows) -> None:
    """Runs `code`, lines of (operation, row, row, row of the result), on all candidates.

    `memory` has one row of BLOCK numbers for every value; `inputs` has one row for each of the first values, `out` one
    for each of `rows`; both hold all candidates, a whole number of blocks.
    """
    count = inputs.shape[1] if len(inputs) else out.shape[1]
    arrays = (code, memory, inputs, rows, out)
    sizes = (len(code), len(inputs), len(rows), count // BLOCK)
    _function()[0](*(x.ctypes.data for x in arrays), *sizes)


@cache
def _function() -> tuple[Any, LoadedObject]:
    target = detect(1)
    loaded = LoadedObject(compile_ir(_module(), target), target)
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5, *[ctypes.c_int64] * 4)
    return prototype(loaded.address("run")), loaded  # the code lives as long as its object


def _module() -> str:
    """The loop over blocks: copy the inputs in, run the code line by line, copy the results out."""
    cases = " ".join(f"i32 {n}, label %op_{name}" for n, name in enumerate(OPERATIONS))
    bodies = "\n".join(_operation(name) for name in OPERATIONS)
    size = BLOCK * 8
    return f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
{_declarations()}
define void @run(ptr %code, ptr %memory, ptr %inputs, ptr %rows, ptr %out,
                 i64 %lines, i64 %ins, i64 %outs, i64 %blocks) {{
entry:
  %stride = mul i64 %blocks, {size}
  br label %block
block:
  %n = phi i64 [0, %entry], [%n.next, %block.end]
  %more = icmp slt i64 %n, %blocks
  br i1 %more, label %in, label %end
in:
  %i = phi i64 [0, %block], [%i.next, %in.body]
  %offset = mul i64 %n, {size}
  %i.more = icmp slt i64 %i, %ins
  br i1 %i.more, label %in.body, label %line
in.body:
  %i.row = mul i64 %i, %stride
  %i.at = add i64 %i.row, %offset
  %i.from = getelementptr i8, ptr %inputs, i64 %i.at
  %i.size = mul i64 %i, {size}
  %i.to = getelementptr i8, ptr %memory, i64 %i.size
  call void @llvm.memcpy.p0.p0.i64(ptr %i.to, ptr %i.from, i64 {size}, i1 false)
  %i.next = add i64 %i, 1
  br label %in
line:
  %k = phi i64 [0, %in], [%k.next, %line.end]
  %k.more = icmp slt i64 %k, %lines
  br i1 %k.more, label %line.body, label %out.loop
line.body:
  %k.at = getelementptr [4 x i32], ptr %code, i64 %k
  %word = load <4 x i32>, ptr %k.at, align 4
  %op = extractelement <4 x i32> %word, i32 0
{_row("a", 1)}
{_row("b", 2)}
{_row("c", 3)}
  switch i32 %op, label %line.end [{cases}]
{bodies}
line.end:
  %k.next = add i64 %k, 1
  br label %line
out.loop:
  %o = phi i64 [0, %line], [%o.next, %out.body]
  %o.more = icmp slt i64 %o, %outs
  br i1 %o.more, label %out.body, label %block.end
out.body:
  %o.which = getelementptr i32, ptr %rows, i64 %o
  %o.row = load i32, ptr %o.which
  %o.wide = sext i32 %o.row to i64
  %o.size = mul i64 %o.wide, {size}
  %o.from = getelementptr i8, ptr %memory, i64 %o.size
  %o.start = mul i64 %o, %stride
  %o.at = add i64 %o.start, %offset
  %o.to = getelementptr i8, ptr %out, i64 %o.at
  call void @llvm.memcpy.p0.p0.i64(ptr %o.to, ptr %o.from, i64 {size}, i1 false)
  %o.next = add i64 %o, 1
  br label %out.loop
block.end:
  %n.next = add i64 %n, 1
  br label %block
end:
  ret void
}}
"""


def _declarations() -> str:
    suffix = f"v{_LANES}f64"
    lines = []
    for name, intrinsic in _CALL.items():
        arguments = ", ".join([_TYPE] * (1 if name in _UNARY else 2))
        lines.append(f"declare {_TYPE} @llvm.{intrinsic}.{suffix}({arguments})")
    return "\n".join(lines)


def _row(name: str, place: int) -> str:
    """The address of a row that a line of the code names."""
    return f"""  %{name}.row = extractelement <4 x i32> %word, i32 {place}
  %{name}.wide = sext i32 %{name}.row to i64
  %{name} = getelementptr [{BLOCK} x double], ptr %memory, i64 %{name}.wide"""


def _operation(name: str) -> str:
    """A basic block that does one operation on a whole row."""
    lines = [f"op_{name}:"]
    for n in range(BLOCK // _LANES):
        for side in ("a",) if name in _UNARY else ("a", "b"):
            lines.append(f"  %{name}.{side}p{n} = getelementptr {_TYPE}, ptr %{side}, i64 {n}")
            lines.append(f"  %{name}.{side}{n} = load {_TYPE}, ptr %{name}.{side}p{n}, align 8")
        lines += _result(name, n)
        value = f"%{name}.a{n}" if name == "copy" else f"%{name}.r{n}"
        lines.append(f"  %{name}.cp{n} = getelementptr {_TYPE}, ptr %c, i64 {n}")
        lines.append(f"  store {_TYPE} {value}, ptr %{name}.cp{n}, align 8")
    return "\n".join([*lines, "  br label %line.end"])


def _result(name: str, n: int) -> list[str]:
    a, b, r = f"%{name}.a{n}", f"%{name}.b{n}", f"%{name}.r{n}"
    if name in _PLAIN:
        return [f"  {r} = {_PLAIN[name]} {_TYPE} {a}, {b}"]
    if name in _COMPARE:
        mask = f"%{name}.m{n}"
        compared = f"  {mask} = fcmp {_COMPARE[name]} {_TYPE} {a}, {b}"
        return [compared, f"  {r} = uitofp <{_LANES} x i1> {mask} to {_TYPE}"]
    if name == "copy":
        return []
    arguments = f"{_TYPE} {a}" if name in _UNARY else f"{_TYPE} {a}, {_TYPE} {b}"
    return [f"  {r} = call {_TYPE} @llvm.{_CALL[name]}.v{_LANES}f64({arguments})"]
