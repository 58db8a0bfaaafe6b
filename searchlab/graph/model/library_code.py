"""A model as LLVM IR: its byte code, the machine, the thread pool, and entry points for C and for Python.

For a function F of a model M (only M if there is one function)

    ptr  M_F_create(i64 threads)                        a state; 0 threads: the default
    i64  M_F_run(ptr state, ptr inputs, ptr outputs)     0, or why it failed
    i64  M_F_message(ptr state, i64 status, ptr, i64)    what was wrong, as text
    void M_F_destroy(ptr state)

and `M_machine_create`, `M_machine_call`, `M_machine_destroy` with the data `M_F_model`, which Python uses.
"""

from __future__ import annotations

from collections.abc import Mapping

from searchlab.graph.model.model_function import message
from searchlab.graph.vm.bytecode import ByteCode, Check, Reference
from searchlab.graph.vm.lowering import LoweredFunction
from searchlab.graph.vm.machine import EXPECTED_AT, GOT_AT, MISMATCH, NO_MEMORY, PC_AT, machine_ir
from searchlab.llvm import abi
from searchlab.runtime import threadpool
from searchlab.runtime.standalone.entries import POOL, at_loading, pool_setup
from searchlab.runtime.standalone.modules import joined, owned
from searchlab.targets import CpuTarget

MACHINE, CONSTANTS = "machine", "model_constants"
_GOT, _EXPECTED = -111111111, -222222222  # stand for numbers in messages that are formatted later


def prefix_of(model: str, function: str, functions: int) -> str:
    """What the names of a function begin with."""
    return model if functions == 1 else f"{model}_{function}"


def library_ir(
    model: str,
    functions: Mapping[str, LoweredFunction],
    offsets: Mapping[str, int],
    target: CpuTarget,
    parallel: bool,
) -> str:
    """The module of a model whose constants are at these offsets; its kernels are in other object files."""
    parts = [owned(machine_ir(), MACHINE), _machine_entries(model), "declare i32 @snprintf(ptr, i64, ptr, ...)"]
    pool = f"ptrtoint (ptr @{POOL}.parallel_for to i64)" if parallel else "0"
    for name, function in functions.items():
        prefix = prefix_of(model, name, len(functions))
        parts += [_data(prefix, function.code, offsets, pool), _checks(prefix, function.code.checks)]
        parts.append(_entries(prefix, target.threads))
    words = [w for f in functions.values() for w in f.code.registers]
    symbols = {w.name for w in words if isinstance(w, Reference) and w.kind == "kernel"}
    parts += [
        f"declare void @{symbol}({', '.join(t.split()[0] for t in abi.PARAMETERS)})" for symbol in sorted(symbols)
    ]
    parts.append(f"@{CONSTANTS} = external hidden constant i8, align {abi.LINE}")
    linux = "linux" in target.triple
    first = []
    if parallel:
        parts.append(owned(threadpool.pool_ir(target), POOL))
        parts.append(pool_setup(model, threadpool.SPIN_SECONDS, linux))
        first.append(f"{model}_setup")
    if linux and "amx-tile" in target.enabled_features():
        parts.append(_TILES)
        first.append("tiles.ask")
    return joined([*parts, *([at_loading(first)] if first else [])])


# Linux keeps AMX tiles only for processes that have asked.
_TILES = """declare i64 @syscall(i64, ...)
define internal void @tiles.ask() nounwind {
  %answer = call i64 (i64, ...) @syscall(i64 158, i64 4131, i64 18)
  ret void
}"""


def _machine_entries(model: str) -> str:
    """The functions of the machine under names that others may see."""
    return f"""define ptr @{model}_machine_create(ptr %model, i64 %threads) nounwind {{
  %state = call ptr @{MACHINE}.machine_create(ptr %model, i64 %threads)
  ret ptr %state
}}
define void @{model}_machine_destroy(ptr %state) nounwind {{
  call void @{MACHINE}.machine_destroy(ptr %state)
  ret void
}}
define i64 @{model}_machine_call(ptr %state, ptr %inputs, ptr %outputs) nounwind {{
  %status = call i64 @{MACHINE}.machine_call(ptr %state, ptr %inputs, ptr %outputs)
  ret i64 %status
}}"""


def _data(prefix: str, code: ByteCode, offsets: Mapping[str, int], pool: str) -> str:
    """Byte code and initial registers; addresses are filled in where the library is loaded."""

    def word(held: int | Reference) -> str:
        if isinstance(held, int):
            return f"i64 {held}"
        if held.kind == "builtin":
            return f"i64 ptrtoint (ptr @{MACHINE}.builtin_{held.name} to i64)"
        if held.kind == "kernel":
            return f"i64 ptrtoint (ptr @{held.name} to i64)"
        at = f"getelementptr (i8, ptr @{CONSTANTS}, i64 {offsets[held.name]})"
        return f"i64 ptrtoint (ptr {at} to i64)"

    words, registers = len(code.words), len(code.registers)
    fields = [
        f"i64 ptrtoint (ptr @{prefix}.code to i64)", f"i64 ptrtoint (ptr @{prefix}.template to i64)",
        f"i64 {registers}", f"i64 {code.window}", f"i64 {code.cleanup}", f"i64 {pool}",
    ]  # fmt: skip
    return "\n".join(
        [
            f"@{prefix}.code = internal constant [{words} x i64] [{', '.join(f'i64 {w}' for w in code.words)}]",
            f"@{prefix}.template = internal constant [{registers} x i64] [{', '.join(map(word, code.registers))}]",
            f"@{prefix}_model = constant [{len(fields)} x i64] [{', '.join(fields)}]",
        ]
    )


def _checks(prefix: str, checks: Mapping[int, Check]) -> str:
    """Rows of a place in the code and two formats: what was expected and what there is, and too little memory."""
    lines, rows = [], []
    for number, (pc, check) in enumerate(checks.items()):
        pointers = []
        for kind, status in (("text", MISMATCH), ("short", NO_MEMORY)):
            text = _format(message(check, status, _GOT, _EXPECTED))
            name = f"@{prefix}.{kind}{number}"
            lines.append(f'{name} = private constant [{len(text) + 1} x i8] c"{_escaped(text)}\\00"')
            pointers.append(f"ptr {name}")
        rows.append(f"{{ i64, ptr, ptr }} {{ i64 {pc}, {', '.join(pointers)} }}")
    rows.append("{ i64, ptr, ptr } { i64 -1, ptr @PREFIX.other, ptr @PREFIX.other }".replace("PREFIX", prefix))
    other = b"the model could not be run"
    lines.append(f'@{prefix}.other = private constant [{len(other) + 1} x i8] c"{_escaped(other)}\\00"')
    lines.append(f"@{prefix}.checks = internal constant [{len(rows)} x {{ i64, ptr, ptr }}] [{', '.join(rows)}]")
    return "\n".join(lines)


def _format(text: str) -> bytes:
    """A message as a format of printf: the number that was found first, then the one that was expected."""
    numbered = text.replace("%", "%%").replace(str(_GOT), "%1$lld").replace(str(_EXPECTED), "%2$lld")
    return numbered.encode()


def _escaped(text: bytes) -> str:
    return "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:02X}" for c in text)


def _entries(prefix: str, threads: int) -> str:
    """The functions that C calls."""
    text = """define ptr @PREFIX_create(i64 %threads) nounwind {
  %some = icmp sgt i64 %threads, 0
  %used = select i1 %some, i64 %threads, i64 THREADS
  %state = call ptr @MACHINE.machine_create(ptr @PREFIX_model, i64 %used)
  ret ptr %state
}
define void @PREFIX_destroy(ptr %state) nounwind {
  call void @MACHINE.machine_destroy(ptr %state)
  ret void
}
define i64 @PREFIX_run(ptr %state, ptr %inputs, ptr %outputs) nounwind {
  %status = call i64 @MACHINE.machine_call(ptr %state, ptr %inputs, ptr %outputs)
  ret i64 %status
}
define i64 @PREFIX_message(ptr %state, i64 %status, ptr %text, i64 %size) nounwind {
entry:
  %pc.p = getelementptr i64, ptr %state, i64 PC_AT
  %pc = load i64, ptr %pc.p
  %got.p = getelementptr i64, ptr %state, i64 GOT_AT
  %got = load i64, ptr %got.p
  %expected.p = getelementptr i64, ptr %state, i64 EXPECTED_AT
  %expected = load i64, ptr %expected.p
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %row = getelementptr { i64, ptr, ptr }, ptr @PREFIX.checks, i64 %i
  %at = load i64, ptr %row
  %here = icmp eq i64 %at, %pc
  %last = icmp slt i64 %at, 0
  %stop = or i1 %here, %last
  br i1 %stop, label %found, label %next
next:
  %i1 = add i64 %i, 1
  br label %test
found:
  %short = icmp eq i64 %status, NO_MEMORY
  %column = select i1 %short, i64 2, i64 1
  %format.p = getelementptr ptr, ptr %row, i64 %column
  %format = load ptr, ptr %format.p
  %length = call i32 (ptr, i64, ptr, ...) @snprintf(ptr %text, i64 %size, ptr %format, i64 %got, i64 %expected)
  %long = sext i32 %length to i64
  ret i64 %long
}"""
    values = {"THREADS": threads, "PC_AT": PC_AT, "GOT_AT": GOT_AT, "EXPECTED_AT": EXPECTED_AT, "NO_MEMORY": NO_MEMORY}
    for name, value in values.items():
        text = text.replace(name, str(value))
    return text.replace("MACHINE", MACHINE).replace("PREFIX", prefix)
