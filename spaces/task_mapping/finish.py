"""Stages that stay on their own beside an anchor, scheduled by one rule."""

from __future__ import annotations

from searchlab.ir.expr import Like, minimum
from searchlab.schedule import Schedule
from searchlab.tactics import fresh_stages, operands, space_axes
from searchlab.targets import Target
from spaces.task_mapping.mapping import repeat, spatial
from spaces.task_mapping.place import extents, place, shape, share


def finish_rest(s: Schedule, target: Target, vectors: Like = 4, whole_rows: bool = False) -> None:
    """Every stage that nothing has touched yet, by the rule: rows for the cores, columns for the lanes."""
    for name in fresh_stages(s):
        by_rule(s, name, target, vectors, whole_rows)


def by_rule(s: Schedule, name: str, target: Target, vectors: Like, whole_rows: bool = False) -> None:
    """One worker per output element: neighbouring elements in lanes, the rest shared by the cores.

    With `whole_rows`, there are no more lanes than a row has elements: those beyond its end would only be masked.
    """
    b = s.program.blocks[name]
    whole, rank, count = shape(s, name), len(b.iters), len(space_axes(b))
    width = vectors * target.lanes(s.program.buffers[b.store.buffer].dtype)
    if not count or whole[count - 1] == 1 or not operands(b):
        share(s, s.loops(name)[:1] if count else [], target.threads)
        return
    if whole_rows:
        width = minimum(width, whole[count - 1])
    outer = {d: whole[d] for d in range(count)}
    mapping = (
        spatial(*extents(rank, dict(outer)))
        * repeat(*extents(rank, {d: whole[d] for d in range(count, rank)}))
        * repeat(*extents(rank, {count - 1: width}), kind="vectorized")
    )
    loops = place(s, name, mapping)
    share(s, loops[0][: max(1, count - 1)], target.threads)
