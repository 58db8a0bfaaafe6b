"""Templates of chains of functions of single elements."""

from __future__ import annotations

from searchlab.schedule import Schedule
from searchlab.search.task import Task
from searchlab.tactics import extent
from spaces.template.config import Config
from spaces.template.nests import share, vectors
from spaces.template.registry import template


@template("chain", operator="elementwise")
def chain(cfg: Config, s: Schedule, task: Task) -> None:
    """All functions of an element at once, in vectors: row by row, or over all elements as one line."""
    *stages, last = s.program.blocks
    for stage in stages:
        s.compute_inline(stage)
    *around, column = s.loops(last)
    if cfg.choose("shape", ["line", "rows"]) == "line":
        around, column = [], s.fuse(*around, column)
    lanes = task.target.lanes(s.program.buffers[last].dtype)
    sizes = vectors(lanes, extent(s, column), most=8)
    block, _, inner = cfg.split("x", column, 3, tail=True, max_factor=4096, sizes=sizes)
    s.vectorize(inner)
    s.annotate(last, "unroll_up_to", cfg.knob("unroll", [1, 4, 8]) * s.program.loops[inner].extent)
    share(s, task, around, block)
