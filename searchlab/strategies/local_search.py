"""Iterated local search on measurements: climb to a local optimum, jump, and climb again."""

from __future__ import annotations

from typing import Literal

import numpy as np

from searchlab.errors import SpaceError
from searchlab.search import Points, Scorer, Space, Strategy


class Local(Strategy):
    """Hill climbing to the first better neighbour; at a local optimum, tries every option of each knob, then jumps.

    It starts at the best of `start` random points.  Neighbours are tried in random order or, with a model, best first.
    A jump changes `kick` knobs of the best point; a share `restart` of jumps begins at a new random point instead.
    `polish` names the neighbours that a local optimum must beat: "all" options of each knob, or the "adjacent" ones.
    """

    name = "local"

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        start: int = 10,
        kick: int = 3,
        restart: float = 0.1,
        polish: Literal["all", "adjacent"] = "all",
    ) -> None:
        super().__init__(space, rng)
        if start < 1 or kick < 1 or not 0 <= restart <= 1:
            raise SpaceError("local: start and kick are at least 1, restart is between 0 and 1")
        if polish not in ("all", "adjacent"):
            raise SpaceError(f"local: unknown polish '{polish}'; known: all, adjacent")
        self.start, self.kick, self.restart, self.polish = start, kick, restart, polish
        self._began = 0  # points told before this climb began do not count as reached by it
        self._seed = Points.empty(space.width)  # the start of this climb, until a point of it is told

    def ask(self, count: int, score: Scorer | None = None) -> Points:
        """New neighbours of the best point of this climb, or a jump where there are none."""
        missing = self.start - len(self.points) - len(self.pending)
        batch = self.draw(min(max(missing, 0), count))
        for _ in range(count + 1):
            if len(batch) >= count:
                return batch
            here = self._here()
            if not len(here):
                break
            near = self._around(here, score)
            if len(near):
                batch = Points.concat([batch, self.take(near, count - len(batch))])
            elif len(self._pending_near(here)):
                break  # a point that is being measured may be better
            else:
                batch = Points.concat([batch, self._jump()])
        return Points.concat([batch, self.draw(count - len(batch))])

    def _here(self) -> Points:
        """The best point of this climb."""
        told = self.seconds[self._began :]
        if not len(told) or not np.isfinite(told).any():
            return self._seed if self._began else Points.empty(self.space.width)
        return self.points[self._began + int(np.argmin(told))]

    def _around(self, here: Points, score: Scorer | None) -> Points:
        """New neighbours, adjacent ones first."""
        found = self.fresh(self.space.neighbours(here))
        if not len(found) and self.polish == "all":
            found = self.fresh(self.space.neighbours(here, adjacent=False))
        order = self.rng.permutation(len(found)) if score is None or not len(found) else np.argsort(score(found))
        return found[order]

    def _pending_near(self, here: Points) -> Points:
        near = self.space.neighbours(here, adjacent=self.polish == "adjacent")
        return near[np.isin(self.space.key(near), self.space.key(self.pending))]

    def _jump(self) -> Points:
        """Starts a new climb, at a perturbed best point or at a random one."""
        self._began = len(self.points)
        tried = Points.concat([self.leaders(1)] * 8)
        if self.rng.random() < self.restart:
            tried = tried[:0]
        for _ in range(self.kick):
            tried = self.space.mutate(tried, self.rng)
        taken = self.take(tried, 1)
        self._seed = taken if len(taken) else self.draw(1)
        return self._seed
