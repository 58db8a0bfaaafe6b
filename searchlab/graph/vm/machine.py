"""The machine that runs byte code: loads the LLVM IR in machine.ll, which explains how it works.

It is written in LLVM IR, as the thread pool is, so that the same code runs in this process and in exported libraries.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from searchlab.dtype import DTYPES

CALL, RETURN, JUMP, BRANCH = range(4)

# The words of a state before its registers.
FIELDS = (
    "model", "pc", "got", "expected", "scratch", "scratch_bytes", "pool", "threads", "free", "blocks", "poison", "log",
    "logged", "times", "library", "inputs", "outputs",
)  # fmt: skip
PC_AT, GOT_AT, EXPECTED_AT = (FIELDS.index(name) for name in ("pc", "got", "expected"))
# The words that describe a model: its code, the initial values of its registers, their number, and so on.
MODEL = ("code", "template", "registers", "window", "cleanup", "pool")

# Why a run ended before its end.
MISMATCH, NO_MEMORY, DIVISION, OVERFLOW, NO_LIBRARY, LIBRARY_FAILED = range(1, 7)
# What happens to memory, as the log has it.
EVENTS = ("allocate", "reuse", "release", "free")

# A descriptor of an array: its address, the number of its dtype, its rank, extents, bytes and whether they are ours.
MOST_AXES = 8
DTYPE_AT, RANK_AT, SHAPE_AT = 1, 2, 3
BYTES_AT, OWNED_AT = SHAPE_AT + MOST_AXES, SHAPE_AT + MOST_AXES + 1
DESCRIPTOR_WORDS = OWNED_AT + 1
DTYPE_NUMBERS = {name: number for number, name in enumerate(DTYPES)}
SHAPE_NUMBER = -1  # in place of a dtype: a shape as a value

BUILTINS = (
    "add", "mul", "floordiv", "mod", "min", "max", "at_most", "check_equal", "check_range", "check_dtype", "check_rank",
    "data", "extent", "acquire", "release", "forget", "copy", "take", "output", "drop_output", "kernel", "library",
    "stamp",
)  # fmt: skip
LINE = 64


def machine_ir() -> str:
    """The machine as an LLVM module, for any CPU."""
    text = Path(__file__).with_name("machine.ll").read_text(encoding="utf-8")
    plain = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(";;"))
    return Template(plain).substitute(
        {name.upper(): n for n, name in enumerate(FIELDS)},
        **{f"MODEL_{name.upper()}": n for n, name in enumerate(MODEL)},
        FIELDS=len(FIELDS), CALL=CALL, RETURN=RETURN, JUMP=JUMP, BRANCH=BRANCH, LINE=LINE, LINE_LESS_ONE=LINE - 1,
        MISMATCH=MISMATCH, NO_MEMORY=NO_MEMORY, DIVISION=DIVISION, OVERFLOW=OVERFLOW, NO_LIBRARY=NO_LIBRARY,
        ALLOCATE=0, REUSE=1, RELEASE=2, FREED=3,
        DTYPE_AT=DTYPE_AT, RANK_AT=RANK_AT, SHAPE_AT=SHAPE_AT, BYTES_AT=BYTES_AT, OWNED_AT=OWNED_AT,
        DESCRIPTOR_WORDS=DESCRIPTOR_WORDS,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class GraphMachine:
    """The functions of a loaded machine."""

    create: Any
    destroy: Any
    call: Any

    @staticmethod
    def at(address: Any) -> GraphMachine:
        """The machine whose functions are found by name."""
        pointer, word = ctypes.c_void_p, ctypes.c_int64
        return GraphMachine(
            ctypes.CFUNCTYPE(pointer, pointer, word)(address("machine_create")),
            ctypes.CFUNCTYPE(None, pointer)(address("machine_destroy")),
            ctypes.CFUNCTYPE(word, pointer, pointer, pointer)(address("machine_call")),
        )


# Library functions are called back with the state and the words of the call.
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64))


@cache
def machine() -> tuple[GraphMachine, dict[str, int]]:
    """The machine in this process, and the addresses of what byte code calls; loaded once, and never unloaded."""
    from searchlab.llvm.jit import LoadedObject, compile_ir
    from searchlab.targets import detect

    target = detect()
    code = LoadedObject(compile_ir(machine_ir(), target, pipeline=("O2",)), target)
    made = GraphMachine.at(code.address), {name: code.address(f"builtin_{name}") for name in BUILTINS}
    code.keep()
    return made
