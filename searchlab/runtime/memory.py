"""Arrays that begin on a cache line.

Memory of numpy begins 16 bytes after one, so that every vector of 64 bytes lies across two lines: programs that read
such an array where it is take up to twice as long. What is compared must be placed alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_LINE = 64


def aligned(shape: Sequence[int], dtype: Any) -> Array:
    """An array that begins on a cache line; what it holds is not defined."""
    kind: np.dtype[Any] = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    raw = np.empty(size + _LINE, np.uint8)
    start = -raw.ctypes.data % _LINE
    return raw[start : start + size].view(kind).reshape(tuple(shape))


def placed(array: Array) -> Array:
    """A copy that begins on a cache line."""
    copy = aligned(array.shape, array.dtype)
    copy[...] = array
    return copy
