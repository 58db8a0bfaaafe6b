"""Wishes: what the knobs of a structure should be, and the valid points that come nearest to it.

    nearest(space, [Wish("pack/*", {"i": (None, 1, 6), "j": 64, "unroll": 16})], most=8)

A wish need not be met: a space that has only divisors gives the nearest ones, and one that gets more options later
comes nearer to the same wish.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from searchlab.search.knob import Floats, Ints, Knob, Label
from searchlab.search.parts import Part, Tested
from searchlab.search.points import Options, Points
from searchlab.search.sketch import Sketch
from searchlab.search.space import Space

Wished = Label | Sequence[float | None]

_INNERMOST = 4.0  # the innermost factor decides on registers and vectors: it counts more than the others
_LARGER = 6.0  # what is larger than wished counts more: a tile that is too large spills
_UNWISHED = 1e-3  # other factors should be small, but any wish takes precedence
_DRAWS = 4096  # points from which conditions that cannot be listed are met
_SEED = 0  # of these draws: the same wishes give the same points


@dataclass(frozen=True)
class Wish:
    """Values for the knobs of the first sketch whose name matches a pattern, in which `*` stands for anything.

    Of a split, the value is the innermost factor, or all factors from the inside, None for those that do not matter;
    of a knob with labels, one of these.  Knobs without a value take the least one.
    """

    sketch: str
    values: Mapping[str, Wished]


def nearest(space: Space, wishes: Iterable[Wish], most: int) -> Points:
    """The points that come nearest to the wishes, in their order and each once, at most `most`.

    A wish for a structure that the space does not have is left out.
    """
    found: dict[tuple[int, ...], None] = {}
    for wish in wishes:
        for number, sketch in enumerate(space.sketches):
            if fnmatchcase(sketch.name, wish.sketch):
                row = _row(sketch, wish.values)
                if row is not None:
                    found[number, *row] = None
                break
        if len(found) == most:
            break
    return Points.of(found, space.width)


def _row(sketch: Sketch, values: Mapping[str, Wished]) -> list[int] | None:
    """The options nearest to the values, part by part; None if no valid ones are found."""
    row = np.zeros(len(sketch.knobs), np.int32)
    for part in sketch.parts:
        chosen = _cheapest(part, [_costs(k, values.get(k.name)) for k in part.knobs])
        if chosen is None:
            return None
        row[list(part.at)] = chosen
    found: list[int] = row.tolist()
    return found


def _costs(knob: Knob, wished: Wished | None) -> Floats:
    """The distance of every option from what is wished."""
    if knob.labels:
        return np.array([label != wished for label in knob.labels], np.float64)
    inside = list(wished) if isinstance(wished, Sequence) and not isinstance(wished, str) else [wished]
    total = np.zeros(len(knob))
    for n, column in enumerate(reversed(knob.options.T)):
        wish = inside[-1 - n] if n < len(inside) else None
        if wish is not None:
            total += (_INNERMOST if n == 0 else 1.0) * _distance(column, float(wish))
        elif knob.kind != "split" or n + 1 < len(knob.symbols):  # what the inner factors leave over is outermost
            total += _UNWISHED * np.log1p(np.maximum(column, 0))
    return total


def _distance(values: Ints, wish: float) -> Floats:
    ratio = np.log((values + 1.0) / (wish + 1.0))
    return np.asarray(np.where(ratio > 0, _LARGER * ratio, -ratio))


def _cheapest(part: Part, costs: Sequence[Floats]) -> Options | None:
    """The valid combination of options with the least total cost; approximately, if they cannot be listed."""
    free: Options = np.array([[int(c.argmin()) for c in costs]], np.int32)
    if part.contains(free).all():
        return np.asarray(free[0])
    if not isinstance(part, Tested):
        rows = part.at_position(np.arange(part.count))
        return np.asarray(rows[int(_total(costs, rows).argmin())]) if len(rows) else None
    rows = part.draw(_DRAWS, np.random.default_rng(_SEED))
    return _descend(part, costs, rows[int(_total(costs, rows).argmin())]) if len(rows) else None


def _descend(part: Part, costs: Sequence[Floats], row: Options) -> Options:
    """Changes one knob at a time for as long as the total cost falls."""
    while True:
        near = np.concatenate([_changes(part, row, n) for n in range(len(costs))])
        near = near[part.contains(near)]
        best = near[int(_total(costs, near).argmin())]
        if _total(costs, best[None])[0] >= _total(costs, row[None])[0]:
            return row
        row = best


def _changes(part: Part, row: Options, knob: int) -> Options:
    rows = np.repeat(row[None], part.shape[knob], axis=0)
    rows[:, knob] = np.arange(part.shape[knob])
    return rows


def _total(costs: Sequence[Floats], rows: Options) -> Floats:
    return np.asarray(sum(c[rows[:, n]] for n, c in enumerate(costs)))
