"""Products of bytes on ARM: four neighbours of a row of A times each of four columns of B, added to 32 bits.

Layouts are those of `byte_dots`; all are exact in 32-bit arithmetic that wraps around.
"""

from __future__ import annotations

from collections.abc import Callable

from searchlab.intrinsics.byte_dots import DEPTH, byte_dot
from searchlab.intrinsics.intrinsic import Intrinsic, Needs, Pace
from searchlab.intrinsics.site import CallSite

LANES = 4
WIDE, NARROW = f"<{LANES} x i32>", f"<{LANES * DEPTH} x i8>"


def _dot(function: str) -> Callable[[CallSite], None]:
    def emit(site: CallSite) -> None:
        spread = site.splat("i32", LANES, site.load("A", "i32"))
        operands = [(NARROW, site.cast("bitcast", WIDE, spread, NARROW)), (NARROW, site.load("B", NARROW))]
        call = site.call(WIDE, f"llvm.aarch64.neon.{function}.v4i32.v16i8", (WIDE, site.load("C", WIDE)), *operands)
        site.store("C", WIDE, call)

    return emit


def _made(function: str, types: str, a: str, b: str, features: str) -> Intrinsic:
    name = f"{function}_{types}_{LANES}x{DEPTH}"
    needs = Needs("aarch64", features, registers=3)
    return Intrinsic(name, byte_dot(a, b, LANES), _dot(function), needs, pace=Pace(0.5))


INTRINSICS = (
    _made("sdot", "s8s8", "int8", "int8", "dotprod"),
    _made("udot", "u8u8", "uint8", "uint8", "dotprod"),
    _made("usdot", "u8s8", "uint8", "int8", "i8mm"),
)
