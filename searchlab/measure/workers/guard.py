"""Memory for candidates: arrays between inaccessible guard pages, and arrays aligned to cache lines."""

from __future__ import annotations

import ctypes
import mmap
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_NO_ACCESS = 0  # PROT_NONE, which the mmap module lacks
_MARK = 0xA5


@dataclass(frozen=True)
class Region:
    """The address range of a guarded array, from `start` up to but excluding `end`."""

    name: str
    start: int
    end: int

    def describe(self, address: int) -> str | None:
        """The position of an address relative to the array; None if it is too far away."""
        page = mmap.PAGESIZE
        if self.end <= address < self.end + page:
            return f"{address - self.end} bytes past the end of {self.name}"
        if self.start - 2 * page <= address < self.start:
            return f"{self.start - address} bytes before the beginning of {self.name}"
        return None


class Guarded:
    """An array that ends at a guard page, with another guard page before it.

    An access beyond the end faults at once.  The gap between the first guard page and the array is less than a page; it
    is filled with a pattern, so that a write into it is detected afterwards.  The memory is shared with children that
    are forked later, so their parent can inspect what they wrote.
    """

    def __init__(self, name: str, shape: Sequence[int], dtype: str | np.dtype[Any]) -> None:
        kind = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        page = mmap.PAGESIZE
        room = -(-size // page) * page
        memory = mmap.mmap(-1, room + 2 * page, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        whole = np.frombuffer(memory, np.uint8)
        _protect(base, page)
        _protect(base + page + room, page)
        self._gap = whole[page : page + room - size]
        self._gap[...] = _MARK
        self.array: Array = whole[page + room - size : page + room].view(kind).reshape(tuple(shape))
        self.region = Region(name, base + page + room - size, base + page + room)

    @staticmethod
    def of(name: str, values: Array) -> Guarded:
        """A guarded copy."""
        made = Guarded(name, values.shape, values.dtype)
        made.array[...] = values
        return made

    def damage(self, values: Array | None = None) -> str | None:
        """Describes illegal writes, if any: before the array, or into it if it should hold `values`.

        Damage is repaired, so that the array can be used again.
        """
        found = None
        if values is not None and not same(self.array, values):
            self.array[...] = values
            found = f"it changes its {self.region.name}"
        if not (self._gap == _MARK).all():
            self._gap[...] = _MARK
            found = f"it writes before the beginning of {self.region.name}"
        return found


def mark(array: Array) -> Array:
    """Fills an array with NaN or an unlikely integer, to expose elements that are not written."""
    if array.dtype.kind == "f":
        array[...] = np.nan
    else:
        array.reshape(-1).view(np.uint8)[...] = _MARK
    return array


def same(a: Array, b: Array) -> bool:
    """Whether two contiguous arrays hold the same bytes."""
    return a.nbytes == b.nbytes and _libc().memcmp(a.ctypes.data, b.ctypes.data, a.nbytes) == 0


@contextmanager
def memory_limit(more: int | None) -> Iterator[None]:
    """Limits the process to mapping at most `more` additional bytes."""
    if more is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = mapped_bytes() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def mapped_bytes() -> int:
    """The size of this process's address space."""
    return _pages("self", 0) * mmap.PAGESIZE


def resident_bytes(pid: int | None = None) -> int:
    """The resident memory of a process, by default this one; 0 if there is no such process."""
    return _pages(pid or "self", 1) * mmap.PAGESIZE


def oom_kills() -> int:
    """The number of processes killed by the system's OOM killer since boot."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def _pages(process: int | str, field: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[field])
    except OSError:
        return 0


def _protect(address: int, size: int) -> None:
    if _libc().mprotect(address, size, _NO_ACCESS):
        raise OSError(ctypes.get_errno(), "a guard page could not be protected")


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    return libc
