"""Guided: the common part of strategies that walk on a cost model."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from searchlab.errors import SpaceError
from searchlab.search import Points, Scorer, Space, Strategy
from searchlab.search.knob import Floats
from searchlab.strategies.draft import Draft
from searchlab.strategies.selection import Breadth, Diverse, Epsilon, Polish, Selection, Share, Top
from searchlab.strategies.shortlist import Shortlist


class Guided(Strategy):
    """Searches for points that the model predicts to be fast, and forms a batch from them in stages.

    A subclass implements `explore`, and takes points to start from with `sample`.  Until the model is trained, points
    are drawn at random (from a `draft`, if there is one), evenly from all sketches unless `breadth` is 0; a subclass
    that needs measurements only (`on_measurements`) searches on those.
    """

    excess = 1.0  # the number of points kept, in multiples of the batch size

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        epsilon: float,
        breadth: float,
        diversity: float | None,
        polish: float,
        draft: int = 0,
    ) -> None:
        super().__init__(space, rng)
        if diversity is not None and diversity < 1:
            raise SpaceError(f"{self.name}: diversity chooses from 1 or more times the batch, not {diversity}")
        self.selection: Selection = Top() if diversity is None else Diverse(diversity)
        self.draft = Draft(draft)
        self.breadth = Breadth(breadth if len(space.sketches) > 1 else 0.0, self.draft)
        self.shares: tuple[Share, ...] = (Epsilon(epsilon), self.breadth, Polish(polish))

    @abstractmethod
    def explore(self, found: Shortlist, score: Scorer) -> None:
        """Offers points to the shortlist."""

    def ask(self, count: int, score: Scorer | None = None) -> Points:
        """A batch: what the shares fill, the best by the model, and random points for the rest."""
        if score is None and not self.on_measurements:
            wide = self.breadth.fill(self, count, None) if self.breadth.share else Points.empty(self.space.width)
            drafted = self.take(self.sample(count), count - len(wide)) if self.draft.count else wide[:0]
            return Points.concat([wide, drafted, self.draw(count - len(wide) - len(drafted))])
        parts = [s.part(count) for s in self.shares]
        rest = max(count - sum(parts), 0)
        batch = [self.best(rest, score)] if rest else []
        for share, part in zip(self.shares, parts, strict=True):
            batch.append(share.fill(self, min(part, count - sum(map(len, batch))), score))
        return Points.concat([*batch, self.draw(count - sum(map(len, batch)))])

    @property
    def on_measurements(self) -> bool:
        """Whether batches can be made without a model."""
        return False

    def sample(self, n: int) -> Points:
        """n points to start from: random ones, or the most promising of a draft."""
        return self.draft.sample(self.space, n, self.rng)

    def best(self, count: int, score: Scorer | None) -> Points:
        """The part of a batch that no share fills; `score` is None only for searches on measurements."""
        assert score is not None
        size = int(np.ceil(max(self.excess, self.selection.excess) * count))
        found = Shortlist(self.space, size, self.fresh)
        self.explore(found, score)
        wanted = int(np.ceil(self.selection.excess * count))
        chosen = self.selection.choose(found.points[:wanted], found.scores[:wanted], count)
        return self.take(found.points[chosen], count)


def spread(scores: Floats) -> float:
    """The unit of temperatures: the standard deviation of the model's predictions for a population."""
    finite = scores[np.isfinite(scores)]
    return float(finite.std()) or 1.0 if len(finite) else 1.0
