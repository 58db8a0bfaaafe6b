"""Populations of several sketches as tables: encodings for surrogates, features for cost models, indices of points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from searchlab.analysis import Ragged, schema
from searchlab.search.knob import Floats
from searchlab.search.points import Options, Points
from searchlab.search.progress import say
from searchlab.search.sketch import Sketch
from searchlab.targets import Target


class OwnRows(NamedTuple):
    """The rows of a population that belong to one sketch, and their options for its knobs."""

    number: int
    sketch: Sketch
    rows: Any  # an array, or a slice that selects all
    options: Options


def encoded(parts: Sequence[OwnRows], columns: Sequence[str], count: int) -> Floats:
    """The encodings of all rows; the first columns mark the sketch, and columns that a sketch lacks are zero."""
    place = {c: n for n, c in enumerate(columns)}
    result = np.zeros((count, len(place)))
    for s, sketch, rows, own in parts:
        result[rows, s] = 1
        at = np.array([place[c] for k in sketch.knobs for c in k.columns])
        result[np.arange(count)[rows][:, None], at] = sketch.encode(own)
    return result


def features(parts: Sequence[OwnRows], view: str, target: Target | None, count: int) -> Any:
    """The features of all rows in the form of the view; a sketch's features are compiled on first use."""
    missing = sum(not p.sketch.compiled(view, target) for p in parts)
    made, left = [], missing
    for part in parts:
        if not part.sketch.compiled(view, target):
            say(f"compiling features ({missing - left} of {missing} structures)")
            left -= 1
        made.append((part.rows, part.sketch.features(part.options, view, target)))
    every = np.arange(count)
    if view == "tree":
        return [(every[rows], found) for rows, found in made]
    if view == "statements":
        return Ragged.join([(every[rows], found) for rows, found in made], schema(view).width, count)
    if len(made) == 1:
        return made[0][1]
    result = np.empty((count, schema(view).width), np.float32)
    for rows, found in made:
        result[rows] = found
    return result


# --- indices of points ------------------------------------------------------------------------------------------------


def index(sketches: Sequence[Sketch], points: Points) -> list[int]:
    """Every point as one integer: its position among all combinations of all sketches, valid or not."""
    # Python integers where 64 bits do not suffice
    dtype = np.int64 if sum(s.cartesian for s in sketches) < 1 << 62 else object
    result = np.zeros(len(points), dtype)
    start = 0
    for s, sketch in enumerate(sketches):
        rows = points.sketch == s
        code = np.zeros(int(rows.sum()), dtype)
        for n, size in enumerate(sketch.sizes.tolist()):
            code = code * size + points.options[rows, n].astype(dtype)
        result[rows] = code + start
        start += sketch.cartesian
    return [int(i) for i in result]


def row_at(sketches: Sequence[Sketch], index: int) -> list[int]:
    """The point with a given index, which must be in range: the number of its sketch, then its options."""
    s = 0
    while index >= sketches[s].cartesian:
        index -= sketches[s].cartesian
        s += 1
    row = []
    for size in reversed(sketches[s].sizes.tolist()):
        index, option = divmod(index, size)
        row.append(option)
    return [s, *reversed(row)]
