"""Example, a search strategy for searchlab: chooses the candidates to measure next."""

from __future__ import annotations

import numpy as np

from searchlab.search import Points, Scorer, Space, Strategy


class ExampleStrategy(Strategy):
    """Mutates the best points, and draws some at random."""

    name = "example"
    version = "1"  # change it when the same options no longer mean the same search

    # Options are parameters with a default; experiments set them: {example: {explore: 0.5}}.
    def __init__(self, space: Space, rng: np.random.Generator, parents: int = 8, explore: float = 0.25) -> None:
        super().__init__(space, rng)
        self.parents, self.explore = parents, explore

    def ask(self, count: int, score: Scorer | None = None) -> Points:
        """Up to `count` new points; `score` is the cost model (smaller is better), None until there is one."""
        best = self.leaders(self.parents)  # the points told so far, best first
        if not len(best):
            return self.draw(count)
        chosen = best[self.rng.integers(len(best), size=8 * count)]
        children = self.space.mutate(chosen, self.rng)
        if score is not None and len(children):
            children = children[np.argsort(score(children), kind="stable")]
        found = self.take(children, count - round(self.explore * count))  # new points only
        return Points.concat([found, self.draw(count - len(found))])
