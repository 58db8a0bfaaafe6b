"""Element types: one table of their representations in programs, in memory, in C and in LLVM IR.

numpy has no bfloat16: such an array is held as uint16, the upper half of the bits of a float32 (see `ir.bfloat16`).
Code is generated for the types in `GENERATED`; the others can be declared, printed, scheduled and interpreted.  The
table imports no library, because targets use it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

INDEX = "index"  # the type of loop variables, sizes and index arithmetic: not an element type
BOOL = "bool"
BFLOAT16 = "bfloat16"

Sort = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: `bits` in memory, `storage` is the numpy dtype of arrays that hold such elements."""

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
    def limits(self) -> tuple[float, float]:
        """The smallest and the largest value; infinities for floating-point types."""
        if self.sort == "float":
            return float("-inf"), float("inf")
        if self.sort == "bool":
            return 0, 1
        values = self.bits - (self.sort == "int")
        return (-(1 << values) if self.sort == "int" else 0), (1 << values) - 1


DTYPES = {
    d.name: d
    for d in (
        DType("float32", 32, "float", "float32", "float", "float"),
        DType("float64", 64, "float", "float64", "double", "double"),
        DType("float16", 16, "float", "float16", "_Float16", "half"),
        DType(BFLOAT16, 16, "float", "uint16", "uint16_t", "bfloat"),
        DType("int8", 8, "int", "int8", "int8_t", "i8"),
        DType("int16", 16, "int", "int16", "int16_t", "i16"),
        DType("int32", 32, "int", "int32", "int32_t", "i32"),
        DType("int64", 64, "int", "int64", "int64_t", "i64"),
        DType("uint8", 8, "uint", "uint8", "uint8_t", "i8"),
        DType("uint16", 16, "uint", "uint16", "uint16_t", "i16"),
        DType("uint32", 32, "uint", "uint32", "uint32_t", "i32"),
        DType("uint64", 64, "uint", "uint64", "uint64_t", "i64"),
        DType(BOOL, 8, "bool", "bool", "_Bool", "i1"),
    )
}
FLOATS = tuple(d.name for d in DTYPES.values() if d.sort == "float")
UNSIGNED = tuple(d.name for d in DTYPES.values() if d.sort in ("uint", "bool"))
GENERATED = ("float32", "float64", "int8", "uint8", "int32", "int64")
