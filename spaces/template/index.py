"""One integer per configuration as AutoTVM numbers them: mixed radix over the sizes of the knobs, the first fastest."""

from __future__ import annotations

from collections.abc import Sequence

from searchlab.errors import SpaceError
from searchlab.search import Points, Space


def config_index(space: Space, points: Points) -> list[int]:
    """The number of every point; the sketches of a space follow one another."""
    first = _first(space)
    found = []
    for s, *options in points.rows():
        number = 0
        for option, size in zip(reversed(options), reversed(space.sketches[s].sizes.tolist()), strict=True):
            number = number * size + option
        found.append(first[s] + number)
    return found


def config_at(space: Space, indices: Sequence[int]) -> Points:
    """The points with these numbers."""
    first = _first(space)
    rows = []
    for index in indices:
        if not 0 <= index < first[-1]:
            raise SpaceError(f"space '{space.name}' has no configuration {index}: it has {first[-1]}")
        s = next(n for n in range(len(space.sketches)) if index < first[n + 1])
        number, row = index - first[s], [s]
        for size in space.sketches[s].sizes.tolist():
            number, option = divmod(number, size)
            row.append(option)
        rows.append(row)
    return Points.of(rows, space.width)


def _first(space: Space) -> list[int]:
    """The number of the first configuration of every sketch, and how many there are in all."""
    found = [0]
    for sketch in space.sketches:
        found.append(found[-1] + sketch.cartesian)
    return found
