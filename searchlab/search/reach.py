"""Reach: how many sketches of a space a search considers, batch by batch.

Features are compiled per sketch, which takes as long as evaluating a few thousand candidates.  In a space of hundreds
of sketches, an initial population spread over all of them would have to wait until all are compiled; so a search
starts with a few random sketches, and every batch adds more.
"""

from __future__ import annotations

import numpy as np

from searchlab.search.space import Space

MOST_AT_ONCE = 128  # spaces of up to this many sketches are searched as a whole
AT_FIRST, EACH_BATCH = 16, 32  # in larger ones: the sketches of the first batch, and those that each batch adds


class Reach:
    """The subspace that each batch searches: the whole space unless it has more than `MOST_AT_ONCE` sketches."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._space = space
        self._order = rng.permutation(len(space.sketches)) if len(space.sketches) > MOST_AT_ONCE else None

    def space(self, batch: int) -> Space:
        """The space that a batch, numbered from 0, searches."""
        count = AT_FIRST + batch * EACH_BATCH
        if self._order is None or count >= len(self._order):
            return self._space
        return self._space.within(self._order[:count].tolist())
