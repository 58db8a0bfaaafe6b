"""Arrays aligned to cache lines, and to huge pages where they stay in use.

numpy allocates memory 16 bytes after the start of a line, so every vector of 64 bytes crosses two lines: programs that
read such an array in place take up to twice as long. Programs that are compared must use the same alignment.

Small pages lie anywhere in physical memory, so which of them share the lines of a cache is a matter of luck: a layer
norm of 1.5 MB took 31 to 35 us, depending on the allocation, and 29 us in huge pages.  What is bound by arithmetic does
not notice.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.llvm.abi import LINE

Array = npt.NDArray[Any]

_HUGE = 2 << 20  # bytes of a huge page
_WORTH = 128 << 10  # bytes of the smallest array that gets huge pages


def aligned(shape: Sequence[int], dtype: Any) -> Array:
    """An uninitialised array that begins on a cache line."""
    kind: np.dtype[Any] = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    raw = np.empty(size + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + size].view(kind).reshape(tuple(shape))


def lasting(shape: Sequence[int], dtype: Any) -> Array:
    """An uninitialised array for data that are used many times: in huge pages, unless it is small.

    The system provides such pages on first use, which takes longer than memory that was used before: results of single
    calls are better off with `aligned`.
    """
    kind: np.dtype[Any] = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if size < _WORTH:
        return aligned(shape, dtype)
    pages = _pages(-(-size // _HUGE) * _HUGE + _HUGE)
    raw = np.frombuffer(pages, np.uint8)
    start = -raw.ctypes.data % _HUGE
    return raw[start : start + size].view(kind).reshape(tuple(shape))


def placed(array: Array) -> Array:
    """A copy for data that are used many times."""
    copy = lasting(array.shape, array.dtype)
    copy[...] = array
    return copy


def placed_together(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Copies that share one block of memory, each on a cache line: every huge page is full but the last."""
    starts = [0, *accumulate(-(-a.nbytes // LINE) * LINE for a in arrays.values())]
    block = lasting((starts[-1],), np.uint8)
    copies = {}
    for start, (name, array) in zip(starts, arrays.items(), strict=False):
        copies[name] = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        copies[name][...] = array
    return copies


def _pages(size: int) -> mmap.mmap:
    """Memory of its own, in huge pages where the system has them; most systems have none for memory that is shared."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return mmap.mmap(-1, size)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_HUGEPAGE)
    return pages
