"""Products of tiles on x86 with AMX: 16 rows of A times 16 columns of B, added to a tile of C of 16 x 16.

    C[i, j] += A[i, 4*g + k] * B[g, j, k]        g: 16 groups, k: four bytes or two bfloat16 of a group

B is packed in groups as for `byte_dots`.  LLVM configures the tiles and assigns them: a tile of C that is kept in
registers by lowering becomes a tile register.  (Linux lets a process use tiles once it has asked to, see `llvm.jit`.)
"""

from __future__ import annotations

from collections.abc import Callable

from searchlab.intrinsics.intrinsic import EXACT, Intrinsic, Needs, Pace, Promise
from searchlab.intrinsics.site import CallSite
from searchlab.ir.compute import Builder, total
from searchlab.ir.expr import cast
from searchlab.ir.program import Program

SIDE = 16  # rows, columns and groups
ROW = 64  # bytes
TILE = "x86_amx"
ROUNDED = Promise("pairs of products added with one or two roundings, denormal numbers taken as zero", tolerance=2**-20)

PACE = Pace(16.0, latency=52.0, held=4)  # of eight tiles, some hold operands


def tile_product(a: str, b: str, out: str, depth: int) -> Program:
    """The product of two tiles; `depth` elements make a group."""
    builder = Builder("tile_product")
    rows = builder.input("A", (SIDE, SIDE * depth), a)
    groups = builder.input("B", (SIDE, SIDE, depth), b)
    g, k = builder.axis("g", SIDE), builder.axis("k", depth)
    value = lambda i, j: total(cast(rows[i, g * depth + k], out) * cast(groups[g, j, k], out), g, k)  # noqa: E731
    return builder.program(builder.compute("C", (SIDE, SIDE), value))


def _tile(function: str, element: str) -> Callable[[CallSite], None]:
    wide, shape = f"<{SIDE * SIDE} x {element}>", (("i16", str(SIDE)), ("i16", str(ROW)))
    suffix = f"v{SIDE * SIDE}{element if element == 'i32' else 'f32'}"

    def loaded(site: CallSite, operand: str, loop: str) -> str:
        at = (("ptr", site.address(operand)), ("i64", site.stride(operand, loop)))
        return site.call(TILE, "llvm.x86.tileloadd64.internal", *shape, *at)

    def emit(site: CallSite) -> None:
        dense = site.stride("C", "i") == str(ROW)  # as accumulators in registers are
        if dense:
            old = site.call(TILE, f"llvm.x86.cast.vector.to.tile.{suffix}", (wide, site.load("C", wide)))
        else:
            old = loaded(site, "C", "i")
        a, b = loaded(site, "A", "i"), loaded(site, "B", "g")
        new = site.call(
            TILE, f"llvm.x86.{function}.internal", *shape, ("i16", str(ROW)), (TILE, old), (TILE, a), (TILE, b)
        )
        if dense:
            site.store("C", wide, site.call(wide, f"llvm.x86.cast.tile.to.vector.{suffix}", (TILE, new)))
        else:
            store = "llvm.x86.tilestored64.internal"
            site.declare(f"declare void @{store}(i16, i16, ptr, i64, {TILE})")
            at = f"ptr {site.address('C')}, i64 {site.stride('C', 'i')}"
            site.line(f"call void @{store}(i16 {SIDE}, i16 {ROW}, {at}, {TILE} {new})")

    return emit


def _made(types: str, a: str, b: str, out: str, features: str, function: str, promise: Promise = EXACT) -> Intrinsic:
    depth = 2 if a == "bfloat16" else 4
    emit = _tile(function, "float" if out == "float32" else "i32")
    name = f"amx_{types}_{SIDE}x{SIDE}x{SIDE * depth}"
    needs = Needs("x86_64", f"amx-tile {features}", registers=3)
    return Intrinsic(name, tile_product(a, b, out, depth), emit, needs, promise, free=("A.i", "B.g", "C.i"), pace=PACE)


INTRINSICS = (
    _made("s8s8", "int8", "int8", "int32", "amx-int8", "tdpbssd"),
    _made("u8s8", "uint8", "int8", "int32", "amx-int8", "tdpbusd"),
    _made("bf16", "bfloat16", "bfloat16", "float32", "amx-bf16", "tdpbf16ps", ROUNDED),
)
