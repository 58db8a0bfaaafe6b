"""`mma` in the emulator: what tensor cores make of the fragments that the lanes of warps hold.

The lane g*4 + q has rows g and g + 8 of A and of the result, column g of B, and columns 2*q and 2*q + 1 of the result;
along k it has neighbours that fill a register, beginning at q times their number, and again behind those of all lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.ir.bfloat16 import from_bits

Words = npt.NDArray[np.uint32]
ROWS, COLUMNS, LANES = 16, 8, 32


@dataclass(frozen=True)
class MmaKind:
    """The depth of a product, how many factors a register holds, and the type of results."""

    depth: int
    together: int
    result: str


_BYTES = {"s8": np.int8, "u8": np.uint8}
KINDS: dict[tuple[str, ...], MmaKind] = {
    ("m16n8k16", "row", "col", "f32", "f16", "f16", "f32"): MmaKind(16, 2, "f4"),
    ("m16n8k8", "row", "col", "f32", "f16", "f16", "f32"): MmaKind(8, 2, "f4"),
    ("m16n8k16", "row", "col", "f32", "bf16", "bf16", "f32"): MmaKind(16, 2, "f4"),
    ("m16n8k8", "row", "col", "f32", "tf32", "tf32", "f32"): MmaKind(8, 1, "f4"),
    **{("m16n8k32", "row", "col", "s32", a, b, "s32"): MmaKind(32, 4, "i4") for a in _BYTES for b in _BYTES},
}


def products(name: tuple[str, ...], a: Words, b: Words, c: Words) -> Words | None:
    """The registers of results, from those of operands: (warp, lane, register); None for an unknown instruction."""
    kind = KINDS.get(name)
    if kind is None:
        return None
    left, right = _factors(a, name[4]), _factors(b, name[5])
    g, q = np.arange(LANES) // 4, np.arange(LANES) % 4
    rows = np.zeros((len(a), ROWS, kind.depth), kind.result)
    columns = np.zeros((len(a), COLUMNS, kind.depth), kind.result)
    for half in range(b.shape[2]):
        for n in range(kind.together):
            k = (half * 4 + q) * kind.together + n
            columns[:, g, k] = right[:, :, half, n]
            for low in range(2):
                rows[:, g + 8 * low, k] = left[:, :, 2 * half + low, n]
    made = np.einsum("wik,wjk->wij", rows, columns)
    found = c.view(kind.result).copy()
    for low in range(2):
        for n in range(2):
            found[:, :, 2 * low + n] += made[:, g + 8 * low, 2 * q + n]
    return found.view(np.uint32)


def _factors(words: Words, type_: str) -> npt.NDArray[Any]:
    """The numbers in registers: (warp, lane, register, number)."""
    whole = np.ascontiguousarray(words)[..., None]
    if type_ in _BYTES:
        return whole.view(_BYTES[type_])
    if type_ == "f16":
        return whole.view(np.float16).astype(np.float32)
    if type_ == "bf16":
        found: npt.NDArray[Any] = from_bits(whole.view(np.uint16))
        return found
    return (whole & np.uint32(0xFFFFE000)).view(np.float32)  # tensor cores look at 10 bits after the point
