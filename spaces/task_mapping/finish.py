"""What surrounds an anchor: prologues and epilogues that join it, and stages that stay on their own."""

from __future__ import annotations

from collections.abc import Callable

from searchlab.errors import ScheduleError
from searchlab.ir.expr import Like, value_of
from searchlab.schedule import Schedule
from searchlab.schedule.primitive import consumers
from searchlab.targets import Target
from spaces.task_mapping.anchor import operands, space_of
from spaces.task_mapping.mapping import repeat, spatial
from spaces.task_mapping.place import extents, place, shape, share

_UNROLLED = 16  # rows of an epilogue's tile that are written out


def attempt(step: Callable[[], object]) -> bool:
    """Whether a step was legal; primitives are pure, so a refused one leaves nothing behind."""
    try:
        step()
    except ScheduleError:
        return False
    return True


def join_epilogues(s: Schedule, block: str, loop: str, unroll: bool = True) -> None:
    """Elementwise readers run on each tile of a stage as soon as it is done."""
    buffer = s.program.blocks[block].store.buffer
    for reader in consumers(s.program, buffer):
        if reader.reduces or not attempt(lambda name=reader.name: s.reverse_compute_at(name, loop)):  # type: ignore[misc]
            continue
        inner = s.loops(reader.name)
        inner = inner[inner.index(loop) + 1 :]
        if inner:
            s.vectorize(inner[-1])
        for lp in inner[:-1] if unroll else ():
            known = value_of(s.program.loops[lp].extent)
            if known is None or known <= _UNROLLED:
                s.unroll(lp)
        join_epilogues(s, reader.name, loop, unroll)


def finish_rest(s: Schedule, target: Target, vectors: Like = 4) -> None:
    """Every stage that nothing has touched yet, by the rule: rows for the cores, columns for the lanes."""
    for name in list(s.program.blocks):
        loops = s.loops(name)
        own = tuple(s.program.loops[lp].var for lp in loops) == s.program.blocks[name].bindings
        if own and loops and all(s.program.loops[lp].kinds == ("serial",) for lp in loops):
            by_rule(s, name, target, vectors)


def by_rule(s: Schedule, name: str, target: Target, vectors: Like) -> None:
    """One worker per output element: neighbouring elements in lanes, the rest shared by the cores."""
    b = s.program.blocks[name]
    whole, rank, count = shape(s, name), len(b.iters), len(space_of(b))
    width = vectors * target.lanes(s.program.buffers[b.store.buffer].dtype)
    if not count or whole[count - 1] == 1 or not operands(b):
        share(s, s.loops(name)[:1] if count else [], target.threads)
        return
    outer = {d: whole[d] for d in range(count)}
    mapping = (
        spatial(*extents(rank, dict(outer)))
        * repeat(*extents(rank, {d: whole[d] for d in range(count, rank)}))
        * repeat(*extents(rank, {count - 1: width}), kind="vectorized")
    )
    loops = place(s, name, mapping)
    share(s, loops[0][: max(1, count - 1)], target.threads)
