"""Compute locations of stages: those worth trying, and moving a stage to one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from searchlab.ir.expr import value_of
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block
from searchlab.schedule import Schedule
from searchlab.schedule.primitive import consumers
from searchlab.tactics import Tiles, attempt
from spaces.common.predicates import fusible_consumer, is_expensive, only_moves_data, would_repeat

ROOT, INLINE = "root", "inline"


@dataclass(frozen=True)
class Location:
    """Where a stage is computed: inlined, at the root, or inside a loop; `label` is its readable form."""

    label: str
    loop: str | None = None


def locations(s: Schedule, block: str, tiled: Sequence[Tiles], levels: int = 3) -> list[Location]:
    """All compute locations of a stage worth trying: inline, root, and after the outer levels of its consumer.

    An expensive stage is neither inlined nor placed where elements would be computed several times.
    """
    found = [
        Location(ROOT),
        *(location for location, _ in _attached(s, block, _attach_points(s, block, tiled, levels))),
    ]
    cheap = not _is_costly(s.program.blocks[block]) and not is_packing(s, block)
    if cheap and attempt(Schedule(s.program).compute_inline, block):
        found.append(Location(INLINE))
    return found


def attached(
    s: Schedule, block: str, tiled: Sequence[Tiles], number: int, levels: int = 3
) -> tuple[Location, Program] | None:
    """The `number`-th (counted from 0) of the stage's `locations` that are loops; None if there are fewer.

    It is returned with the program that has the stage there; later locations are not tried.
    """
    points = _attach_points(s, block, tiled, levels)
    return next(islice(_attached(s, block, points), number, None), None) if number < len(points) else None


def _attached(s: Schedule, block: str, points: Sequence[tuple[str, str]]) -> Iterator[tuple[Location, Program]]:
    """The attachment points that are legal and worth trying, each with the program that has the stage there."""
    costly = _is_costly(s.program.blocks[block])
    for label, loop in points:
        if not (costly and would_repeat(s.program, block, loop)):
            moved = Schedule(s.program)
            if attempt(moved.compute_at, block, loop):
                yield Location(label, loop), moved.program


def _is_costly(block: Block) -> bool:
    return block.reduces or is_expensive(block)


def is_packing(s: Schedule, block: str) -> bool:
    """Whether the purpose of a stage is to change the layout, which inlining would undo."""
    b = s.program.blocks[block]
    return only_moves_data(b) and s.program.buffers[b.store.buffer].scope != "global"


def _attach_points(s: Schedule, block: str, tiled: Sequence[Tiles], levels: int) -> list[tuple[str, str]]:
    readers = consumers(s.program, s.program.blocks[block].store.buffer)
    if not readers:
        return []
    nests = [s.loops(r.name) for r in readers]
    common = [lp for lp in nests[0] if all(lp in nest for nest in nests)]
    for t in tiled:
        ends = [(n, t.end(n)) for n in range(min(levels, len(t.structure))) if t.levels[n]]
        if any(loop in common for _, loop in ends):
            return [(f"{t.block}{n}", loop) for n, loop in ends if loop in common]
    shared = common if len(readers) > 1 else common[:-1]
    return [(loop, loop) for loop in shared if value_of(s.program.loops[loop].extent) != 1]


def place(s: Schedule, block: str, location: Location) -> None:
    """Moves a stage to one of its `locations`."""
    if location.label == INLINE:
        s.compute_inline(block)
    elif location.loop is not None:
        s.compute_at(block, location.loop)


def reader_or_copy(s: Schedule, name: str) -> str:
    """The only consumer of a stage if it is elementwise, else a newly created copy of its results."""
    if fusible_consumer(s.program, name) is None:
        s.cache_write(name)
    reader = fusible_consumer(s.program, name)
    assert reader is not None
    return reader
