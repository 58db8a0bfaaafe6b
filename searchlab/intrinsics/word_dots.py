"""Products of 16-bit integers on x86: two neighbours of a row of A times the two of each column of B, added to 32 bits.

    C[j] += int32(A[k]) * int32(B[j, k])        j: a vector of columns, k: two elements

B is packed so that the two elements of a column are neighbours: B[k, j] is stored at [k // 2, j, k % 2].  Bytes that
are widened while they are packed take two instructions for a product of pairs here, where `byte_dots` without VNNI
need five.  All are exact in 32-bit arithmetic that wraps around.
"""

from __future__ import annotations

from collections.abc import Callable

from searchlab.intrinsics.byte_dots import added, dot
from searchlab.intrinsics.intrinsic import Intrinsic, Needs, Pace
from searchlab.intrinsics.site import CallSite

DEPTH = 2


def _multiplied(function: str, lanes: int) -> Callable[[CallSite], None]:
    wide, pairs = f"<{lanes} x i32>", f"<{DEPTH * lanes} x i16>"

    def emit(site: CallSite) -> None:
        spread = site.splat("i32", lanes, site.load("A", "i32"))
        a, b = site.cast("bitcast", wide, spread, pairs), site.load("B", pairs)
        added(site, lanes, site.call(wide, function, (pairs, a), (pairs, b)))

    return emit


INTRINSICS = tuple(
    Intrinsic(
        f"{family}_s16s16_{lanes}x{DEPTH}",
        dot("int16", "int16", lanes, DEPTH),
        _multiplied(function, lanes),
        Needs("x86_64", family, registers=3),
        pace=Pace(1.0),
    )
    for family, lanes, function in (
        ("avx512bw", 16, "llvm.x86.avx512.pmaddw.d.512"),
        ("avx2", 8, "llvm.x86.avx2.pmadd.wd"),
    )
)
