"""Element types: one table of their representations in programs, in memory, in C and in LLVM IR.

numpy has no bfloat16: such an array is held as uint16, the upper half of the bits of a float32 (see `ir.bfloat16`).
The table imports no library, because targets use it too.

float16 and bfloat16 are types of storage.  Every operation on them (a sum, a product, a function) is computed in
float32 and its result rounded to the type at once, to nearest with ties to even, so that it means the same on every
CPU and wherever a schedule computes it.  For + - * / and sqrt this is the correctly rounded result.  Conversions from
and to other types go by way of float32.  A program that wants its sums in float32 says so with `cast`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

INDEX = "index"  # the type of loop variables, sizes and index arithmetic: not an element type
BOOL = "bool"
FLOAT16 = "float16"
BFLOAT16 = "bfloat16"
HALVES = (FLOAT16, BFLOAT16)

Sort = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: `bits` in memory, `storage` is the numpy dtype of arrays that hold such elements.

    `c` and `llvm` are the types of elements in C and of values in LLVM IR; floats of 16 bits are given as their bits,
    and truth in C as a byte that is 0 or 1.
    """

    name: str
    bits: int
    sort: Sort
    storage: str
    c: str
    llvm: str

    @property
    def bytes(self) -> int:
        """The size of one element in memory."""
        return self.bits // 8

    @property
    def described(self) -> str:
        """The numpy dtype of arrays, and what its elements are the bits of if it does not say so."""
        return self.name if self.storage == self.name else f"{self.storage} (the bits of {self.name})"

    @property
    def arithmetic(self) -> str:
        """The type in which operations on such values are computed before they are rounded to it."""
        return "float32" if self.name in HALVES else self.name

    @property
    def limits(self) -> tuple[float, float]:
        """The smallest and the largest value; infinities for floating-point types."""
        if self.sort == "float":
            return float("-inf"), float("inf")
        if self.sort == "bool":
            return 0, 1
        values = self.bits - (self.sort == "int")
        return (-(1 << values) if self.sort == "int" else 0), (1 << values) - 1

    def holds(self, other: DType) -> bool:
        """Whether every number of another type of its sort, integers or floats, is one of this type."""
        if "bool" in (self.sort, other.sort) or (self.sort == "float") != (other.sort == "float"):
            return False
        if self.sort == "float":
            return other.name == self.name or self.bits >= 32 and self.bits >= other.bits
        (low, high), (least, most) = self.limits, other.limits
        return low <= least and most <= high


DTYPES = {
    d.name: d
    for d in (
        DType("float32", 32, "float", "float32", "float", "float"),
        DType("float64", 64, "float", "float64", "double", "double"),
        DType(FLOAT16, 16, "float", "float16", "uint16_t", "i16"),
        DType(BFLOAT16, 16, "float", "uint16", "uint16_t", "i16"),
        DType("int8", 8, "int", "int8", "int8_t", "i8"),
        DType("int16", 16, "int", "int16", "int16_t", "i16"),
        DType("int32", 32, "int", "int32", "int32_t", "i32"),
        DType("int64", 64, "int", "int64", "int64_t", "i64"),
        DType("uint8", 8, "uint", "uint8", "uint8_t", "i8"),
        DType("uint16", 16, "uint", "uint16", "uint16_t", "i16"),
        DType("uint32", 32, "uint", "uint32", "uint32_t", "i32"),
        DType("uint64", 64, "uint", "uint64", "uint64_t", "i64"),
        DType(BOOL, 8, "bool", "bool", "uint8_t", "i1"),
    )
}
FLOATS = tuple(d.name for d in DTYPES.values() if d.sort == "float")
UNSIGNED = tuple(d.name for d in DTYPES.values() if d.sort in ("uint", "bool"))
