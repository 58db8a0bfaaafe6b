"""Where tile factors come from: a space hands in a callable, and transformations ask it for each axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from searchlab.ir.expr import Like, knob
from searchlab.search import Knob, menu, split_knob

Factors = Callable[[str, int, int], Sequence[Like | None]]
"""(axis, extent, parts) -> as many factors, outermost first; one of them may be None and is worked out."""


# The structures of a space have most of their knobs in common: what is worked out about one serves all of them.
_split = lru_cache(maxsize=1 << 10)(split_knob)
_menu = lru_cache(maxsize=1 << 6)(menu)


class KnobFactors:
    """Makes a split knob for every axis that is asked for, and gives its symbols; the outermost factor is left open."""

    def __init__(self, max_inner: int | None = None, knobs: Sequence[Knob] = ()) -> None:
        self.max_inner = max_inner
        self.knobs = list(knobs)

    def __call__(self, axis: str, extent: int, parts: int) -> list[Like | None]:
        made = _split(axis, extent, parts, self.max_inner)
        self.knobs.append(made)
        return [None, *(knob(s) for s in made.symbols[1:])]

    def menu(self, name: str, values: Sequence[int]) -> Like:
        """The symbol of a knob with one of these values."""
        made = _menu(name, tuple(values))
        self.knobs.append(made)
        return knob(made.symbols[0])
