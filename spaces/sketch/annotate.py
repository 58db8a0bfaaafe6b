"""Annotation: completes derived sketches with compute locations, vectors, threads and unrolling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from searchlab.errors import ScheduleError, SpaceError
from searchlab.ir.program import Program
from searchlab.schedule import Schedule
from searchlab.search import Deferred, Sketch
from searchlab.tactics import (
    fetch_next_rows,
    finish_fused,
    finish_untiled,
    goes_row_by_row,
    read_rows_as_they_lie,
    unroll_up_to,
    vectorize_tile,
)
from spaces.common import Location, attached, locations, place
from spaces.sketch.plan import plan, unrolling, untouched, written_out
from spaces.sketch.state import State

JOBS = 16  # iterations of a parallel loop per core
MOST_FREE = 2  # stages that are placed independently; if there are more, all go to the same level


@dataclass(frozen=True)
class Placed:
    """A state whose stages have compute locations."""

    state: State
    label: tuple[str, ...] = ()
    ahead: bool = False  # whether the next row of inputs is fetched ahead

    @property
    def name(self) -> str:
        """The steps of the derivation, then the compute locations of stages."""
        return "/".join((self.state.name, *self.label, *(["ahead"] if self.ahead else [])))

    def at(self, block: str, location: Location, program: Program) -> Placed:
        """The state with one more stage placed, as it is in the program."""
        label = self.label if location.label == "root" else (*self.label, f"{block}@{location.label}")
        return Placed(replace(self.state, program=program), label)


def annotate(state: State, places: bool = True) -> Iterator[Sketch]:
    """One sketch for every combination of compute locations of the stages that no rule has placed.

    Where they go row by row, there is another one that fetches the next row ahead.  Without `places` there is one
    sketch: each of these stages is computed at the root, before its consumers.
    """
    for placed in _variants(_placements(state)) if places else [Placed(state)]:
        knobs = plan(placed.state)
        if knobs is not None:
            program, make = placed.state.program, partial(_planned, placed)
            conditions = placed.state.conditions
            yield Deferred(placed.name, knobs, program.assumptions, make, conditions, program.tensorized)
        elif (sketch := _finish(placed)) is not None:
            yield sketch


def _planned(placed: Placed) -> Sketch:
    sketch = _finish(placed)
    if sketch is None:
        raise SpaceError(f"sketch '{placed.name}' cannot be finished as planned")
    return sketch


def _variants(found: Iterable[Placed]) -> Iterator[Placed]:
    for placed in found:
        yield placed
        if not placed.state.steps and goes_row_by_row(Schedule(placed.state.program)):
            yield replace(placed, ahead=True)


# --- places -----------------------------------------------------------------------------------------------------------


def _placements(state: State) -> Iterator[Placed]:
    done, outputs = state.done, state.program.outputs
    free = [n for n, b in state.program.blocks.items() if n not in done and b.store.buffer not in outputs]
    free.reverse()
    if len(free) <= MOST_FREE:
        yield from _one_by_one(Placed(state), free)
        return
    for level in range(-1, 3):
        yield from _together(Placed(state), free, level)


def _one_by_one(placed: Placed, free: Sequence[str]) -> Iterator[Placed]:
    if not free:
        yield placed
        return
    block, *rest = free
    for location in _choices(placed.state, block):
        yield from _one_by_one(_put(placed, block, location), rest)


def _together(placed: Placed, free: Sequence[str], level: int) -> Iterator[Placed]:
    """All stages at the root (level -1), or inside the loop with that number around their consumers, if it exists."""
    if level < 0:
        yield placed
        return
    moved = False
    for block in free:
        if level > 0 and block in dict(placed.state.packed):  # packing happens at the root or outermost
            continue
        found = attached(Schedule(placed.state.program), block, placed.state.tiled, level)
        if found is not None:
            placed = placed.at(block, *found)
            moved = True
    if moved:
        yield placed


def _choices(state: State, block: str) -> list[Location]:
    found = locations(Schedule(state.program), block, state.tiled)
    return found[:2] if block in dict(state.packed) else found


def _put(placed: Placed, block: str, location: Location) -> Placed:
    s = Schedule(placed.state.program)
    place(s, block, location)
    return placed.at(block, location, s.program)


# --- the rest ---------------------------------------------------------------------------------------------------------


def _finish(placed: Placed) -> Sketch | None:
    """Adds vectors, threads and unrolling; None if they are illegal for these compute locations."""
    state = placed.state
    s, factors = Schedule(state.program), state.factors()
    try:
        for tiles in state.tiled:
            vectorize_tile(s, tiles)
        for fused in state.fused:
            finish_fused(s, fused.block, fused.tiles)
        for copy, panel in state.packed:
            if panel is not None:
                read_rows_as_they_lie(s, copy, panel)
        for block in untouched(state):
            finish_untiled(s, block, state.vector_factors(factors), JOBS * state.task.target.threads)
        if placed.ahead:
            fetch_next_rows(s)
    except ScheduleError:
        return None
    unroll = factors.menu("unroll", unrolling(s.program))
    for block in written_out(s.program):
        unroll_up_to(s, block, unroll)
    return Sketch(placed.name, tuple(factors.knobs), state.conditions, s.program)
