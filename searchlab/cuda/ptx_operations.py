"""Arithmetic of PTX on whole arrays of threads: a function of typed operands for every operation that kernels use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any]
Operation = Callable[..., Values]

TYPES: dict[str, npt.DTypeLike] = {
    **{f"{kind}{bits}": f"u{bits // 8}" for kind in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"f{bits}": f"f{bits // 8}" for bits in (16, 32, 64)},
    "pred": "bool",
}  # fmt: skip


def _fma(a: Values, b: Values, c: Values) -> Values:
    """Float32 by way of float64, whose product is exact; rounding the sum twice seldom shows in the last bit."""
    wide = np.float64 if a.dtype == np.float32 else np.longdouble
    found: Values = (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(a.dtype)
    return found


def _shift(a: Values, by: Values, op: Callable[[Values, Values], Values]) -> Values:
    bits = a.dtype.itemsize * 8
    clamped = np.minimum(by.astype(np.uint64), bits - 1).astype(a.dtype)
    moved = op(a, clamped)
    far = by.astype(np.uint64) >= bits
    if op is np.right_shift and a.dtype.kind == "i":
        return moved  # a sign fills all bits
    return np.where(far, a.dtype.type(0), moved)


def _quotient(a: Values, b: Values) -> Values:
    if a.dtype.kind == "f":
        return np.divide(a, b)
    whole = np.where(b == 0, 1, b)  # the device gives no particular value either
    return (
        (np.sign(a) * np.sign(whole) * (np.abs(a) // np.abs(whole))).astype(a.dtype)
        if a.dtype.kind == "i"
        else a // whole
    )


def _remainder(a: Values, b: Values) -> Values:
    found: Values = (a - _quotient(a, b) * b).astype(a.dtype)
    return found


def _field(a: Values, at: Values, count: Values) -> Values:
    """`bfe`: some bits of a number, the lowest of which is at a place."""
    bits = a.dtype.itemsize * 8
    top = np.minimum(bits - np.minimum(at + count, bits), bits - 1).astype(a.dtype)
    left = _shift(a, top, np.left_shift)
    return np.where(
        count == 0, a.dtype.type(0), _shift(left, np.minimum(top + at.astype(a.dtype), bits - 1), np.right_shift)
    )


def _high(a: Values, b: Values) -> Values:
    bits = a.dtype.itemsize * 8
    product = a.astype(object) * b.astype(object)
    return np.array([int(x) >> bits for x in product], dtype=object).astype(a.dtype)


def _permute(a: Values, b: Values, selector: Values) -> Values:
    """`prmt`: four bytes chosen of eight, those of `a` first; the highest bit of a choice spreads the sign instead."""
    whole = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
    found = np.zeros(whole.shape, np.uint64)
    for n in range(4):
        choice = (selector.astype(np.uint64) >> np.uint64(4 * n)) & np.uint64(15)
        byte = (whole >> ((choice & np.uint64(7)) * np.uint64(8))) & np.uint64(255)
        sign = np.where(byte >> np.uint64(7) == 1, np.uint64(255), np.uint64(0))
        found |= np.where(choice >= 8, sign, byte) << np.uint64(8 * n)
    return found.astype(a.dtype)


OPERATIONS: dict[str, Operation] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _quotient,
    "rem": _remainder,
    "min": np.fmin,
    "max": np.fmax,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "rcp": np.reciprocal,
    "bfe": _field,
    "copysign": lambda sign, size: np.copysign(size, sign),
    "fma": _fma,
    "prmt": _permute,
    "mad": lambda a, b, c: a * b + c,
    "shl": lambda a, by: _shift(a, by, np.left_shift),
    "shr": lambda a, by: _shift(a, by, np.right_shift),
    "mul.hi": _high,
}


def _unordered(test: Operation) -> Operation:
    return lambda a, b: test(a, b) | np.isnan(a) | np.isnan(b)


_ORDERED: dict[str, Operation] = {
    "eq": np.equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
COMPARISONS: dict[str, Operation] = {
    **_ORDERED,
    "ne": lambda a, b: (a != b) & ~_nan(a) & ~_nan(b),
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
    **{f"{name}u": _unordered(test) for name, test in _ORDERED.items()},
    "neu": np.not_equal,
    "num": lambda a, b: ~(_nan(a) | _nan(b)),
    "nan": lambda a, b: _nan(a) | _nan(b),
}


def _nan(a: Values) -> Values:
    return np.isnan(a) if a.dtype.kind == "f" else np.zeros(a.shape, bool)


_ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def converted(value: Values, target: str, modifiers: tuple[str, ...]) -> Values:
    """`cvt`: rounded as asked; to integers it saturates."""
    kind = np.dtype(TYPES[target])
    if value.dtype.kind != "f":
        return value.astype(kind)
    for name in modifiers:
        if name in _ROUND:
            value = _ROUND[name](value)
    if kind.kind == "f":
        return value.astype(kind)
    limits = np.iinfo(kind)
    wide = np.nan_to_num(value.astype(np.float64), nan=0.0)
    inside = np.clip(wide, float(limits.min), float(limits.max))
    exact = np.where(inside >= float(limits.max), limits.max, 0).astype(kind)
    return np.where(inside >= float(limits.max), exact, np.where(inside >= float(limits.max), 0, inside).astype(kind))
