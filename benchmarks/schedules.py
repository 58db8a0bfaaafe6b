"""Hand-written schedules for the benchmarked operators, and examples of the primitives.

Each takes the plain program and the target and returns the scheduled program.  Tile sizes follow from the target: its
vector lanes, its number of vector registers, and its cache sizes.
"""

from __future__ import annotations

from searchlab.ir import Program
from searchlab.ir.walk import walk
from searchlab.schedule import Schedule
from searchlab.schedule.primitive import consumers
from searchlab.targets import Target


def _register_tile(target: Target, rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of accumulators that fill the vector registers and leave room for operands.

    Of several such tiles, the one with the least padding at the edges: 128 rows are 21.3 tiles of 6, but 32 of 4.
    """
    lanes = target.lanes("float32")
    tiles = ((6, 4 * lanes), (8, 3 * lanes)) if target.vector_registers >= 32 else ((6, 2 * lanes), (4, 3 * lanes))
    return min(tiles, key=lambda tile: _rounded_up(rows, tile[0]) * _rounded_up(columns, tile[1]))


def _rounded_up(extent: int, step: int) -> int:
    return -(-extent // step) * step


def _columns_in_cache(target: Target, rows: int, step: int) -> int:
    """The number of columns of `rows` floats that fill much of the second-level cache, as a multiple of `step`."""
    return max(1, int(target.l2 * 0.6) // (4 * rows * step)) * step


def matmul(program: Program, target: Target, block: str = "C", epilogue: str | None = None) -> Program:
    """C = A B: a block of B is packed into panels, and each panel meets every row block of A.

    The register tile is as many rows and vectors as fit; its loops are unrolled and vectorised, so code generation
    keeps it in registers while `k` runs.  An epilogue (bias, activation) runs on each tile before the next one begins.
    """
    s = Schedule(program)
    i, j, k = s.loops(block)
    rows, columns, depth = (int(program.loops[x].extent.value) for x in (i, j, k))  # type: ignore[attr-defined]
    mr, nr = _register_tile(target, rows, columns)
    nc = _columns_in_cache(target, depth, nr)
    panels = s.cache_read(block, program.inputs[1])
    s.transform_layout(panels, lambda k, j: (j // nr, k, j % nr))
    i0, i1 = s.split(i, [None, mr], tail=True)
    j0, j1, j2 = s.split(j, [None, _panels_at_once(s, j, nr, nc // nr, target), nr], tail=True)
    s.reorder(j0, i0, j1, k, i1, j2)
    s.compute_at(panels, j0)
    *_, panel, depth_of_panel, lanes = s.loops(panels)
    s.reorder(depth_of_panel, panel)  # reads rows of B contiguously, and scatters them over the panels
    s.vectorize(lanes)
    s.prefetch(panels, program.inputs[1], depth_of_panel, 4)  # every row is on another page, which no CPU prefetches
    s.unroll(i1)
    s.vectorize(j2)
    if epilogue is not None:
        s.reverse_compute_at(epilogue, j1)
        _write_out(s, epilogue, j1)
    s.parallel(j0)
    return s.program


def _panels_at_once(s: Schedule, loop: str, step: int, most: int, target: Target) -> int:
    """The number of panels of `step` columns per block, at most `most`, such that blocks divide evenly among threads.

    Each thread gets at least two.  With 9 of 64 panels in a block, one of two threads would get only 28.
    """
    panels = -(-int(s.program.loops[loop].extent.value) // step)  # type: ignore[attr-defined]
    blocks = _rounded_up(max(-(-panels // most), 2 * target.threads), target.threads)
    return -(-panels // blocks)


def _write_out(s: Schedule, block: str, loop: str) -> None:
    inner = s.loops(block)[s.loops(block).index(loop) + 1 :]
    s.vectorize(inner[-1])
    for x in inner[:-1]:
        s.unroll(x)


def dense_bias_relu(program: Program, target: Target) -> Program:
    """Y = relu(A B + bias): the matmul with its epilogue on each register tile."""
    return matmul(program, target, "C", "Y")


def conv2d(program: Program, target: Target) -> Program:
    """3x3 convolution in NCHW, computed in vectors of output channels.

    Weights are packed so that the channels of a vector are contiguous; a tile of output columns times channels stays in
    registers; input channels are processed in groups, so that their weights stay in the nearest caches.
    """
    s = Schedule(program)
    wide = target.vector_registers >= 32
    columns, channels, group = (14, 2, 64) if wide else (6, 2, 16)
    lanes = channels * target.lanes("float32")
    n, co, h, w, ci, kh, kw = s.loops("Y")
    weights = s.cache_read("Y", "W")
    s.transform_layout(weights, lambda o, i, y, x: (o // lanes, i, y, x, o % lanes))
    co0, co1 = s.split(co, [None, lanes], tail=True)
    h0, h1 = s.split(h, [None, 7], tail=True)
    w0, w1 = s.split(w, [None, columns], tail=True)
    ci0, ci1 = s.split(ci, [None, group], tail=True)
    s.reorder(n, h0, co0, ci0, h1, w0, ci1, kh, kw, w1, co1)
    s.unroll(w1)
    s.vectorize(co1)
    out = s.cache_write("Y")
    s.reverse_compute_at(out, co0)
    s.transform_layout("Y_local", lambda n, c, h, w: (n, c // lanes, h, w, c % lanes))
    s.vectorize(s.loops(out)[-1])
    s.parallel(s.fuse(n, h0, co0))
    _fill(s, "P")
    s.parallel(s.fuse(*s.loops(weights)[:2]))
    return s.program


def _fill(s: Schedule, stage: str) -> None:
    """A stage that only moves data: channels in parallel, columns in vectors."""
    n, c, _, w = s.loops(stage)
    s.vectorize(w)
    s.parallel(s.fuse(n, c))


def conv2d_1x1(program: Program, target: Target) -> Program:
    """1x1 convolution: a matmul of weights and pixels, the pixels of all rows in one axis, packed into panels."""
    s = Schedule(program)
    lanes = target.lanes("float32")
    mr, nr = (8, 3 * lanes) if target.vector_registers >= 32 else (6, 2 * lanes)
    n, co, h, w, ci, kh, kw = s.loops("Y")
    width, depth = (int(program.loops[x].extent.value) for x in (w, ci))  # type: ignore[attr-defined]
    panels = s.cache_read("Y", "X")
    s.transform_layout(panels, lambda n, c, h, w: (n, c, h * width + w))
    s.transform_layout(panels, lambda n, c, p: (n, p // nr, c, p % nr))
    pixels = s.fuse(h, w)
    i0, i1 = s.split(co, [None, mr], tail=True)
    most = _columns_in_cache(target, 2 * depth, nr) // nr
    j0, j1, j2 = s.split(pixels, [None, _panels_at_once(s, pixels, nr, most, target), nr], tail=True)
    s.reorder(n, j0, i0, j1, ci, kh, kw, i1, j2)
    s.compute_at(panels, j0)
    *_, panel, channel, pixel = s.loops(panels)
    s.reorder(channel, panel)  # reads whole rows of pixels, and scatters them over the panels
    s.vectorize(pixel)
    s.prefetch(panels, "X", channel, 4)
    s.unroll(i1)
    s.vectorize(j2)
    s.parallel(s.fuse(n, j0))
    return s.program


def depthwise(program: Program, target: Target) -> Program:
    """Depthwise 3x3: each channel is padded into cache and convolved two rows at a time, all nine taps unrolled."""
    s = Schedule(program)
    n, c, h, w, kh, kw = s.loops("Y")
    h0, h1 = s.split(h, [None, 2], tail=True)
    s.reorder(n, c, h0, kh, kw, h1, w)
    channels = s.fuse(n, c)
    s.compute_at("P", channels)
    s.vectorize(s.loops("P")[-1])
    for x in (kh, kw, h1):
        s.unroll(x)
    s.vectorize(w)
    s.parallel(channels)
    return s.program


def _fetch_next_row(s: Schedule, row: str) -> None:
    """Prefetches inputs of the next row in the stage with the most arithmetic among those that read them."""
    for name in s.program.inputs:
        readers = [b for b in consumers(s.program, name) if len(b.iters) > 1]
        if readers and len(s.program.buffers[name].shape) > 1:
            s.prefetch(max(readers, key=lambda b: sum(1 for _ in walk(b.store.value))).name, name, row, 1)


def by_rows(program: Program, target: Target) -> Program:
    """softmax, layer norm: all stages of a row before the next row, reductions with one partial result per lane."""
    s = Schedule(program)
    *stages, last = program.blocks
    row = s.loops(last)[0]
    for stage in reversed(stages):
        s.compute_at(stage, row)
    for stage in program.blocks:
        inner = s.loops(stage)[-1]
        if len(program.blocks[stage].iters) > 1:
            _, lanes = s.split(inner, [None, 8 * target.lanes("float32")], tail=True)
            s.vectorize(lanes)
    s.parallel(row)
    _fetch_next_row(s, row)
    return s.program
