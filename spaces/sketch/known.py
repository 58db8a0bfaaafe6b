"""Points known to be fast, sized by the target: searches should find them, and benchmarks race them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from searchlab.ir.expr import value_of
from searchlab.schedule import Schedule
from searchlab.search import Task
from searchlab.tactics import trailing

Choice = dict[str, Any]


def known_points(task: Task) -> list[Choice]:
    """Choices that `Space.chosen` of the default sketch space turns into points; none for operators not listed here."""
    make = _KNOWN.get(task.workload.name)
    return make(task) if make is not None and not task.workload.sizes else []


def divisor(extent: int, most: int) -> int:
    """The largest divisor of `extent` that is at most `most`."""
    return max(d for d in range(1, min(extent, most) + 1) if extent % d == 0)


def _axes(task: Task, block: str) -> dict[str, int]:
    """The extents of a stage's axes, without those of one iteration."""
    loops = Schedule(task.program).loops(block)
    return {lp: e for lp in loops if (e := value_of(task.program.loops[lp].extent) or 1) > 1}


def _choice(sketch: str, unroll: int, **knobs: tuple[int, ...]) -> Choice:
    return {"sketch": sketch, "knobs": {**{k: list(v) for k, v in knobs.items()}, "unroll": unroll}}


def _lanes(task: Task) -> int:
    return task.target.lanes(task.program.buffers[task.program.outputs[0]].dtype)


def _product(task: Task) -> list[Choice]:
    """A block of columns is packed into panels, and each panel is multiplied with every block of rows."""
    block = next(n for n, b in task.program.blocks.items() if b.reduces)
    fused = len(task.program.blocks) > 1
    copy = f"{task.program.inputs[1]}_local@{block}0"
    (i, m), (j, n), (k, depth) = _axes(task, block).items()
    wide = task.target.vector_registers >= 32
    columns = divisor(n, min(64, (4 if wide else 2) * _lanes(task)))
    rows = divisor(m, 4)
    blocks = next(d for d in range(1, n + 1) if n // columns % d == 0 and (d >= 4 or d == n // columns))
    tiles = {i: (1, m // rows, 1, rows), j: (blocks, n // columns // blocks, 1, columns)}
    name = f"pack-fuse2/{copy}" if fused else f"pack/{copy}"
    sums = [(divisor(depth, 8), 64), (divisor(depth, 64), 16)]
    return [_choice(name, unroll, **tiles, **{k: (depth // inner, inner)}) for inner, unroll in sums]


def _convolution(task: Task) -> list[Choice]:
    """Vectors of output channels, a band of rows at a time, input channels in groups."""
    block = next(n for n, b in task.program.blocks.items() if b.reduces)
    axes = _axes(task, block)
    names = [lp.removeprefix(f"{block}_") for lp in axes]
    extent = dict(zip(names, axes.values(), strict=True))
    if "groups" in dict(task.workload.params) and dict(task.workload.params)["groups"] != 1:
        return []
    if trailing(task.program, block) is not None and len(task.program.blocks) == 1:
        return _pixels(task, extent)
    wide = task.target.vector_registers >= 32
    columns, channels = divisor(extent["w"], 14 if wide else 6), divisor(extent["c"], 2 * _lanes(task))
    found = []
    for group, rows in ((16, 7), (16, 4), (64, 7)):
        band, taken = divisor(extent["h"], rows), divisor(extent["ci"], group)
        parts: dict[str, tuple[int, ...]] = {
            "h": (extent["h"] // band, 1, band, 1),
            "w": (1, 1, extent["w"] // columns, columns),
            "c": (extent["c"] // channels, 1, 1, channels),
            "ci": (extent["ci"] // taken, taken),
            **{k: (1, extent[k]) for k in ("kh", "kw") if k in extent},
        }
        knobs = {lp: parts[n] for lp, n in zip(axes, names, strict=True)} | _padding(task)
        found += [_choice(sketch, 16, **knobs) for sketch in ("pack-fuse1", "layout-fuse1")]
    return list({str(c): c for c in found}.values())


def _pixels(task: Task, extent: dict[str, int]) -> list[Choice]:
    """1x1: a block of pixels is packed into panels, each multiplied with every block of output channels."""
    pixels, most = extent["h"] * extent["w"], 4 if task.target.vector_registers >= 32 else 2
    found = []
    for rows, vectors in ((4, most), (8, most // 2)):
        i, j = divisor(extent["c"], rows), divisor(pixels, min(64, vectors * _lanes(task)))
        blocks = next(d for d in range(1, pixels + 1) if pixels // j % d == 0 and (d >= 4 or d == pixels // j))
        tiles = {"c": (1, extent["c"] // i, 1, i), "h_w": (blocks, pixels // j // blocks, 1, j)}
        for most_taken, unroll in ((8, 64), (64, 16)):
            taken = divisor(extent["ci"], most_taken)
            found.append(_choice("collapse/X_local@Y0", unroll, **tiles, ci=(extent["ci"] // taken, taken)))
    return found


def _padding(task: Task) -> dict[str, tuple[int, ...]]:
    if "P" not in task.program.blocks:
        return {}
    row = value_of(task.program.buffers["P"].shape[-1]) or 1
    return {"P_v": (row // divisor(row, 64), divisor(row, 64))}


def _depthwise(task: Task) -> list[Choice]:
    """Each channel is padded into cache and convolved two rows at a time, with all taps unrolled."""
    axes = _axes(task, "Y")
    names = {lp.removeprefix("Y_"): lp for lp in axes}
    h, w, c = (axes[names[x]] for x in "hwc")
    rows, columns = divisor(h, 2), divisor(w, 64)
    knobs: dict[str, tuple[int, ...]] = {}
    knobs |= {names["h"]: (1, h // rows, 1, rows), names["w"]: (1, 1, w // columns, columns), names["c"]: (c, 1, 1, 1)}
    knobs |= {lp: (1, axes[lp]) for lp in ("kh", "kw") if lp in axes}
    return [_choice("tile/P@Y0" if "P" in task.program.blocks else "tile", 64, **knobs)]


def _rows(*stages: str) -> Callable[[Task], list[Choice]]:
    """Every stage of a row before the next row, reductions with one partial result per lane."""

    def make(task: Task) -> list[Choice]:
        width = int(dict(task.workload.params)["cols"])  # type: ignore[arg-type]
        lanes = divisor(width, 64)
        moved = "".join(f"/{s}@Y_i" for s in stages)
        long = [s for s in ("Y", *stages) if s != "D"]
        return [_choice(f"plain{moved}", 1, **{f"{s}_v": (width // lanes, lanes) for s in long})]

    return make


def _norm(task: Task) -> list[Choice]:
    """The sum of squares is divided among threads, each with one partial result per lane."""
    params = dict(task.workload.params)
    size = int(params["rows"]) * int(params["cols"])  # type: ignore[arg-type]
    lanes = divisor(size, 64)
    jobs = divisor(size // lanes, 16 * task.target.threads)
    return [_choice("rfactor_outer(S)", 16, S_r=(jobs, size // lanes // jobs, lanes))]


_KNOWN: dict[str, Callable[[Task], list[Choice]]] = {
    "matmul": _product,
    "dense": _product,
    "conv2d": _convolution,
    "conv2d_bn_relu": _convolution,
    "depthwise_conv2d": _depthwise,
    "softmax": _rows("S", "E", "M"),
    "layer_norm": _rows("D", "V", "S"),
    "l2_norm": _norm,
}
