"""Numbers of bfloat16, which numpy does not have: held as uint16, computed with as float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.dtype import BFLOAT16


def rounded(values: npt.ArrayLike, dtype: str) -> npt.NDArray[Any]:
    """The values converted to a type, as a numpy array; those of bfloat16 as the float32 numbers that they are."""
    if dtype == BFLOAT16:
        return from_bits(to_bits(np.asarray(values).astype(np.float32)))
    return np.asarray(values).astype(dtype)


def to_bits(values: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """Numbers as bfloat16, rounded to the nearest, and to the even one of two that are equally near."""
    wide = np.asarray(values, np.float32)
    bits = wide.view(np.uint32)
    even = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)  # rounding up could turn a NaN into an infinity
    return np.where(np.isnan(wide), quiet, even).astype(np.uint16)


def from_bits(bits: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """The numbers that an array of bfloat16 holds."""
    return (np.asarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
