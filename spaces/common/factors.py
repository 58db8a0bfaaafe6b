"""Tile factors as knobs: spaces pass them to the tactics, which request factors for each axis that they split."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from searchlab.errors import SpaceError
from searchlab.ir.expr import Like, knob
from searchlab.search import Knob, menu, split_knob

# The structures of a space share most of their knobs, so knobs are cached with their derived tables.
_split = lru_cache(maxsize=1 << 10)(split_knob)
_menu = lru_cache(maxsize=1 << 6)(menu)


class KnobFactors:
    """Creates a split knob for every requested axis and returns its symbols; the outermost factor is inferred."""

    def __init__(self, max_inner: int | None = None, knobs: Sequence[Knob] = ()) -> None:
        self.max_inner = max_inner
        self.knobs = list(knobs)

    def __call__(self, axis: str, extent: int, parts: int) -> list[Like | None]:
        made = _split(axis, extent, parts, self.max_inner)
        self.knobs.append(made)
        return [None, *(knob(s) for s in made.symbols[1:])]

    def menu(self, name: str, values: Sequence[int]) -> Like:
        """Creates a knob for one of these values and returns its symbol."""
        made = _menu(name, tuple(values))
        self.knobs.append(made)
        return knob(made.symbols[0])


def check_structure(structure: str) -> None:
    """Rejects an invalid tile structure: the first level is parallel, the last spatial level is vectorised."""
    if not structure.startswith("S") or set(structure) != {"S", "R"} or structure.count("S") < 2:
        accepted = "a word of S (space, at least twice) and R (reduction) that begins with S, such as SSRSRS"
        raise SpaceError(f"structure '{structure}' is not {accepted}")
