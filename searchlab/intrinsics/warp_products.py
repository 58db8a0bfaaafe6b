"""Products of tiles by the tensor cores of NVIDIA GPUs: 16 rows of A times 8 columns of B, added to C by one warp.

    C[i, j] += A[i, k] * B[j, k]

The 32 threads of a warp hold the tiles together, in fragments: a lane g*4 + q has the elements of C in rows g and g + 8
and columns 2*q and 2*q + 1, those of A in the same rows and of B in column g; along k, as many neighbours as fill 32
bits from q times their number on, and as many again half of k further on.
"""

from __future__ import annotations

from collections.abc import Callable

from searchlab.dtype import DTYPES
from searchlab.intrinsics.intrinsic import EXACT, Fragments, Intrinsic, Needs, Promise
from searchlab.intrinsics.site import CallSite
from searchlab.ir.compute import Builder, total
from searchlab.ir.expr import cast
from searchlab.ir.program import Program

ROWS, COLUMNS = 16, 8
WORD = 32  # bits of a register
SUMS = Promise("sums of products in any order, with float32 accumulators", tolerance=2**-20)
TF32 = Promise("factors of 10 bits, sums in any order, with float32 accumulators", tolerance=2**-9)


def warp_product(dtype: str, out: str, depth: int) -> Program:
    """The product of two tiles whose rows lie along k."""
    builder = Builder("warp_product")
    a, b = builder.input("A", (ROWS, depth), dtype), builder.input("B", (COLUMNS, depth), dtype)
    k = builder.axis("k", depth)
    value = lambda i, j: total(cast(a[i, k], out) * cast(b[j, k], out), k)  # noqa: E731
    return builder.program(builder.compute("C", (ROWS, COLUMNS), value))


def _product(function: str, word: str, depth: int, out: str) -> Callable[[CallSite], None]:
    half = depth // 2

    def emit(site: CallSite) -> None:
        a = [site.load("A", "i32", i=row, k=k) for k in (0, half) for row in (0, 8)]
        b = [site.load("B", "i32", k=k) for k in (0, half)]
        places = [(row, column) for row in (0, 8) for column in (0, 1)]
        c = [site.load("C", out, i=row, j=column) for row, column in places]
        words = [(word, x if word == "i32" else site.cast("bitcast", "i32", x, word)) for x in (*a, *b)]
        result = f"{{ {', '.join([out] * 4)} }}"
        done = site.call(result, f"llvm.nvvm.mma.{function}", *words, *((out, x) for x in c))
        for n, (row, column) in enumerate(places):
            site.store("C", out, site.let(f"extractvalue {result} {done}, {n}"), i=row, j=column)

    return emit


def _made(types: str, dtype: str, depth: int, function: str, promise: Promise, word: str = "i32") -> Intrinsic:
    out, element = ("int32", "i32") if dtype == "int8" else ("float32", "float")
    together = WORD // DTYPES[dtype].bits
    rows, along = (4, 8, 1), (1, 4, together)
    fragments = Fragments(
        {"A": {"i": rows, "k": along}, "B": {"j": rows, "k": along}, "C": {"i": rows, "j": (1, 4, 2)}}
    )
    return Intrinsic(
        f"mma_{types}_{ROWS}x{COLUMNS}x{depth}",
        warp_product(dtype, out, depth),
        _product(function, word, depth, element),
        Needs("sm_80"),
        promise,
        free=("A.i", "A.k", "B.j", "B.k", "C.i", "C.j"),
        fragments=fragments,
    )


INTRINSICS = (
    _made("f16", "float16", 16, "m16n8k16.row.col.f32.f32", SUMS, "<2 x half>"),
    _made("bf16", "bfloat16", 16, "m16n8k16.row.col.bf16", SUMS),
    _made("tf32", "float32", 8, "m16n8k8.row.col.tf32", TF32),
    _made("s8", "int8", 32, "m16n8k32.row.col.s8", EXACT),
)
