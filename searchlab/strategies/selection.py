"""Stages of choosing a batch among the candidates that a model ranked, as small parts that can be combined.

`Share`s fill their part of a batch first (random points, neighbours of the best), a `Selection` fills the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from searchlab.errors import SpaceError
from searchlab.search import Points, Scorer, Strategy
from searchlab.search.knob import Floats, Ints
from searchlab.strategies.draft import Draft


class Selection(ABC):
    """Chooses among candidates that are ranked best first; it receives `excess` times as many as it has to choose."""

    excess: float = 1.0

    @abstractmethod
    def choose(self, points: Points, scores: Floats, count: int) -> Ints:
        """The positions of the chosen candidates."""


class Top(Selection):
    """The best candidates according to the model."""

    def choose(self, points: Points, scores: Floats, count: int) -> Ints:
        """The first positions."""
        return np.arange(min(count, len(points)))


@dataclass
class Diverse(Selection):
    """AutoTVM's diversity: greedily chooses candidates with the most options that are not yet in the batch.

    The gain of a point is `prediction` * how good it is (1 for the best of the list, 0 for the last) + the number of
    its knobs whose option is new.  In the published code `prediction` is 0: the model only decides which points are
    on the list.
    """

    excess: float = 2.0
    prediction: float = 0.0

    def choose(self, points: Points, scores: Floats, count: int) -> Ints:
        """The positions, each of the point with the largest gain over those before it."""
        size = len(points)
        if not size:
            return np.empty(0, np.int64)
        # one number per sketch, knob and option, so that a single boolean array marks the options in the batch
        width, most = points.width, int(points.options.max(initial=0)) + 1
        ids = (points.sketch[:, None] * width + np.arange(width)) * most + points.options
        used = points.options >= 0
        shown = np.zeros(int(ids.max()) + 1, np.bool_)
        spread = float(scores.max() - scores.min())
        worth = self.prediction * ((scores.max() - scores) / spread if spread > 0 else np.zeros(size))
        left = np.ones(size, np.bool_)
        chosen = []
        for _ in range(min(count, size)):
            gain = worth + (~shown[np.where(used, ids, 0)] & used).sum(axis=1)
            best = int(np.argmax(np.where(left, gain, -np.inf)))
            left[best] = False
            shown[ids[best][used[best]]] = True
            chosen.append(best)
        return np.array(chosen, np.int64)


class Share(ABC):
    """Fills a fraction of every batch; subclasses decide with which points.

    Fractions are carried over to the next batch, so that small batches get their share too.
    """

    def __init__(self, share: float) -> None:
        if not 0 <= share <= 1:
            raise SpaceError(f"a share of a batch is between 0 and 1, not {share}")
        self.share, self._owed = share, 0.0

    def part(self, count: int) -> int:
        """The number of points due in a batch of `count`."""
        self._owed += self.share * count
        due = min(int(self._owed + 1e-9), count)
        self._owed -= due
        return due

    @abstractmethod
    def fill(self, strategy: Strategy, count: int, score: Scorer | None) -> Points:
        """Up to `count` new points, which then count as proposed."""


class Epsilon(Share):
    """Random points, so that the model also sees points it would not choose."""

    def fill(self, strategy: Strategy, count: int, score: Scorer | None) -> Points:
        """New points at random."""
        return strategy.draw(count)


class Breadth(Share):
    """Points of the least-tried sketches, each the model's favourite among some drawn at random or drafted.

    Only its good points show what a structure is worth, and a structure with few points is hardly ever drawn.  Without
    such a share a search stays with the structure of its first good points.
    """

    drawn = 64

    def __init__(self, share: float, draft: Draft) -> None:
        super().__init__(share)
        self._draft = draft

    def fill(self, strategy: Strategy, count: int, score: Scorer | None) -> Points:
        """The most promising new points of the sketches that were tried least."""
        space, taken = strategy.space, Points.empty(strategy.space.width)
        tried = np.bincount(np.append(strategy.points.sketch, strategy.pending.sketch), minlength=len(space.sketches))
        # ties in random order; a sketch may be exhausted, so there are more turns than points
        for sketch in np.lexsort((strategy.rng.random(len(tried)), tried))[: 2 * count].tolist():
            if len(taken) >= count:
                break
            some = self.drawn if score is not None else 1
            near = strategy.fresh(self._draft.sample_of(space, sketch, some, strategy.rng))
            if len(near):
                best = near if score is None else near[np.argsort(score(near), kind="stable")]
                taken = Points.concat([taken, strategy.take(best, 1)])
        return taken


class Polish(Share):
    """New neighbours of the best measured point, ordered by the model; of the next best if it has none.

    Without a model they are in random order.
    """

    def fill(self, strategy: Strategy, count: int, score: Scorer | None) -> Points:
        """New neighbours of the best measured points."""
        taken = Points.empty(strategy.space.width)
        for leader in strategy.leaders(8):
            near = strategy.fresh(strategy.space.neighbours(leader))
            if len(near):
                worth = strategy.rng.random(len(near)) if score is None else score(near)
                order = np.argsort(worth, kind="stable")
                taken = Points.concat([taken, strategy.take(near[order], count - len(taken))])
            if len(taken) >= count:
                break
        return taken
