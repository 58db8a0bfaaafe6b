"""Templates of windows that move over every channel by itself: depthwise_conv2d, max_pool2d, avg_pool2d."""

from __future__ import annotations

from searchlab.schedule import Schedule
from searchlab.search.task import Task
from searchlab.tactics import extent
from spaces.template.config import Config
from spaces.template.nests import extents, fill, finish, fit_registers, is_for_one, longer, reduction, share, vectors
from spaces.template.registry import template


@template("windows", operator=("depthwise_conv2d", "qdepthwise_conv2d", "max_pool2d", "avg_pool2d"))
def windows(cfg: Config, s: Schedule, task: Task) -> None:
    """A few output rows at a time in vectors of columns, the taps of the window unrolled or not.

    The padded input is made for a `channel` or a `band` of rows when they are needed, or `whole` before.
    """
    nest = reduction(s, task)
    n, c, h, w = nest.space
    y0, y1 = cfg.split("y", h, 2, tail=True, max_inner=8)
    x0, x1 = cfg.split("x", w, 2, tail=True, sizes=vectors(nest.lanes, extent(s, w), most=8))
    rows, width = (s.program.loops[x].extent for x in (y1, x1))
    fit_registers(cfg, task, nest.lanes, rows, width)
    s.reorder(n, c, y0, x0, *nest.reduce, y1, x1)
    if longer(s, nest.reduce):
        cfg.unrolled("unroll", longer(s, nest.reduce))
    s.unroll(y1)
    s.vectorize(x1)
    finish(s, task, nest.block, x0, unroll=True)
    few = extents(s, [n, c]) < 4 * task.target.threads  # then threads take bands of a channel apart
    if "P" in s.program.blocks:
        _pad(cfg, s, task, c, y0, few)
    share(s, task, [n, c], y0)


def _pad(cfg: Config, s: Schedule, task: Task, channel: str, band: str, few: bool) -> None:
    places = ["whole", "band"] if few else ["whole", "band", "channel"]
    pad = cfg.choose("pad", places if is_for_one(s, "P") else ["whole"])
    if pad == "whole":
        fill(s, task, "P")
    else:
        s.compute_at("P", channel if pad == "channel" else band)
        s.vectorize(s.loops("P")[-1])
