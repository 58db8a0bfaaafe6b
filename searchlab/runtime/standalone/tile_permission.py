"""AMX in exported kernels: Linux keeps tiles only for processes that have asked, so the code asks when it is loaded.

int NAME_permitted(void)        asks; 0: the process may use tiles, EOPNOTSUPP: it may not

NAME returns the same code, without running, where the request was refused.
"""

from __future__ import annotations

TILES = "AMX tiles"
TYPE = "x86_amx"  # of LLVM, which code without tiles does not mention
SETUP = "tiles.setup"
ENTRY = "tiles.run"

# arch_prctl(ARCH_REQ_XCOMP_PERM, XTILE_DATA); the C library makes -1 of all errors
_ASKING = """
declare i64 @syscall(i64, ...)
@tiles.refused = internal global i32 0
define i32 @NAME_permitted() nounwind {
  %answer = call i64 (i64, ...) @syscall(i64 158, i64 4131, i64 18)
  %granted = icmp eq i64 %answer, 0
  %code = select i1 %granted, i32 0, i32 95
  store i32 %code, ptr @tiles.refused
  ret i32 %code
}
define internal void @SETUP() nounwind {
  %code = call i32 @NAME_permitted()
  ret void
}
define i32 @NAME(ARRAYS) nounwind {
entry:
  %refused = load i32, ptr @tiles.refused
  %granted = icmp eq i32 %refused, 0
  br i1 %granted, label %run, label %out
run:
  %done = call i32 @ENTRY(ARRAYS)
  br label %out
out:
  %code = phi i32 [ %refused, %entry ], [ %done, %run ]
  ret i32 %code
}
"""


def asking(name: str, buffers: int) -> str:
    """The request, and the entry point NAME in front of `ENTRY`, which runs the kernel."""
    arrays = ", ".join(f"ptr %x{n}" for n in range(buffers))
    text = _ASKING.replace("ARRAYS", arrays).replace("ENTRY", ENTRY).replace("SETUP", SETUP)
    return text.replace("NAME", name)
