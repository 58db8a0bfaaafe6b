"""Tile factors as knobs: spaces pass them to the tactics, which request factors for each axis that they split."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from searchlab.errors import SpaceError
from searchlab.ir.expr import Like, knob
from searchlab.search import Knob, Tails, menu, tile_knob
from searchlab.search.rounding import vector_tails
from searchlab.tactics import RoundedUp

# The structures of a space share most of their knobs, so knobs are cached with their derived tables.
_tile = lru_cache(maxsize=1 << 10)(tile_knob)
_menu = lru_cache(maxsize=1 << 6)(menu)


class KnobFactors:
    """Creates a split knob for every requested axis and returns its symbols; the outermost factor is inferred.

    `width` is the number of lanes of a vector.
    """

    def __init__(
        self, max_inner: int | None = None, knobs: Sequence[Knob] = (), tails: Tails = "never", width: int = 1
    ) -> None:
        self.max_inner, self.tails, self.width = max_inner, tails, width
        self.knobs = list(knobs)

    def __call__(self, axis: str, extent: int, parts: int) -> tuple[Like | None, ...]:
        return self._added(_tile(axis, extent, parts, self.max_inner, self.tails))

    def lanes(self, axis: str, extent: int, parts: int) -> tuple[Like | None, ...]:
        """The same for vectors, which may also round an extent up that no whole number of them divides."""
        tails = vector_tails(extent, self.width, self.tails)
        return self._added(_tile(axis, extent, parts, self.max_inner, tails))

    def exact(self, axis: str, extent: int, parts: int) -> tuple[Like | None, ...]:
        """The same with factors that divide the extent."""
        return self._added(_tile(axis, extent, parts, self.max_inner, "never"))

    def _added(self, made: Knob) -> tuple[Like | None, ...]:
        self.knobs.append(made)
        factors = (None, *(knob(s) for s in made.symbols[1:]))
        return factors if made.covers is None else RoundedUp(factors)

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
