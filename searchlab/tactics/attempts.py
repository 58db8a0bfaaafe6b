"""Attempting a schedule primitive where only the primitive itself can tell whether it is legal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ParamSpec

from searchlab.errors import ScheduleError
from searchlab.schedule import Schedule

P = ParamSpec("P")


def attempt(step: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> bool:
    """Calls a primitive, as in `attempt(s.compute_at, block, loop)`, and returns whether it was legal.

    Primitives are pure, so a refused one leaves the program unchanged.
    """
    try:
        step(*args, **kwargs)
    except ScheduleError:
        return False
    return True


def fuse_outer(s: Schedule, loops: Sequence[str]) -> str:
    """Fuses as many of the nested loops as is legal, from the outermost inwards; returns the fused loop."""
    for count in range(len(loops), 1, -1):
        try:
            return s.fuse(*loops[:count])
        except ScheduleError:
            continue
    return loops[0]
