"""Arrays aligned to cache lines.

numpy allocates memory 16 bytes after the start of a line, so every vector of 64 bytes crosses two lines: programs that
read such an array in place take up to twice as long. Programs that are compared must use the same alignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.llvm.abi import LINE

Array = npt.NDArray[Any]


def aligned(shape: Sequence[int], dtype: Any) -> Array:
    """An uninitialised array that begins on a cache line."""
    kind: np.dtype[Any] = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    raw = np.empty(size + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + size].view(kind).reshape(tuple(shape))


def placed(array: Array) -> Array:
    """A copy that begins on a cache line."""
    copy = aligned(array.shape, array.dtype)
    copy[...] = array
    return copy
