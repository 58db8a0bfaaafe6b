"""The calling convention of CPU kernels, on which generated code, the runtime, measurement and exports agree.

    void kernel(ptr args, ptr sizes, ptr shared, ptr private, i64 stride, ptr pool, i64 threads)

`args` holds the addresses of the buffers, inputs first, and `sizes` the run-time sizes in order of name.  `shared` and
`private` point to scratch memory: one area for all threads, and one of `stride` bytes for each of them.  `pool` is the
`parallel_for` of a thread pool, or null for a kernel without parallel loops.  Nothing else is needed from outside, so
object code can be sent anywhere.  A pool has the convention

    void parallel_for(ptr function, ptr record, i64 count, i64 threads)
    void function(i64 begin, i64 end, i64 slot, ptr record)

where `slot` (below `threads`) says which private area belongs to the calling thread.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

from searchlab.ir.algebra import ceildiv
from searchlab.ir.evaluate import evaluate
from searchlab.ir.expr import ZERO, Expr

ENTRY = "kernel"
LINE = 64  # bytes of a cache line: scratch memory and every buffer in it begin at a multiple of this

_PARAMETERS = (
    ("ptr", "args"),
    ("ptr", "sizes"),
    ("ptr", "shared"),
    ("ptr", "private"),
    ("i64", "stride"),
    ("ptr", "pool"),
    ("i64", "threads"),
)
# As LLVM IR: all parameters, and those that inner functions of a kernel receive unchanged.
PARAMETERS = tuple(f"{type_} %{name}" for type_, name in _PARAMETERS)
CONTEXT = PARAMETERS[2:]

# As ctypes: addresses and numbers are words alike.
WORDS = tuple({"ptr": ctypes.c_void_p, "i64": ctypes.c_int64}[type_] for type_, _ in _PARAMETERS)
SIGNATURE = ctypes.CFUNCTYPE(None, *WORDS)


def call(function: str, *values: str) -> str:
    """The LLVM instruction that calls a kernel with these operands."""
    passed = (f"{type_} {value}" for (type_, _), value in zip(_PARAMETERS, values, strict=True))
    return f"call void {function}({', '.join(passed)})"


def padded(size: Expr) -> Expr:
    """The bytes that a buffer of `size` bytes occupies in scratch memory."""
    return ceildiv(size, LINE) * LINE


def scratch_bytes(shared: Expr, private: Expr, threads: int) -> Expr:
    """What `ScratchLayout.total` is at any run-time sizes; extents are at least 1, so only the number 0 is nothing."""
    return shared + (ZERO if private == ZERO else (private + LINE) * threads)


@dataclass(frozen=True, slots=True)
class ScratchLayout:
    """Bytes of scratch memory: the area that all threads share, followed by one of `stride` for each thread."""

    shared: int
    stride: int

    @staticmethod
    def of(shared: Expr, private: Expr, sizes: Mapping[str, int] | None = None) -> ScratchLayout:
        """The layout for a kernel that needs these amounts at the given run-time sizes."""
        own = int(evaluate(private, sizes or {}))
        # One line of padding prevents false sharing between the areas of neighbouring threads.
        return ScratchLayout(int(evaluate(shared, sizes or {})), own + LINE if own else 0)

    def total(self, threads: int) -> int:
        """The bytes that a call with this many threads needs."""
        return self.shared + self.stride * threads

    def words(self, args: int, sizes: int, base: int, pool: int, threads: int) -> tuple[int, ...]:
        """The arguments of a kernel call whose scratch memory begins at `base`."""
        return (args, sizes, base, base + self.shared, self.stride, pool, threads)
