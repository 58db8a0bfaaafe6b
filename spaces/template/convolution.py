"""Templates of convolutions: conv1d, conv2d, conv3d, conv2d_bn_relu, conv2d_transpose, capsule_conv2d,
qconv2d.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from searchlab.ir.algebra import ceildiv
from searchlab.ir.expr import Binary, Expr, Var
from searchlab.ir.walk import walk
from searchlab.schedule import Schedule
from searchlab.search.task import Task
from searchlab.tactics import extent, intermediate_results, lay_in_panels, moves_with, operands, phases
from spaces.template.config import Config
from spaces.template.nests import (
    axis_of,
    extents,
    fill,
    finish,
    fit_registers,
    is_for_one,
    longer,
    operand,
    panels,
    reduction,
    share,
    vectors,
)
from spaces.template.products import ProductLoops, split_sums, tiled
from spaces.template.registry import template

PLANES = ("conv1d", "conv2d", "conv3d", "conv2d_bn_relu", "conv2d_transpose", "qconv2d")


@dataclass(frozen=True)
class Window:
    """The loops of a convolution by what they do.

    around: images and depth; phases of the output that are interleaved; band: output rows; columns; channels of the
    output; tile: further loops of the output that are always in registers; inputs: channels of the input; taps: the
    window.
    """

    block: str
    around: tuple[str, ...]
    phases: tuple[str, ...]
    band: str | None
    columns: str
    channels: str
    tile: tuple[str, ...]
    inputs: str | None
    taps: tuple[str, ...]
    lanes: int


def window(s: Schedule, task: Task) -> Window:
    """The loops of a convolution over (n, c, ..., h, w), with the phases of a transposed one before h and w."""
    nest = reduction(s, task)
    phased = tuple(nest.space[n] for n in phases(s.program, s.program.blocks[nest.block]))
    n, c, *place = (lp for lp in nest.space if lp not in phased)
    band = place[-2] if len(place) > 1 else None
    grouped = len(nest.reduce) == len(place)  # one input channel per group: there is no sum over them
    inputs, taps = (None, nest.reduce) if grouped else (nest.reduce[0], nest.reduce[1:])
    return Window(nest.block, (n, *place[:-2]), phased, band, place[-1], c, (), inputs, taps, nest.lanes)


def groups(s: Schedule, w: Window) -> Window:
    """Channels of the output taken apart into groups, so that the input's channels follow from the group alone."""
    axis = axis_of(s, w.block, w.channels)
    for ld in operands(s.program.blocks[w.block]):
        for i in ld.indices:
            per_group = _divisor(i, axis)
            if per_group is not None:
                group, channels = s.split(w.channels, [None, per_group])
                return replace(w, around=(*w.around, group), channels=channels)
    return w


def _divisor(e: Expr, axis: Var) -> Expr | None:
    """The divisor in an index such as c // 8 * 4 + k."""
    found = (x for x in walk(e) if isinstance(x, Binary) and x.op == "floordiv" and x.a == axis)
    return next((x.b for x in found), None)


def _all_to_all(s: Schedule, w: Window) -> bool:
    """Whether every output channel comes from every input channel: only the weights move with the output's channels."""
    b, axis = s.program.blocks[w.block], axis_of(s, w.block, w.channels)
    return len({ld.buffer for ld in operands(b) if moves_with(ld, axis)}) == 1


@template("columns", operator=PLANES)
def columns(cfg: Config, s: Schedule, task: Task) -> None:
    """Vectors of output columns, register rows of output channels: the input is read as it lies."""
    w = groups(s, window(s, task))
    around = (*w.around, *((w.band,) if w.band is not None else ()))
    sums = (*((w.inputs,) if w.inputs is not None else ()), *w.taps)
    c0, c1 = cfg.split("c", w.channels, 2, tail=True, max_inner=16)
    x0, x1 = cfg.split("x", w.columns, 2, tail=True, sizes=vectors(w.lanes, extent(s, w.columns)))
    rows, width = (s.program.loops[x].extent for x in (c1, x1))
    fit_registers(cfg, task, w.lanes, rows, width)
    _, inner = split_sums(cfg, s, sums, partial=False)
    s.reorder(*around, c0, x0, *w.phases, *inner, c1, x1)
    s.unroll(c1)
    s.vectorize(x1)
    finish(s, task, w.block, x0, unroll=True)
    banded = _pad(cfg, s, task, around[-1])
    share(s, task, around, None if banded else c0)


def _pad(cfg: Config, s: Schedule, task: Task, home: str) -> bool:
    """The padded input: all of it first, or inside a loop what its body reads; says whether it is inside."""
    if "P" not in s.program.blocks:
        return False
    if cfg.choose("pad", ["whole", "band"] if is_for_one(s, "P") else ["whole"]) == "whole":
        fill(s, task, "P")
        return False
    s.compute_at("P", home)
    s.vectorize(s.loops("P")[-1])
    return True


@template("channels", operator=PLANES)
def channels(cfg: Config, s: Schedule, task: Task) -> None:
    """Vectors of output channels, register rows of output columns; weights are packed so that a vector is one load."""
    w = window(s, task)
    if not _all_to_all(s, w):
        cfg.skip("the channels of a vector belong to several groups")
    by_channels(cfg, s, task, w)


@template("channels", operator="capsule_conv2d")
def capsules(cfg: Config, s: Schedule, task: Task) -> None:
    """Vectors of output capsules; the elements of a capsule are all in registers."""
    nest = reduction(s, task)
    n, h, w, c, i, j = nest.space
    kh, kw, ci, k = nest.reduce
    by_channels(cfg, s, task, Window(nest.block, (n,), (), h, w, c, (i, j), ci, (kh, kw, k), nest.lanes))


def by_channels(cfg: Config, s: Schedule, task: Task, w: Window) -> None:
    """Bands of output rows, blocks of output channels, groups of input channels whose weights stay in cache."""
    axis, weights = axis_of(s, w.block, w.channels), operand(s, w.block, [w.channels])
    ahead = cfg.choose("pack", ["ahead", "whole"] if weights.read.buffer in task.weights else ["whole"]) == "ahead"
    c0, c1 = cfg.split("c", w.channels, 2, tail=True, sizes=vectors(w.lanes, extent(s, w.channels)))
    x0, x1 = cfg.split("x", w.columns, 2, tail=True, max_inner=28)
    y0, y1 = ([y] for y in cfg.split("y", w.band, 2, tail=True, max_inner=16)) if w.band else ([], [])
    z0, z1 = ([z] for z in cfg.split("z", w.inputs, 2, tail=extent(s, w.inputs) is None)) if w.inputs else ([], [])
    rows, width = (s.program.loops[x].extent for x in (x1, c1))
    _fit(cfg, s, task, w, rows, width)
    s.reorder(*w.around, *y0, c0, *w.phases, *z0, *y1, x0, *z1, *w.taps, x1, *w.tile, c1)
    if longer(s, w.taps):
        cfg.unrolled("unroll", longer(s, w.taps), most=max(1, 32 // (extents(s, w.tile) // 2 or 1)))
    s.unroll(x1, *w.tile)
    s.vectorize(c1)
    name = panels(s, weights, width, ahead)
    if not ahead:
        fill(s, task, name)
    _write(s, task, w, c0, axis, width)
    banded = _pad(cfg, s, task, (y0 or [w.around[-1]])[0])
    share(s, task, w.around, y0[0] if y0 else None if banded else c0)


def _fit(cfg: Config, s: Schedule, task: Task, w: Window, rows: Expr, width: Expr) -> None:
    """The tile fits the registers; what always belongs to it may fill them alone."""
    always = extents(s, w.tile)
    if always == 1:
        fit_registers(cfg, task, w.lanes, rows, width)
    else:
        cfg.require(rows * always * ceildiv(width, w.lanes) <= max(task.target.vector_registers, always))


def _write(s: Schedule, task: Task, w: Window, home: str, axis: Var, width: Expr) -> None:
    """The tile lies with its vectors side by side; what follows brings the elements back into order."""
    results = intermediate_results(s, w.block)
    dimension = s.program.blocks[w.block].store.indices.index(axis)
    finish(s, task, w.block, home)
    lay_in_panels(s, results, dimension, width)


@template("pixels", operator=PLANES)
def pixels(cfg: Config, s: Schedule, task: Task) -> None:
    """A 1x1 convolution is a product of weights and pixels, the pixels of all rows in one axis."""
    w = window(s, task)
    if longer(s, (*w.taps, *w.phases)) or w.inputs is None or not _all_to_all(s, w):
        cfg.skip("its window is larger than one pixel, or it has groups or phases")
    assert w.inputs is not None
    n, *deep = w.around
    place = [*deep, *([w.band] if w.band else []), w.columns]
    data = operand(s, w.block, place)
    shapes = s.program.buffers
    if shapes[data.read.buffer].shape[2:] != shapes[s.program.blocks[w.block].store.buffer].shape[2:]:
        cfg.skip("its stride leaves pixels out")
    whole = s.fuse(*place) if len(place) > 1 else place[0]
    product = ProductLoops(w.block, (n,), w.channels, whole, (w.inputs, *w.taps), w.lanes, data)
    tiled(cfg, s, task, product, ["none", "whole", "panel"])
