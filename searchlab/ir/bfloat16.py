"""Floats of 16 bits in numpy: bfloat16, which numpy lacks, is stored as uint16; both are computed in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.dtype import BFLOAT16, FLOAT16


def rounded(values: npt.ArrayLike, dtype: str) -> npt.NDArray[Any]:
    """The values converted to `dtype`, as a numpy array; bfloat16 values are represented as float32."""
    if dtype == BFLOAT16:
        return from_bits(to_bits(np.asarray(values).astype(np.float32)))
    if dtype != FLOAT16:
        return np.asarray(values).astype(dtype)
    with np.errstate(over="ignore"):  # what is too large becomes infinite
        return np.asarray(values).astype(np.float32).astype(dtype)


def stored(values: npt.ArrayLike, dtype: str) -> npt.NDArray[Any]:
    """The values converted to `dtype`, as an array in which such elements are stored."""
    return to_bits(values) if dtype == BFLOAT16 else rounded(values, dtype)


def numbers(array: npt.ArrayLike, dtype: str) -> npt.NDArray[Any]:
    """The values that an array of such elements holds; those of bfloat16 as float32."""
    return from_bits(array) if dtype == BFLOAT16 else np.asarray(array)


def to_bits(values: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """The bits of numbers as bfloat16, rounded to nearest, ties to even."""
    wide = np.asarray(values, np.float32)
    bits = wide.view(np.uint32)
    even = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)  # rounding up could turn a NaN into an infinity
    return np.where(np.isnan(wide), quiet, even).astype(np.uint16)


def from_bits(bits: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """The values of an array of bfloat16 bits, as float32."""
    return (np.asarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
