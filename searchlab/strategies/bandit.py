"""A portfolio of strategies that share one budget according to their success."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from searchlab.errors import SpaceError
from searchlab.search import STRATEGIES, Points, Scorer, Space, Strategy
from searchlab.search.knob import Floats
from searchlab.strategies.bayesian import Bayesian
from searchlab.strategies.genetic import Genetic
from searchlab.strategies.local_search import Local


class Bandit(Strategy):
    """Several strategies as arms of a bandit: each point comes from the one with the highest upper confidence bound.

    The reward of a point is the fraction of all earlier points that are slower, to the power `sharpness`, so that only
    points near the best count much.  The next member is the one with the highest mean of its last `window` rewards plus
    `exploration` * sqrt(2 log tries / its tries).  All members are told all results.  Members are strategies, or names
    with options.
    """

    name = "bandit"

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        members: Sequence[Any] | None = None,
        exploration: float = 0.1,
        window: int = 30,
        sharpness: float = 8.0,
    ) -> None:
        super().__init__(space, rng)
        if members is not None and not members or window < 1 or sharpness <= 0 or exploration < 0:
            raise SpaceError("bandit: at least one member, window >= 1, sharpness > 0, exploration >= 0")
        streams = rng.spawn(len(members) if members is not None else 3)
        if members is None:
            kinds = (Bayesian, Genetic, Local)
            self.members: list[Strategy] = [kind(space, r) for kind, r in zip(kinds, streams, strict=True)]
        else:
            self.members = [STRATEGIES.make(m, space=space, rng=r) for m, r in zip(members, streams, strict=True)]
        self.exploration, self.sharpness = exploration, sharpness
        self.tries = np.zeros(len(self.members), np.int64)
        self._rewards: list[deque[float]] = [deque(maxlen=window) for _ in self.members]
        self._author: dict[int, int] = {}

    def ask(self, count: int, score: Scorer | None = None) -> Points:
        """A batch of which each point comes from the member whose turn it is."""
        share = np.bincount(self._turns(count), minlength=len(self.members))
        batch = [Points.empty(self.space.width)]
        for n in np.flatnonzero(share).tolist():
            member = self.members[n]
            member.expects_model = self.expects_model
            found = self.take(member.ask(int(share[n]), score), int(share[n]))
            self._author.update(dict.fromkeys(self.space.key(found).tolist(), n))
            self.tries[n] += len(found)
            for other in self.members:
                other.exclude(found)
            batch.append(found)
        rest = self.draw(count - sum(map(len, batch)))
        for member in self.members:
            member.exclude(rest)
        return Points.concat([*batch, rest])

    def _turns(self, count: int) -> list[int]:
        """The member that proposes each point of a batch; tries count immediately, so that members share a batch."""
        tries = self.tries.astype(np.float64)
        mean = np.array([np.mean(r) if r else 0.0 for r in self._rewards])
        turns = []
        for _ in range(count):
            with np.errstate(divide="ignore", invalid="ignore"):
                bonus = self.exploration * np.sqrt(2 * np.log(tries.sum() + 1) / tries)
            turn = int(np.argmax(np.where(tries == 0, np.inf, mean + bonus)))
            tries[turn] += 1
            turns.append(turn)
        return turns

    def tell(self, points: Points, seconds: Floats) -> None:
        """Tells all members, and credits the one that proposed each point."""
        for key, took in zip(self.space.key(points).tolist(), np.asarray(seconds).tolist(), strict=True):
            author = self._author.pop(key, None)
            if author is not None:
                slower = float(np.mean(self.seconds > took)) if len(self.seconds) else 0.0
                self._rewards[author].append(slower**self.sharpness if np.isfinite(took) else 0.0)
        super().tell(points, seconds)
        for member in self.members:
            member.tell(points, seconds)
