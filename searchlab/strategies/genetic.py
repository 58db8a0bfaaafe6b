"""A genetic algorithm on measurements alone."""

from __future__ import annotations

import numpy as np

from searchlab.errors import SpaceError
from searchlab.search import Points, Scorer, Space, Strategy
from searchlab.search.knob import Ints


class Genetic(Strategy):
    """Genetic algorithm on measurements: tournaments choose parents, children mix their knobs and may mutate.

    The parents are the best `population` of all points told; a tournament is held among `tournament` of them.  Until
    there are that many, points are random.
    """

    name = "genetic"

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        population: int = 16,
        tournament: int = 2,
        crossover: float = 0.7,
        mutation: float = 0.5,
        local: float = 0.5,
    ) -> None:
        super().__init__(space, rng)
        if population < 2 or tournament < 1 or not 0 <= crossover <= 1 or not 0 <= mutation <= 1:
            raise SpaceError("genetic: population >= 2, tournament >= 1, crossover and mutation between 0 and 1")
        self.population, self.tournament = population, tournament
        self.crossover, self.mutation, self.local = crossover, mutation, local

    def ask(self, count: int, score: Scorer | None = None) -> Points:
        """Children of the best measured points; random points until there are enough of these."""
        missing = self.population - len(self.points) - len(self.pending)
        batch = self.draw(min(max(missing, 0), count))
        parents = self.leaders(self.population)
        if len(parents) >= 2:
            for _ in range(4):  # most children of a narrow population are known
                if len(batch) >= count:
                    break
                more = self.take(self._children(parents, 2 * count + 8), count - len(batch))
                batch = Points.concat([batch, more])
        return Points.concat([batch, self.draw(count - len(batch))])

    def _children(self, parents: Points, count: int) -> Points:
        mother, father = parents[self._winners(parents, count)], parents[self._winners(parents, count)]
        crossed = self.rng.random(count) < self.crossover
        mixed = self.space.crossover(mother, father, self.rng)
        children = Points.where(crossed, mixed, mother)
        # a copy of a parent is known already, so whatever did not mix mutates
        mutants = ~crossed | (self.rng.random(count) < self.mutation)
        mutated = self.space.mutate(children, self.rng, self.local)
        return Points.where(mutants, mutated, children)

    def _winners(self, parents: Points, count: int) -> Ints:
        """The winners of tournaments; parents are sorted, so the smallest number wins."""
        return np.asarray(self.rng.integers(len(parents), size=(count, self.tournament)).min(axis=1))
