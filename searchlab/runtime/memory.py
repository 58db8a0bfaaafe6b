"""Arrays that begin on a cache line.

Memory of numpy begins 16 bytes after one, so that every vector of 64 bytes lies across two lines: programs that read
such an array where it is take up to twice as long. What is compared must be placed alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.llvm.abi import LINE

Array = npt.NDArray[Any]


def aligned(shape: Sequence[int], dtype: Any) -> Array:
    """An array that begins on a cache line; what it holds is not defined."""
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
