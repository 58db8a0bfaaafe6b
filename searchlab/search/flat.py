"""Tables over all sketches of a space, so that points of many sketches are drawn and mutated by vectorised code.

Only sketches without conditions on their knobs are covered: every combination of their options is valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.search.adjacency import Adjacency
from searchlab.search.knob import Floats, Ints, Knob
from searchlab.search.parts import Mask
from searchlab.search.points import Options, Points
from searchlab.search.sketch import Sketch


class Flat:
    """`free` marks the sketches that are covered; `sizes` has a row per sketch, padded with 0."""

    def __init__(self, sketches: Sequence[Sketch], width: int) -> None:
        self.free: Mask = np.array([s.unconditional for s in sketches])
        self.sizes: Ints = np.zeros((len(sketches), width), np.int64)
        self._sketches = tuple(sketches)
        self._common: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        self._knob: Ints = np.full((len(sketches), width), -1)  # the number of each knob among all distinct ones
        self._live: Ints = np.zeros((len(sketches), width), np.int64)
        self._lives: Ints = np.zeros(len(sketches), np.int64)
        numbers: dict[Any, int] = {}
        knobs: list[Knob] = []
        for s, sketch in enumerate(sketches):
            count = len(sketch.knobs)
            self.sizes[s, :count] = sketch.sizes
            live = np.flatnonzero(sketch.sizes > 1)
            self._live[s, : len(live)], self._lives[s] = live, len(live)
            for n, k in enumerate(sketch.knobs):
                key = (k.name, k.kind, k.labels, k.options.shape, k.options.tobytes())
                if key not in numbers:
                    numbers[key] = len(knobs)
                    knobs.append(k)
                self._knob[s, n] = numbers[key]
        self._moves = Adjacency.of(knobs)

    def draw(self, sketch: Options, rng: np.random.Generator) -> Options:
        """A row of random options for each of these sketches."""
        sizes = self.sizes[sketch]
        return np.where(sizes > 0, rng.random(sizes.shape) * sizes, -1).astype(np.int32)

    def table(self, weights: Sequence[Floats]) -> Floats:
        """Cumulative weights with which knobs are chosen for a change; knobs with one option have weight zero."""
        result = np.zeros(self.sizes.shape)
        for s, mine in enumerate(weights):
            result[s, : len(mine)] = mine
        return np.asarray(np.cumsum(np.where(self.sizes > 1, result, 0.0), axis=1))

    def change_one(
        self, sketch: Options, options: Options, rng: np.random.Generator, local: float, chances: Floats | None = None
    ) -> Options:
        """Sets one random knob of each row to a neighbouring option (with probability `local`) or to any other.

        `chances` is a `table` of the knobs' weights; without it all knobs are equally likely.
        """
        rows = np.arange(len(options))
        which, draw, coin = rng.random((3, len(options)))
        column = self._live[sketch, (which * self._lives[sketch]).astype(np.int64)]
        if chances is not None:
            sums = chances[sketch]
            chosen = (sums <= which[:, None] * sums[:, -1:]).sum(axis=1)
            column = np.where(chosen < sums.shape[1], chosen, column)  # no weight left: all are equally likely
        changed = options.copy()
        changed[rows, column] = self._moves.step(self._knob[sketch, column], options[rows, column], draw, coin < local)
        return changed

    # --- from one sketch to another -----------------------------------------------------------------------------------

    def restructure(self, points: Points, changed: Points, rows: Ints, to: Options, rng: np.random.Generator) -> None:
        """Moves the points in `rows` to the sketches `to` and writes them to `changed` where they are valid.

        The options of knobs that both sketches have are kept; the others are drawn at random.
        """
        easy = self.free[to]
        at = rows[easy]
        changed.options[at] = self._moved(points.sketch[at], to[easy], points.options[at], rng)
        changed.sketch[at] = to[easy]
        rows, to = rows[~easy], to[~easy]
        for s, t in sorted(set(zip(points.sketch[rows].tolist(), to.tolist(), strict=True))):
            mine = rows[(points.sketch[rows] == s) & (to == t)]
            drawn = self._sketches[t].draw(len(mine), rng)
            mine = mine[: len(drawn)]
            here, there = self._shared(s, t)
            drawn[:, there] = points.options[mine][:, here]
            good = self._sketches[t].valid(drawn)
            changed.sketch[mine[good]] = t
            changed.options[mine[good]] = -1
            changed.options[mine[good], : drawn.shape[1]] = drawn[good]

    def _moved(self, start: Options, end: Options, options: Options, rng: np.random.Generator) -> Options:
        """Converts rows of the sketches `start` to rows of the sketches `end`, which have no conditions."""
        moved = self.draw(end, rng)
        same: npt.NDArray[np.bool_] = self._knob[end][:, :, None] == self._knob[start][:, None, :]
        same &= (self._knob[end] >= 0)[:, :, None]
        kept = np.take_along_axis(options, same.argmax(axis=2), axis=1)
        return np.where(same.any(axis=2), kept, moved)

    def _shared(self, s: int, t: int) -> tuple[list[int], list[int]]:
        """The positions, in both sketches, of the knobs that they have in common."""
        if (s, t) not in self._common:
            ours, theirs = self._sketches[s].knobs, self._sketches[t].knobs
            other = {k.name: n for n, k in enumerate(theirs)}
            pairs = [(n, other[k.name]) for n, k in enumerate(ours) if k.name in other]
            pairs = [(n, m) for n, m in pairs if ours[n].same_options(theirs[m])]
            self._common[s, t] = [n for n, _ in pairs], [m for _, m in pairs]
        return self._common[s, t]
