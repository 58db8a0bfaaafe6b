"""Tile factors as knobs: a space hands them to the tactics, which ask for each axis that they split."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from searchlab.errors import SpaceError
from searchlab.ir.expr import Like, knob
from searchlab.search import Knob, menu, split_knob

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


def check_structure(structure: str) -> None:
    """Refuses what is not a structure of tiles: threads share the first level, vectors run along the last of space."""
    if not structure.startswith("S") or set(structure) != {"S", "R"} or structure.count("S") < 2:
        accepted = "a word of S (space, at least twice) and R (reduction) that begins with S, such as SSRSRS"
        raise SpaceError(f"structure '{structure}' is not {accepted}")
