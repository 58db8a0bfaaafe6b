"""Crash reports of children: a page shared with the parent, and a signal handler that writes there.

The handler records the faulting address and whether memory was exhausted.  It is compiled from LLVM IR, since Python
code must not run inside a fault handler; when it returns, the fault recurs and kills the process as usual.
"""

from __future__ import annotations

import ctypes
import mmap
import pickle
import signal
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from searchlab.llvm.jit import LoadedObject, compile_ir
from searchlab.measure.workers.guard import Region
from searchlab.targets import detect

PHASES = ("starting", "preparing", "building", "loading", "checking", "timing", "answering")
_SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)
_SIZE = 1 << 16
_HEAD = struct.Struct("<QQQQQ")  # phase, signal, address, whether memory ran out, length of the regions that follow
_SIGINFO, _ONCE = 0x4, 0x80000000

# siginfo_t of 64-bit Linux has the address at byte 16.  34 is a private anonymous mapping.  A crash with less than the
# probe left to map is attributed to a failed allocation.
_HANDLER = """
@board = global ptr null
@probe = global i64 0
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
define void @fault(i32 %signal, ptr %info, ptr %context) nounwind {
entry:
  %board = load ptr, ptr @board
  %known = zext i32 %signal to i64
  %signal.p = getelementptr i64, ptr %board, i64 1
  store i64 %known, ptr %signal.p
  %from.p = getelementptr i8, ptr %info, i64 16
  %from = load i64, ptr %from.p
  %address.p = getelementptr i64, ptr %board, i64 2
  store i64 %from, ptr %address.p
  %probe = load i64, ptr @probe
  %wanted = icmp ne i64 %probe, 0
  br i1 %wanted, label %try, label %out
try:
  %got = call ptr @mmap(ptr null, i64 %probe, i32 0, i32 34, i32 -1, i64 0)
  %failed = icmp eq ptr %got, inttoptr (i64 -1 to ptr)
  %full = zext i1 %failed to i64
  %full.p = getelementptr i64, ptr %board, i64 3
  store i64 %full, ptr %full.p
  br label %out
out:
  ret void
}
"""


@dataclass(frozen=True)
class Fault:
    """The crash report of a child: its phase and the signal (0: none was caught)."""

    phase: str
    signal: int
    address: int
    out_of_memory: bool
    regions: tuple[Region, ...]

    def where(self) -> str:
        """The faulting address relative to nearby arrays, if there are any."""
        if self.signal not in (signal.SIGSEGV, signal.SIGBUS):
            return ""
        near = next((text for r in self.regions if (text := r.describe(self.address)) is not None), None)
        return f"it touched {near}" if near is not None else f"it touched address {self.address:#x}"


class FaultPage:
    """The shared page that a child writes and its parent reads; successive children reuse it."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SIZE)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        target = detect()
        code = LoadedObject(compile_ir(_HANDLER, target), target)
        self._handler = code.address("fault")
        ctypes.c_void_p.from_address(code.address("board")).value = self._address
        self._probe = ctypes.c_int64.from_address(code.address("probe"))
        code.keep()

    def clear(self) -> None:
        """Resets the page for the next child."""
        _HEAD.pack_into(self._memory, 0, 0, 0, 0, 0, 0)

    def read(self) -> Fault:
        """The last fault that the child recorded."""
        phase, number, address, full, length = _HEAD.unpack_from(self._memory)
        try:
            regions = pickle.loads(self._memory[_HEAD.size : _HEAD.size + length]) if length else ()
        except Exception:  # a wild write may have hit this page too
            regions = ()
        return Fault(PHASES[phase % len(PHASES)], int(number), int(address), bool(full), tuple(regions))

    # --- in the child -------------------------------------------------------------------------------------------------

    def enter(self, phase: str) -> None:
        """Records that the child enters a phase."""
        struct.pack_into("<Q", self._memory, 0, PHASES.index(phase))

    def guard(self, regions: Sequence[Region]) -> None:
        """Publishes the address ranges of arrays to the parent."""
        data = pickle.dumps(tuple(regions))
        if _HEAD.size + len(data) <= _SIZE:
            self._memory[_HEAD.size : _HEAD.size + len(data)] = data
            struct.pack_into("<Q", self._memory, 32, len(data))

    def expect(self, memory_bytes: int | None) -> None:
        """Sets the memory limit; a crash with less than half of it available counts as out of memory."""
        self._probe.value = memory_bytes // 2 if memory_bytes else 0

    def install(self) -> None:
        """Installs the fault handler in this process."""
        action = _Action(handler=self._handler, flags=ctypes.c_int(_SIGINFO | _ONCE).value)
        libc = ctypes.CDLL(None)
        for number in _SIGNALS:
            libc.sigaction(int(number), ctypes.byref(action), None)


class _Action(ctypes.Structure):
    """struct sigaction of the C library on 64-bit Linux."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )
