"""The thread pool behind parallel loops: loads and starts the LLVM IR in pool.ll.

It is written in LLVM IR so that no C compiler or OpenMP runtime is needed; pool.ll explains how it works.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from searchlab.llvm.jit import LoadedObject, compile_ir
from searchlab.targets import CpuTarget, detect

MAX_WORKERS = 127
PIECES_PER_THREAD = 4
SPIN_SECONDS = 40e-6
# A sleeping caller needs tens of microseconds to wake up, so it first yields its core for a while.
YIELDS = 200
STACK_BYTES = 8 << 20

_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}

# On systems other than Linux, the scheduler decides where workers wake up.
_NO_PLACEMENT = """
define internal void @send_away(ptr %box) nounwind {
  ret void
}
define internal void @settle(ptr %box) nounwind {
  ret void
}
"""


@cache
def _text(name: str) -> str:
    """A file of LLVM IR next to this module, without its explanatory comments (;;)."""
    # Not through importlib.resources, which takes longer to import than everything else here.
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(";;"))


def pool_ir(target: CpuTarget) -> str:
    """The pool as an LLVM module for `target`."""
    declaration, pause = _PAUSE.get(target.arch, ("", ""))
    return Template(_text("pool.ll")).substitute(
        BOXES=MAX_WORKERS + 1,
        WORKERS=MAX_WORKERS,
        PIECES=PIECES_PER_THREAD,
        YIELDS=YIELDS,
        STACK=STACK_BYTES,
        SETMASK=int(signal.SIG_SETMASK),
        PAUSE=pause,
        DECLARE_PAUSE=declaration,
        PLACEMENT=_text("pool_placement.ll") if "linux" in target.triple else _NO_PLACEMENT,
    )


def parallel_for_address(threads: int) -> int:
    """The address of `parallel_for`, with `threads - 1` workers started; valid for the life of the process.

    In the child of a fork the same address works: the pool starts new workers when a loop asks for them.
    """
    pool = _pool()
    pool.grow(min(threads - 1, MAX_WORKERS))
    return pool.address


@dataclass(frozen=True, slots=True)
class _ThreadPool:
    address: int
    grow: Any
    reset: Any
    spins: int


_loaded: _ThreadPool | None = None
_lock = threading.Lock()


def _pool() -> _ThreadPool:
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = _load()
            os.register_at_fork(after_in_child=_after_fork)
        return _loaded


def _load() -> _ThreadPool:
    target = detect()
    code = LoadedObject(compile_ir(pool_ir(target), target), target)
    signature = ctypes.CFUNCTYPE(None, ctypes.c_int64)
    grow, reset, spin = (signature(code.address(f"pool_{name}")) for name in ("grow", "reset", "spin"))
    address = code.address("parallel_for")
    # Workers are inside this code until the process ends.
    code.keep()
    spins = _count_spins(spin)
    reset(spins)
    return _ThreadPool(address, grow, reset, spins)


def _count_spins(spin: Any, trial: int = 500) -> int:
    """The spin-loop iterations that take `SPIN_SECONDS`: a pause takes 10 to 150 cycles, depending on the CPU."""
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        spin(trial)
        seconds.append(time.perf_counter() - start)
    return max(1, round(SPIN_SECONDS * trial / min(seconds)))


def _after_fork() -> None:
    global _lock
    # Another thread of the parent may have held it.
    _lock = threading.Lock()
    if _loaded is not None:
        _loaded.reset(_loaded.spins)
