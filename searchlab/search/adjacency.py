"""Neighbouring options of several knobs in flat arrays, so that whole populations are moved by vectorised steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from searchlab.search.knob import Floats, Ints, Knob
from searchlab.search.parts import Mask
from searchlab.search.points import Options


@dataclass(frozen=True, eq=False)
class Adjacency:
    """The neighbours of all options of several knobs; option o of knob k has the number `base[k] + o`.

    Its neighbours are the `degree` entries of `flat` that start at `first`.
    """

    base: Ints
    first: Ints
    degree: Ints
    flat: Options

    @staticmethod
    def of(knobs: Sequence[Knob]) -> Adjacency:
        """The neighbours of the options of these knobs."""
        pairs = [k.neighbours for k in knobs]
        starts = np.concatenate([[0], np.cumsum([len(flat) for _, flat in pairs])])
        first = np.concatenate([f[:-1] + s for (f, _), s in zip(pairs, starts[:-1], strict=True)])
        degree = np.concatenate([np.diff(f) for f, _ in pairs])
        base = np.concatenate([[0], np.cumsum([len(k) for k in knobs])])
        flat = np.concatenate([*(flat for _, flat in pairs), [0]])  # padded, so that it is never empty
        return Adjacency(base, first, degree, flat.astype(np.int32))

    def step(self, knob: Ints, old: Options, draw: Floats, adjacent: Mask) -> Ints:
        """A new option for each knob: a neighbour of the old one where `adjacent` and one exists, else any other.

        `draw` holds a uniform random number in [0, 1) for each.  A knob with a single option keeps it.
        """
        size = self.base[knob + 1] - self.base[knob]
        at = self.base[knob] + old
        other = (old + 1 + (draw * (size - 1)).astype(np.int64)) % size
        degree = self.degree[at]
        near = self.flat[np.where(degree > 0, self.first[at] + (draw * degree).astype(np.int64), 0)]
        return np.where(adjacent & (degree > 0), near, other)
