"""Points: a batch of candidates as a matrix of integers; one candidate is a batch of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from searchlab.errors import SpaceError

Options = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False, slots=True)
class Points:
    """For every candidate the number of its sketch and one option per knob; unused columns hold -1."""

    sketch: Options
    options: Options

    def __post_init__(self) -> None:
        if self.options.ndim != 2 or self.sketch.shape != self.options.shape[:1]:
            raise SpaceError(f"points: {self.sketch.shape} sketches with {self.options.shape} options")

    @staticmethod
    def of(rows: Iterable[Sequence[int]], width: int | None = None) -> Points:
        """Points from rows of integers: the sketch, then the options."""
        given = [list(row) for row in rows]
        width = max((len(r) - 1 for r in given), default=0) if width is None else width
        table = np.full((len(given), width + 1), -1, dtype=np.int32)
        for n, row in enumerate(given):
            table[n, : len(row)] = row
        return Points(table[:, 0].copy(), table[:, 1:].copy())

    @staticmethod
    def empty(width: int) -> Points:
        """An empty batch of a given width."""
        return Points(np.empty(0, np.int32), np.empty((0, width), np.int32))

    @staticmethod
    def concat(batches: Sequence[Points]) -> Points:
        """All points of several batches, in order."""
        width = max(b.width for b in batches)
        return Points(np.concatenate([b.sketch for b in batches]), np.concatenate([b._padded(width) for b in batches]))

    @staticmethod
    def where(first: npt.NDArray[np.bool_], a: Points, b: Points) -> Points:
        """Points of two batches of the same length and width: those of `a` where `first`, else those of `b`."""
        return Points(np.where(first, a.sketch, b.sketch), np.where(first[:, None], a.options, b.options))

    @property
    def width(self) -> int:
        """The number of columns of options."""
        return int(self.options.shape[1])

    def rows(self) -> list[list[int]]:
        """Plain integers for records: the sketch, then the options without padding; `Points.of` reads them back."""
        pairs = zip(self.sketch.tolist(), self.options.tolist(), strict=True)
        return [[s, *(o for o in options if o >= 0)] for s, options in pairs]

    def __len__(self) -> int:
        return len(self.sketch)

    def __getitem__(self, at: Any) -> Points:
        """Part of the batch by slice, mask or list of positions; an integer gives a batch of one."""
        if isinstance(at, (int, np.integer)):
            at = [range(len(self))[at]]
        return Points(self.sketch[at], self.options[at])

    def __iter__(self) -> Iterator[Points]:
        return (self[n] for n in range(len(self)))

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same candidates in the same order."""
        if not isinstance(other, Points):
            return NotImplemented
        width = max(self.width, other.width)
        return np.array_equal(self.sketch, other.sketch) and np.array_equal(self._padded(width), other._padded(width))

    __hash__ = None  # type: ignore[assignment]

    def _padded(self, width: int) -> Options:
        if width == self.width:
            return self.options
        return np.pad(self.options, ((0, 0), (0, width - self.width)), constant_values=-1)


class Sample(NamedTuple):
    """Points that have not been seen before; if there are fewer than requested, `reason` says why."""

    points: Points
    reason: str = ""

    @property
    def exhausted(self) -> bool:
        """Whether there are fewer points than requested."""
        return bool(self.reason)
