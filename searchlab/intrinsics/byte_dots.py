"""Products of bytes on x86: four neighbours of a row of A times each of several columns of B, added to 32 bits.

    C[j] += int32(A[k]) * int32(B[j, k])        j: a vector of columns, k: four bytes

B is packed so that the four bytes of a column are neighbours: B[k, j] is stored at [k // 4, j, k % 4].  All are exact
in 32-bit arithmetic that wraps around, unless names say what range they need: `u7` are bytes 0 to 127, `s7` -64 to 64.
"""

from __future__ import annotations

from collections.abc import Callable

from searchlab.intrinsics.intrinsic import EXACT, Intrinsic, Needs, Pace, Promise
from searchlab.intrinsics.site import CallSite
from searchlab.ir.compute import Builder, total
from searchlab.ir.expr import cast
from searchlab.ir.program import Program

DEPTH = 4
GROUPS = 4
TYPES = {"u8": "uint8", "s8": "int8", "u7": "uint8", "s7": "int8"}
RANGES = {"u7": (0, 127), "s7": (-64, 64)}
# What a call takes in a tile of several rows and vectors, which share the widening of A and of B.
ONE_DOT, SIGNED_DOT, SIGNED_GROUPS = Pace(0.5), Pace(1.25), Pace(3.5)
WIDENED, SATURATING = Pace(3.0), Pace(1.5)


def dot(a: str, b: str, lanes: int, depth: int) -> Program:
    """The product of a few integers with those of each column."""
    builder = Builder("dot")
    row, columns = builder.input("A", (depth,), a), builder.input("B", (lanes, depth), b)
    k = builder.axis("k", depth)
    out = builder.compute("C", (lanes,), lambda j: total(cast(row[k], "int32") * cast(columns[j, k], "int32"), k))
    return builder.program(out)


def byte_dot(a: str, b: str, lanes: int) -> Program:
    """The product of four bytes with the four of each column."""
    return dot(a, b, lanes, DEPTH)


def grouped_dot(a: str, b: str, lanes: int, groups: int) -> Program:
    """The product of several groups of four bytes with those of each column."""
    builder = Builder("dot")
    row, columns = builder.input("A", (groups * DEPTH,), a), builder.input("B", (groups, lanes, DEPTH), b)
    g, k = builder.axis("g", groups), builder.axis("k", DEPTH)
    out = builder.compute(
        "C",
        (lanes,),
        lambda j: total(cast(row[g * DEPTH + k], "int32") * cast(columns[g, j, k], "int32"), g, k),
    )
    return builder.program(out)


def _spread(site: CallSite, lanes: int, **at: int) -> str:
    """The four bytes of A, the same in each 32-bit lane."""
    return site.splat("i32", lanes, site.load("A", "i32", **at))


def _bytes(site: CallSite, lanes: int, value: str) -> str:
    return site.cast("bitcast", f"<{lanes} x i32>", value, f"<{4 * lanes} x i8>")


def added(site: CallSite, lanes: int, value: str) -> None:
    """Adds a vector to C."""
    wide = f"<{lanes} x i32>"
    site.store("C", wide, site.let(f"add {wide} {site.load('C', wide)}, {value}"))


# --- one instruction for four products --------------------------------------------------------------------------------


def _dot(function: str, lanes: int) -> Callable[[CallSite], None]:
    """The instruction itself."""
    wide, narrow = f"<{lanes} x i32>", f"<{4 * lanes} x i8>"

    def emit(site: CallSite) -> None:
        a = _bytes(site, lanes, _spread(site, lanes))
        b = site.load("B", narrow)
        site.store("C", wide, site.call(wide, function, (wide, site.load("C", wide)), (narrow, a), (narrow, b)))

    return emit


def _dot_of_signed(function: str, lanes: int, groups: int = 1) -> Callable[[CallSite], None]:
    """a * b = (a + 128) * b - 128 * b: the instruction takes a + 128 as unsigned, and 128 * b serves all rows of A.

    Where the sums wrap around they differ by multiples of 2^32, so the difference is exact.  It is taken once for all
    groups, which therefore are faster together.
    """
    wide, narrow = f"<{lanes} x i32>", f"<{4 * lanes} x i8>"
    halves = (narrow, "splat (i8 -128)")  # 128, unsigned

    def emit(site: CallSite) -> None:
        at = [{"g": g} if groups > 1 else {} for g in range(groups)]
        b = [site.load("B", narrow, **x) for x in at]
        surplus = "zeroinitializer"
        for part in b:
            surplus = site.call(wide, function, (wide, surplus), halves, (narrow, part))
        total = site.let(f"sub {wide} {site.load('C', wide)}, {surplus}")
        for x, part in zip(at, b, strict=True):
            a = site.let(f"xor {narrow} {_bytes(site, lanes, _spread(site, lanes, **x))}, {halves[1]}")
            total = site.call(wide, function, (wide, total), (narrow, a), (narrow, part))
        site.store("C", wide, total)

    return emit


# --- widened to 16 bits -----------------------------------------------------------------------------------------------


def _widened(function: str, lanes: int, signed: bool) -> Callable[[CallSite], None]:
    """Products of 16-bit numbers, added in pairs: even bytes by even ones, odd by odd.

    Even bytes are widened by shifts inside 16 bits, odd ones by one shift, so that no byte changes its lane.
    """
    wide, pairs = f"<{lanes} x i32>", f"<{2 * lanes} x i16>"

    def halves(site: CallSite, value: str, shift: str) -> tuple[str, str]:
        x = site.cast("bitcast", wide, value, pairs)
        low = site.let(f"{shift} {pairs} {site.let(f'shl {pairs} {x}, splat (i16 8)')}, splat (i16 8)")
        return low, site.let(f"{shift} {pairs} {x}, splat (i16 8)")

    def emit(site: CallSite) -> None:
        a = halves(site, _spread(site, lanes), "ashr" if signed else "lshr")
        b = halves(site, site.load("B", wide), "ashr")
        even, odd = (site.call(wide, function, (pairs, x), (pairs, y)) for x, y in zip(a, b, strict=True))
        added(site, lanes, site.let(f"add {wide} {even}, {odd}"))

    return emit


def _saturating(product: str, pairs_function: str, lanes: int) -> Callable[[CallSite], None]:
    """Pairs of products are added in 16 bits, which saturates beyond 32767: exact for smaller bytes only."""
    wide, pairs, narrow = f"<{lanes} x i32>", f"<{2 * lanes} x i16>", f"<{4 * lanes} x i8>"

    def emit(site: CallSite) -> None:
        a, b = _bytes(site, lanes, _spread(site, lanes)), site.load("B", narrow)
        sums = site.call(pairs, product, (narrow, a), (narrow, b))
        added(site, lanes, site.call(wide, pairs_function, (pairs, sums), (pairs, "splat (i16 1)")))

    return emit


# --- all of them ------------------------------------------------------------------------------------------------------


def _made(
    family: str, types: str, lanes: int, features: str, emit: Callable[[CallSite], None], pace: Pace
) -> Intrinsic:
    a, b = types[:2], types[2:]
    small = {name: RANGES[t] for name, t in (("A", a), ("B", b)) if t in RANGES}
    limits = ", ".join(f"{name} is in {low}..{high}" for name, (low, high) in small.items())
    promise = Promise(f"exact where {limits}", small) if small else EXACT
    name = f"{family}_{types}_{lanes}x{DEPTH}"
    needs = Needs("x86_64", features, registers=4 if small else 3)  # that of ones, too
    return Intrinsic(name, byte_dot(TYPES[a], TYPES[b], lanes), emit, needs, promise, pace=pace)


def _vnni(lanes: int) -> tuple[Intrinsic, ...]:
    """The 512-bit form does not exist on CPUs that have AVX-VNNI only."""
    features = "avx512f avx512vnni" if lanes == 16 else "avxvnni or avx512vl avx512vnni"
    function = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    grouped = Intrinsic(
        f"vnni_s8s8_{lanes}x{GROUPS * DEPTH}",
        grouped_dot("int8", "int8", lanes, GROUPS),
        _dot_of_signed(function, lanes, GROUPS),
        Needs("x86_64", features, registers=3),
        free=("B.g",),
        pace=SIGNED_GROUPS,
    )
    return (
        _made("vnni", "u8s8", lanes, features, _dot(function, lanes), ONE_DOT),
        _made("vnni", "s8s8", lanes, features, _dot_of_signed(function, lanes), SIGNED_DOT),
        grouped,
    )


INTRINSICS = (
    *(x for lanes in (16, 8, 4) for x in _vnni(lanes)),
    *(
        _made("vnniint8", "s8s8", lanes, "avxvnniint8", _dot(f"llvm.x86.avx2.vpdpbssd.{32 * lanes}", lanes), ONE_DOT)
        for lanes in (8, 4)
    ),
    *(
        _made(family, types, lanes, family, _widened(function, lanes, types == "s8s8"), WIDENED)
        for family, lanes, function in (
            ("avx512bw", 16, "llvm.x86.avx512.pmaddw.d.512"),
            ("avx2", 8, "llvm.x86.avx2.pmadd.wd"),
        )
        for types in ("u8s8", "s8s8")
    ),
    *(
        _made(family, types, lanes, family, _saturating(product, function, lanes), SATURATING)
        for family, lanes, product, function in (
            ("avx512bw", 16, "llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512"),
            ("avx2", 8, "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"),
        )
        for types in ("u7s8", "u8s7")
    ),
)
