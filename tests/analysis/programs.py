"""Small programs with symbols that cover what schedules make: tiles, tails, fusion, stages, layouts, chosen kinds."""

from __future__ import annotations

from collections.abc import Callable

from made_up_intrinsics import fitting
from tensorized_products import tiled

from searchlab.ir import knob
from searchlab.schedule import Schedule
from searchlab.search import Sketch, category, menu, split_knob
from searchlab.workloads import parse


def tiled_matmul() -> Sketch:
    """All levels of tiles, unrolling limited by a symbol, a chosen kind."""
    m, n, k = 12, 16, 6
    s = Schedule(parse(f"matmul:m={m},n={n},k={k}").program)
    i, j, r = s.loops("C")
    rows = s.split(i, [knob(f"i{a}") for a in range(4)])
    columns = s.split(j, [knob(f"j{a}") for a in range(4)])
    k0, k1 = s.split(r, [None, knob("k1")])
    s.reorder(rows[0], columns[0], rows[1], columns[1], k0, rows[2], columns[2], k1, rows[3], columns[3])
    s.choose_kind(rows[0], ["serial", "parallel"], knob("threads"))
    s.vectorize(columns[3])
    s.annotate("C", "unroll_up_to", knob("unroll"))
    knobs = (
        split_knob("i", m, 4), split_knob("j", n, 4), split_knob("k", k, 2), menu("unroll", [0, 8, 64]),
        category("kind", [0, 1], "threads"),
    )  # fmt: skip
    return Sketch("tiled_matmul", knobs, program=s.program)


def tailed_matmul() -> Sketch:
    """Tiles that do not divide, a packed input, a copy in a stage of its own, fused loops in parallel."""
    s = Schedule(parse("matmul:m=7,n=13,k=5").program)
    i, j, k = s.loops("C")
    lanes = knob("lanes")
    s.transform_layout("B", lambda r, c: (c // lanes, r, c % lanes))
    i0, i1 = s.split(i, [None, knob("rows")], tail=True)
    j0, j1 = s.split(j, [None, lanes], tail=True)
    s.reorder(i0, j0, k, i1, j1)
    copied = s.cache_read("C", "A")
    s.compute_at(copied, j0)
    s.unroll(i1)
    s.vectorize(j1)
    s.parallel(s.fuse(i0, j0))
    return Sketch(
        "tailed_matmul", (menu("rows", [1, 2, 3, 4, 7, 9]), menu("lanes", [1, 2, 4, 8, 16])), program=s.program
    )


def padded_conv() -> Sketch:
    """A padding stage inside the tiles of a convolution, with its result written out of a local buffer."""
    s = Schedule(parse("conv2d:ci=4,co=6,h=8,w=6,k=3,padding=1,stride=2").program)
    n, co, h, w, ci, kh, kw = s.loops("Y")
    c0, c1 = s.split(co, [None, knob("c1")])
    h0, h1 = s.split(h, [None, knob("h1")])
    ci0, ci1 = s.split(ci, [knob("ci0"), knob("ci1")])
    s.reorder(n, c0, h0, ci0, kh, kw, ci1, h1, w, c1)
    out = s.cache_write("Y")
    s.reverse_compute_at(out, h0)
    s.compute_at("P", ci0)
    outer = s.fuse(n, c0, h0)
    s.choose_kind(c1, ["serial", "vectorized", "unrolled"], knob("inner"))
    s.choose_kind(kw, ["serial", "unrolled"], knob("taps"))
    s.vectorize(s.loops("P")[-1])
    s.parallel(outer)
    knobs = (
        menu("c1", [1, 2, 3, 6]), menu("h1", [1, 2, 4]), split_knob("ci", 4, 2, symbols=("ci0", "ci1")),
        category("inner", [0, 1, 2]), category("taps", [0, 1]),
    )  # fmt: skip
    return Sketch("padded_conv", knobs, program=s.program)


def rows_softmax() -> Sketch:
    """Several stages of a row, each with its own loops, in one parallel loop."""
    s = Schedule(parse("softmax:rows=6,cols=24").program)
    *stages, last = s.program.blocks
    row = s.loops(last)[0]
    for stage in reversed(stages):
        s.compute_at(stage, row)
    for stage in (*stages, last):
        if len(s.loops(stage)) > 1:
            _, inner = s.split(s.loops(stage)[-1], [None, knob("lanes")], tail=True)
            s.vectorize(inner)
    s.parallel(row)
    return Sketch("rows_softmax", (menu("lanes", [1, 3, 5, 8, 24, 32]),), program=s.program)


def summed_rows() -> Sketch:
    """A reduction taken apart, in blocks of blocks, with loops bound to a GPU."""
    s = Schedule(parse("reduce:shape=8x24,axis=-1,op=sum").program)
    (name,) = s.program.blocks
    row, column = s.loops(name)
    _, inner = s.split(column, [None, knob("lanes")])
    part = s.rfactor(inner)
    s.bind(s.loops(part)[0], "blockIdx.x")
    s.annotate(part, "unroll_up_to", 16)
    return Sketch("summed_rows", (menu("lanes", [1, 2, 3, 4, 6, 8, 12, 24]),), program=s.program)


def called_matmul() -> Sketch:
    """Tiles of calls of an intrinsic that states its pace, and whose tails are not calls."""
    s = tiled(parse("matmul:m=9,n=40,k=24,dtype=uint8"), "avx2_u8s8_8x4", 8, knob("rows"), knob("vectors"))
    s.parallel(s.loops("C_outer")[0])
    return Sketch("called_matmul", (menu("rows", [1, 2, 3, 4, 9]), menu("vectors", [1, 2, 3])), program=s.program)


def unpaced_matmul() -> Sketch:
    """Calls of an intrinsic of one's own, which states no pace, beside a stage without calls."""
    s = Schedule(parse("dense:m=12,n=16,k=8,activation=relu").program)
    name = next(b.name for b in s.program.blocks.values() if b.reduces)
    i, j, k = s.loops(name)
    i0, i1, i2 = s.split(i, [None, knob("rows"), 2])
    j0, j1 = s.split(j, [None, 4])
    k0, k1 = s.split(k, [None, 2])
    s.reorder(i0, j0, k0, i1, i2, j1, k1)
    s.unroll(i1)
    made = fitting(s.program, i2)
    assert made is not None and made.pace is None
    s.tensorize(i2, made.name)
    return Sketch("unpaced_matmul", (menu("rows", [1, 2, 3, 6]),), program=s.program)


SKETCHES: dict[str, Callable[[], Sketch]] = {
    f.__name__: f
    for f in (tiled_matmul, tailed_matmul, padded_conv, rows_softmax, summed_rows, called_matmul, unpaced_matmul)
}
# the statement with most to compute
MAIN = {
    "tiled_matmul": "C", "tailed_matmul": "C", "padded_conv": "Y", "rows_softmax": "E", "summed_rows": "Y_rf",
    "called_matmul": "C", "unpaced_matmul": "C",
}  # fmt: skip
