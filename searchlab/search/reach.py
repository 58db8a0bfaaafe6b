"""Reach: how many of a space's structures a search looks at, batch by batch.

Features are compiled for each structure, which takes as long as some thousand candidates.  Where there are hundreds of
structures, a first population that is spread over all of them is not seen before all are compiled; so a search begins
with a few at random, and every batch adds some more.
"""

from __future__ import annotations

import numpy as np

from searchlab.search.space import Space

MOST_AT_ONCE = 128  # sketches of a space that is looked at as a whole
AT_FIRST, EACH_BATCH = 16, 32  # sketches of a larger one that the first batch sees, and that every further one adds


class Reach:
    """The part of a space that a batch is searched in: all of it, unless it has more than `MOST_AT_ONCE` sketches."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._space = space
        self._order = rng.permutation(len(space.sketches)) if len(space.sketches) > MOST_AT_ONCE else None

    def space(self, batch: int) -> Space:
        """The space that the batch of that number, counted from 0, is searched in."""
        count = AT_FIRST + batch * EACH_BATCH
        if self._order is None or count >= len(self._order):
            return self._space
        return self._space.within(self._order[:count].tolist())
