"""Products of bfloat16 on x86: two neighbours of a row of A times the two of each column of B, added in float32.

    C[j] += float32(A[k]) * float32(B[j, k])        j: a vector of columns, k: two elements

B is packed so that the two elements of a column are neighbours: B[k, j] is stored at [k // 2, j, k % 2].  The
instruction adds the two products in an order and with a rounding of its own and flushes denormal numbers to zero.
"""

from __future__ import annotations

from searchlab.intrinsics.intrinsic import Intrinsic, Needs, Pace, Promise
from searchlab.intrinsics.site import CallSite
from searchlab.ir.compute import Builder, total
from searchlab.ir.expr import cast
from searchlab.ir.program import Program

DEPTH = 2
ROUNDED = Promise("pairs of products added with one or two roundings, denormal numbers taken as zero", tolerance=2**-22)


def bfloat_dot(lanes: int) -> Program:
    """The product of two elements with the two of each column."""
    builder = Builder("dot")
    row, columns = builder.input("A", (DEPTH,), "bfloat16"), builder.input("B", (lanes, DEPTH), "bfloat16")
    k = builder.axis("k", DEPTH)
    value = lambda j: total(cast(row[k], "float32") * cast(columns[j, k], "float32"), k)  # noqa: E731
    return builder.program(builder.compute("C", (lanes,), value))


def _made(lanes: int, features: str) -> Intrinsic:
    wide, narrow = f"<{lanes} x float>", f"<{DEPTH * lanes} x bfloat>"

    def emit(site: CallSite) -> None:
        spread = site.splat("i32", lanes, site.load("A", "i32"))
        a, b = site.cast("bitcast", f"<{lanes} x i32>", spread, narrow), site.load("B", narrow)
        function = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
        site.store("C", wide, site.call(wide, function, (wide, site.load("C", wide)), (narrow, a), (narrow, b)))

    name = f"avx512bf16_{lanes}x{DEPTH}"
    needs = Needs("x86_64", features, registers=3)
    return Intrinsic(name, bfloat_dot(lanes), emit, needs, ROUNDED, pace=Pace(1.0, latency=6.0))


INTRINSICS = (_made(16, "avx512f avx512bf16"), _made(8, "avx512vl avx512bf16"), _made(4, "avx512vl avx512bf16"))
