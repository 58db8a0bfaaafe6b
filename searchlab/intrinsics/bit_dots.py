"""Products of signs on x86, 32 of them in a word: the bits in which words of A and of each column of B differ.

    C[j] += differing(A[k], B[k, j])        j: a vector of columns, k: a few words

A sum of n products of signs is n - 2 C, if a bit says that a sign is positive.  B needs no packing beyond the bits.
"""

from __future__ import annotations

from collections.abc import Callable

from searchlab.intrinsics.intrinsic import Intrinsic, Needs, Pace
from searchlab.intrinsics.site import CallSite
from searchlab.ir.bits import differing
from searchlab.ir.compute import Builder, total
from searchlab.ir.program import Program

DEPTH = 4
WORD = 32  # bits


def bit_dot(lanes: int, depth: int = DEPTH) -> Program:
    """The bits in which a few words differ from those of each column."""
    builder = Builder("bits")
    row, columns = builder.input("A", (depth,), "int32"), builder.input("B", (depth, lanes), "int32")
    k = builder.axis("k", depth)
    out = builder.compute("C", (lanes,), lambda j: total(differing(row[k], columns[k, j]), k))
    return builder.program(out)


def _counted(lanes: int) -> Callable[[CallSite], None]:
    wide = f"<{lanes} x i32>"

    def emit(site: CallSite) -> None:
        sums = site.load("C", wide)
        for k in range(DEPTH):
            a = site.splat("i32", lanes, site.load("A", "i32", k=k))
            other = site.let(f"xor {wide} {a}, {site.load('B', wide, k=k)}")
            sums = site.let(f"add {wide} {sums}, {site.call(wide, f'llvm.ctpop.v{lanes}i32', (wide, other))}")
        site.store("C", wide, sums)

    return emit


INTRINSICS = tuple(
    Intrinsic(
        f"{family}_bits_{lanes}x{DEPTH}",
        bit_dot(lanes),
        _counted(lanes),
        Needs("x86_64", feature, registers=3),
        free=("B.k",),
        pace=Pace(cycles),
    )
    for family, feature, lanes, cycles in (("avx512", "avx512vpopcntdq", 16, 6.0), ("avx2", "avx2", 8, 20.0))
)
