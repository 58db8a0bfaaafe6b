"""RecordedSpace: the rows of a table of measurements as a space, so that searches run without hardware."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from searchlab.errors import SpaceError
from searchlab.search.knob import Ints, Knob
from searchlab.search.parts import Listed
from searchlab.search.points import Options, Points
from searchlab.search.sketch import Sketch
from searchlab.search.space import Space

Coverage = Literal["exhaustive", "pool"]


class RecordedSpace(Space):
    """Sketches without programs; a point is valid if the table has a row for it.

    `exhaustive`: every legal combination is a row, so any other is illegal.  `pool`: the rows are a sample of a larger
    space; other points were not measured, and moves lead only from row to row.
    """

    def __init__(
        self, sketches: Sequence[Sketch], name: str = "recorded", version: str = "1", coverage: Coverage = "exhaustive"
    ) -> None:
        super().__init__(sketches, name, version)
        if any(s.rows is None for s in self.sketches):
            raise SpaceError(f"space '{name}': every sketch of a recorded space has rows")
        self.coverage: Coverage = coverage
        self._first = np.cumsum([0, *(s.count for s in self.sketches)])

    @staticmethod
    def of(
        knobs: Sequence[Knob],
        rows: Options,
        name: str = "recorded",
        version: str = "1",
        coverage: Coverage = "exhaustive",
    ) -> RecordedSpace:
        """A space of one sketch."""
        return RecordedSpace([Sketch(name, tuple(knobs), rows=rows)], name, version, coverage)

    def row(self, points: Points) -> Ints:
        """The table row of every point, -1 where there is none; rows are numbered across all sketches."""
        result = np.full(len(points), -1, np.int64)
        if points.width != self.width:
            return result
        for s, sketch in enumerate(self.sketches):
            (listed,) = sketch.parts
            assert isinstance(listed, Listed)
            at = np.flatnonzero(points.sketch == s)
            own = points.options[at, : len(sketch.knobs)]
            fits = sketch.in_range(own)
            found = listed.find(own[fits])
            result[at[fits]] = np.where(found >= 0, found + self._first[s], -1)
        return result

    def points(self, rows: Sequence[int] | Ints | None = None) -> Points:
        """The points of the given table rows, or of all rows in order."""
        everything = Points.concat(
            [self._points(s, np.asarray(sketch.rows, np.int32)) for s, sketch in enumerate(self.sketches)]
        )
        return everything if rows is None else everything[np.asarray(rows, np.int64)]
