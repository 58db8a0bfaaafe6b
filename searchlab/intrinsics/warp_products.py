"""Products of tiles by the tensor cores of NVIDIA GPUs: 16 rows of A times 8 columns of B, added to C by one warp.

    C[i, j] += A[i, k] * B[j, k]

The 32 threads of a warp hold the tiles together, in fragments: a lane g*4 + q has the elements of C in rows g and g + 8
and columns 2*q and 2*q + 1, those of A in the same rows and of B in column g; along k, as many neighbours as fill 32
bits from q times their number on, and as many again behind those of all lanes, up to the depth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from searchlab.dtype import DTYPES
from searchlab.intrinsics.intrinsic import EXACT, Fragments, Intrinsic, Needs, Pace, Promise
from searchlab.intrinsics.site import CallSite
from searchlab.ir.compute import Builder, total
from searchlab.ir.expr import cast
from searchlab.ir.program import Program

Bytes = TypeVar("Bytes", bound=Any)  # numbers, and whatever computes with them
ROWS, COLUMNS = 16, 8
WORD = 32  # bits of a register
SUMS = Promise("sums of products in any order, with float32 accumulators", tolerance=2**-20)
TF32 = Promise("factors of 10 bits, sums in any order, with float32 accumulators", tolerance=2**-9)


def warp_product(types: tuple[str, str], out: str, depth: int) -> Program:
    """The product of two tiles whose rows lie along k."""
    builder = Builder("warp_product")
    a, b = builder.input("A", (ROWS, depth), types[0]), builder.input("B", (COLUMNS, depth), types[1])
    k = builder.axis("k", depth)
    value = lambda i, j: total(cast(a[i, k], out) * cast(b[j, k], out), k)  # noqa: E731
    return builder.program(builder.compute("C", (ROWS, COLUMNS), value))


def room_between_rows(row: Bytes) -> Bytes:
    """Bytes behind rows of so many bytes, a multiple of 16, so that rows are an odd number of 16 bytes apart.

    Then the eight rows that a warp reads at once are in different banks of shared memory.
    """
    found: Bytes = 16 - row % 32
    return found


def _product(function: str, word: str, starts: range, out: str) -> Callable[[CallSite], None]:
    def emit(site: CallSite) -> None:
        a = [site.load("A", "i32", i=row, k=k) for k in starts for row in (0, 8)]
        b = [site.load("B", "i32", k=k) for k in starts]
        places = [(row, column) for row in (0, 8) for column in (0, 1)]
        c = [site.load("C", out, i=row, j=column) for row, column in places]
        words = [(word, x if word == "i32" else site.cast("bitcast", "i32", x, word)) for x in (*a, *b)]
        result = f"{{ {', '.join([out] * 4)} }}"
        done = site.call(result, f"llvm.nvvm.mma.{function}", *words, *((out, x) for x in c))
        for n, (row, column) in enumerate(places):
            site.store("C", out, site.let(f"extractvalue {result} {done}, {n}"), i=row, j=column)

    return emit


def _made(
    name: str, types: tuple[str, str], depth: int, function: str, promise: Promise, pace: float, **more: str
) -> Intrinsic:
    """The product of a depth; its `pace` is that of a multiprocessor of sm_80."""
    out, element = ("int32", "i32") if promise == EXACT else ("float32", "float")
    together = WORD // DTYPES[types[0]].bits
    rows, along = (4, 8, 1), (1, 4, together)
    fragments = Fragments(
        {"A": {"i": rows, "k": along}, "B": {"j": rows, "k": along}, "C": {"i": rows, "j": (1, 4, 2)}}
    )
    return Intrinsic(
        f"mma_{name}_{ROWS}x{COLUMNS}x{depth}",
        warp_product(types, out, depth),
        _product(function, more.get("word", "i32"), range(0, depth, 4 * together), element),
        Needs(more.get("arch", "sm_80")),
        promise,
        free=("A.i", "A.k", "B.j", "B.k", "C.i", "C.j"),
        pace=Pace(pace),
        fragments=fragments,
    )


_HALVES = {"word": "<2 x half>"}
_BYTES = {"u8": "uint8", "s8": "int8"}
INTRINSICS = (
    _made("f16", ("float16", "float16"), 16, "m16n8k16.row.col.f32.f32", SUMS, 2.0, **_HALVES),
    _made("f16", ("float16", "float16"), 8, "m16n8k8.row.col.f32.f32", SUMS, 1.0, arch="sm_75", **_HALVES),
    _made("bf16", ("bfloat16", "bfloat16"), 16, "m16n8k16.row.col.bf16", SUMS, 2.0),
    _made("tf32", ("float32", "float32"), 8, "m16n8k8.row.col.tf32", TF32, 2.0),
    *(
        _made(
            a if a == b else a + b,
            (_BYTES[a], _BYTES[b]),
            32,
            f"m16n8k32.row.col.{a if a == b else f'{a}.{b}'}",
            EXACT,
            2.0,
        )
        for a in _BYTES
        for b in _BYTES
    ),
)
