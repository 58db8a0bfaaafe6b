"""Relaxation: the ordered knobs of a sketch as real numbers that can move a little, and the way back to options.

A knob whose options are positive integers becomes the logarithms of its symbols.  Its options need not fill that room:
the factors of a split have a fixed product, so their logarithms a fixed sum.  `directions` span the room that they do
fill; moving along these keeps such sums without any knowledge of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from searchlab.search.knob import Floats, Ints, Knob
from searchlab.search.parts import Mask
from searchlab.search.points import Options
from searchlab.search.sketch import Sketch

_BELOW = 1 - 1e-9  # a product of factors that is too large by a rounding error would leave no iteration around them
_REPAIRS = 4
_THIN = 1e-6  # a direction in which options differ by less does not count


@dataclass(frozen=True, eq=False)
class Ordered:
    """A knob that moves: its place in the sketch, and its columns in the relaxed room."""

    place: int
    columns: slice
    table: Floats  # log2 of the values of all options, one more where there is a zero
    shift: int

    def nearest(self, near: Floats, few: int) -> Ints:
        """The nearest `few` options of each row, nearest first."""
        apart = ((near[:, None, :] - self.table[None, :, :]) ** 2).sum(axis=2)
        return np.argsort(apart, axis=1, kind="stable")[:, :few]


class Relaxation:
    """The relaxed form of a sketch; points are rows of logarithms, one for every symbol of an ordered knob."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch
        self.knobs = _ordered(sketch.knobs)
        self.symbols = tuple(s for o in self.knobs for s in sketch.knobs[o.place].symbols)
        self._shift = np.concatenate([[o.shift] * o.table.shape[1] for o in self.knobs]) if self.knobs else np.empty(0)

    @cached_property
    def directions(self) -> Floats:
        """Orthonormal rows that span the differences between options."""
        found = np.zeros((0, len(self.symbols)))
        for o in self.knobs:
            _, lengths, basis = np.linalg.svd(o.table - o.table.mean(axis=0), full_matrices=False)
            rows = np.zeros((int((lengths > _THIN).sum()), len(self.symbols)))
            rows[:, o.columns] = basis[: len(rows)]
            found = np.concatenate([found, rows])
        return found

    @cached_property
    def bounds(self) -> tuple[Floats, Floats]:
        """The smallest and largest logarithm of each symbol."""
        tables = [o.table for o in self.knobs]
        ends = [np.concatenate([f(t, axis=0) for t in tables]) if tables else np.empty(0) for f in (np.min, np.max)]
        return ends[0], ends[1]

    def relaxed(self, options: Options) -> Floats:
        """Points as logarithms."""
        parts = [o.table[options[:, o.place]] for o in self.knobs]
        return np.concatenate(parts, axis=1) if parts else np.empty((len(options), 0))

    def values(self, options: Options, rows: Floats) -> dict[str, Floats]:
        """Numbers for all symbols: those of the rows, and of the options of knobs that do not move."""
        fixed = {s: v.astype(np.float64) for s, v in self.sketch.values(options).items()}
        moved = np.maximum(np.exp2(rows) * _BELOW, 1.0) - self._shift
        return {**fixed, **dict(zip(self.symbols, moved.T, strict=True))}

    def inside(self, rows: Floats) -> Floats:
        """Rows pulled back between the bounds; they keep the sums that options keep.

        A step to the bounds breaks sums, and a step back to the sums may leave the bounds.  After a few of both, each
        knob is drawn towards the centre of its options until all bounds hold.
        """
        low, high = self.bounds
        for _ in range(_REPAIRS):
            rows = rows + (np.clip(rows, low, high) - rows) @ self._onto
        off = rows - self._centre
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(off > 0, (high - self._centre) / off, np.where(off < 0, (low - self._centre) / off, np.inf))
        for o in self.knobs:
            off[:, o.columns] *= np.minimum(room[:, o.columns].min(axis=1, keepdims=True), 1.0)
        return self._centre + off

    @cached_property
    def _onto(self) -> Floats:
        """The projection of differences onto those that options can have."""
        return self.directions.T @ self.directions

    @cached_property
    def _centre(self) -> Floats:
        return np.concatenate([o.table.mean(axis=0) for o in self.knobs]) if self.knobs else np.empty(0)

    def rounded(self, options: Options, rows: Floats, rng: np.random.Generator, few: int = 1) -> tuple[Options, Mask]:
        """The nearest options, or any of the nearest `few` of each knob, and which results are valid."""
        result = options.copy()
        for o in self.knobs:
            near = o.nearest(rows[:, o.columns], few)
            result[:, o.place] = near[np.arange(len(near)), rng.integers(near.shape[1], size=len(near))]
        return result, self.sketch.valid(result)


def _ordered(knobs: Sequence[Knob]) -> tuple[Ordered, ...]:
    """The knobs that can be relaxed: more than one option, integers in order, none of them negative."""
    found: list[Ordered] = []
    start = 0
    for place, k in enumerate(knobs):
        if k.kind == "category" or k.labels or len(k) < 2 or k.options.min() < 0:
            continue
        end, shift = start + len(k.symbols), int(k.options.min() == 0)
        found.append(Ordered(place, slice(start, end), np.log2(k.options + shift), shift))
        start = end
    return tuple(found)
