"""Knobs of a sketch as the schedule asks for them."""

from __future__ import annotations

from collections.abc import Sequence

from searchlab.ir.expr import Like, knob
from searchlab.search import Knob, menu


class Menus:
    """Knobs as they are asked for."""

    def __init__(self) -> None:
        self.knobs: list[Knob] = []

    def __call__(self, name: str, values: Sequence[int]) -> Like:
        """A symbol for one of some values."""
        self.knobs.append(menu(name, values))
        return knob(name)
