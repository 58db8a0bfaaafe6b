"""Outer products of float32: a column of A times a row of B, added to a tile of C that fills the registers.

    C[i, j] += A[i, k] * B[k, j]        i: rows, j: columns, k: one step

Tiles are sized for the vectors and registers of an instruction set: rows x vectors accumulators, one row of B, and the
element of A that is spread over a vector.  The rows of A and C may be any distance apart.
"""

from __future__ import annotations

from searchlab.intrinsics.intrinsic import Intrinsic, Needs, Pace, Promise
from searchlab.intrinsics.site import CallSite
from searchlab.ir.compute import Builder, total
from searchlab.ir.program import Program

# family, architecture, features, lanes, and tiles as (rows, vectors)
SETS = (
    ("avx2", "x86_64", "avx2 fma", 8, ((6, 2), (4, 3), (4, 2), (12, 1))),
    ("avx512", "x86_64", "avx512f", 16, ((14, 2), (12, 2), (8, 3), (6, 4), (28, 1))),
    ("neon", "aarch64", "neon", 4, ((8, 3), (6, 4), (4, 4), (8, 2))),
)
FUSED = Promise("a fused multiplication and addition for each term, in the order of the description", tolerance=2**-23)


def outer_product(rows: int, columns: int) -> Program:
    """One step of a matrix product."""
    builder = Builder("outer_product")
    a, b = builder.input("A", (rows, 1)), builder.input("B", (1, columns))
    k = builder.axis("k", 1)
    return builder.program(builder.compute("C", (rows, columns), lambda i, j: total(a[i, k] * b[k, j], k)))


def _made(family: str, arch: str, features: str, lanes: int, rows: int, vectors: int) -> Intrinsic:
    type_ = f"<{lanes} x float>"
    function = f"llvm.fma.v{lanes}f32"

    def emit(site: CallSite) -> None:
        parts = [site.load("B", type_, j=lanes * n) for n in range(vectors)]
        for i in range(rows):
            a = site.splat("float", lanes, site.load("A", "float", i=i))
            for n, b in enumerate(parts):
                at = {"i": i, "j": lanes * n}
                site.store("C", type_, site.call(type_, function, (type_, a), (type_, b),
                                                 (type_, site.load("C", type_, **at))), **at)  # fmt: skip

    needs = Needs(arch, features, registers=rows * vectors + vectors + 1)
    name = f"{family}_f32_{rows}x{lanes * vectors}"
    pace = Pace(rows * vectors / 2)
    return Intrinsic(name, outer_product(rows, lanes * vectors), emit, needs, FUSED, free=("A.i", "C.i"), pace=pace)


INTRINSICS = tuple(
    _made(family, arch, features, lanes, rows, vectors)
    for family, arch, features, lanes, tiles in SETS
    for rows, vectors in tiles
)
