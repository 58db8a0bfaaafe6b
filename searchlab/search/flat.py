"""Tables over all sketches of a space, so that points of many structures are drawn and changed in one go.

Only sketches without conditions among their knobs take part: whatever is drawn for them is valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.search.knob import Floats, Ints, Knob
from searchlab.search.parts import Mask
from searchlab.search.points import Options
from searchlab.search.sketch import Sketch


class Flat:
    """`free` says which sketches take part; `sizes` has a row for each sketch and 0 where it has no knob."""

    def __init__(self, sketches: Sequence[Sketch], width: int) -> None:
        self.free: Mask = np.array([s.unconditional for s in sketches])
        self.sizes: Ints = np.zeros((len(sketches), width), np.int64)
        self._knob: Ints = np.full((len(sketches), width), -1)  # the number of each knob among all different ones
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
        self._tables(knobs)

    def _tables(self, knobs: list[Knob]) -> None:
        """The neighbours of all options of all different knobs; option o of knob k is number `base[k] + o`."""
        pairs = [k.neighbours for k in knobs]
        starts = np.concatenate([[0], np.cumsum([len(flat) for _, flat in pairs])])
        self._base: Ints = np.concatenate([[0], np.cumsum([len(k) for k in knobs])])
        self._first: Ints = np.concatenate([f[:-1] + s for (f, _), s in zip(pairs, starts[:-1], strict=True)])
        self._degree: Ints = np.concatenate([np.diff(f) for f, _ in pairs])
        self._near: Ints = np.concatenate([*(flat for _, flat in pairs), [0]])

    def draw(self, sketch: Options, rng: np.random.Generator) -> Options:
        """A row of random options for each of these sketches."""
        sizes = self.sizes[sketch]
        return np.where(sizes > 0, rng.random(sizes.shape) * sizes, -1).astype(np.int32)

    def table(self, weights: Sequence[Floats]) -> Floats:
        """How often each knob changes, as sums over the knobs before it; knobs with one option never do."""
        result = np.zeros(self.sizes.shape)
        for s, mine in enumerate(weights):
            result[s, : len(mine)] = mine
        return np.asarray(np.cumsum(np.where(self.sizes > 1, result, 0.0), axis=1))

    def change_one(
        self, sketch: Options, options: Options, rng: np.random.Generator, local: float, chances: Floats | None = None
    ) -> Options:
        """Rows with a random knob set to a neighbouring option (a share `local` of them) or to any other.

        `chances` is a `table` of how often each knob is the one; without it all are alike.
        """
        rows = np.arange(len(options))
        draw = rng.random((3, len(options)))
        column = self._live[sketch, (draw[0] * self._lives[sketch]).astype(np.int64)]
        if chances is not None:
            sums = chances[sketch]
            chosen = (sums <= draw[0][:, None] * sums[:, -1:]).sum(axis=1)
            column = np.where(chosen < sums.shape[1], chosen, column)  # no weight left: all are alike
        old, size = options[rows, column], self.sizes[sketch, column]
        other = (old + 1 + (draw[1] * (size - 1)).astype(np.int64)) % size
        at = self._base[self._knob[sketch, column]] + old
        degree = self._degree[at]
        near = self._near[np.where(degree > 0, self._first[at] + (draw[1] * degree).astype(np.int64), 0)]
        new = np.where((draw[2] < local) & (degree > 0), near, other)
        changed = options.copy()
        changed[rows, column] = np.where(size > 1, new, old)
        return changed

    def move(self, start: Options, end: Options, options: Options, rng: np.random.Generator) -> Options:
        """Rows of some sketches as rows of others, with the options of all knobs that both have."""
        moved = self.draw(end, rng)
        same: npt.NDArray[np.bool_] = self._knob[end][:, :, None] == self._knob[start][:, None, :]
        same &= (self._knob[end] >= 0)[:, :, None]
        kept = np.take_along_axis(options, same.argmax(axis=2), axis=1)
        return np.where(same.any(axis=2), kept, moved)
