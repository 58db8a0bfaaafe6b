"""Evolutionary search on the cost model, as in Ansor and MetaSchedule, or, without one, on measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import numpy as np

from searchlab.errors import SpaceError
from searchlab.search import Points, Scorer, Space
from searchlab.search.knob import Floats, Ints, Kind
from searchlab.search.moves import by_kind
from searchlab.search.parts import Mask
from searchlab.strategies.guided import Guided
from searchlab.strategies.shortlist import Shortlist

Variant = Literal["ansor", "metaschedule"]
Fitness = Literal["median", "negated", "rank"]

POPULATION: dict[Variant, int] = {"ansor": 2048, "metaschedule": 512}
PARENTS = 16  # without a model: how many of the best measured points may be parents
MIX: dict[Kind, float] = {"split": 0.9, "menu": 0.05, "category": 0.05}


class Evolutionary(Guided):
    """Evolves a population on the model; a batch holds the best new points of all generations.

    A population starts with the best measured points (at most a share `measured`) and new random ones (at least
    `fresh_points`).  A child is a mutant of a parent (probability `mutation`), a mixture of two (`crossover`), or a
    copy; in the metaschedule variant no parent is copied twice in a generation.  Parents are drawn in proportion to
    their fitness, which is zero for points worse than a threshold: the median of the population or, with
    fitness="negated", a prediction of zero, for models that predict minus the throughput.

    Without a model, a batch is one generation of children of the 16 best measured points, with their speed for fitness;
    before there are that many, points are random.

    `mix` weights the kinds of knobs that mutations change, `structure` is the probability that they change the sketch,
    and `local` the probability that they move to a neighbouring option.
    """

    name = "evolutionary"
    version = "2"
    excess = 2.0

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        variant: Variant = "ansor",
        population: int | None = None,
        generations: int = 4,
        mutation: float = 0.85,
        crossover: float = 0.05,
        measured: float = 0.2,
        fresh_points: int = 50,
        fitness: Fitness = "median",
        mix: Mapping[Kind, float] | None = None,
        structure: float = 0.05,
        local: float = 0.5,
        epsilon: float = 0.05,
        breadth: float = 0.15,
        diversity: float | None = None,
        polish: float = 0.0,
        draft: int = 0,
    ) -> None:
        super().__init__(space, rng, epsilon, breadth, diversity, polish, draft)
        if variant not in POPULATION:
            raise SpaceError(f"evolutionary: unknown variant '{variant}'; known: {', '.join(POPULATION)}")
        if fitness not in get_args(Fitness):
            raise SpaceError(f"evolutionary: unknown fitness '{fitness}'; known: {', '.join(get_args(Fitness))}")
        if not 0 <= mutation <= mutation + crossover <= 1 or not 0 <= measured <= 1:
            raise SpaceError("evolutionary: mutation + crossover and measured are shares between 0 and 1")
        self.variant, self.population = variant, population or POPULATION[variant]
        self.generations, self.mutation, self.crossover = generations, mutation, crossover
        self.measured, self.fresh_points, self.fitness = measured, fresh_points, fitness
        self.mix, self.structure, self.local = dict(MIX if mix is None else mix), structure, local

    def explore(self, found: Shortlist, score: Scorer) -> None:
        """Grows generations and offers all of them to the list."""
        people = self.first_generation()
        for generation in range(self.generations + 1):
            scores = score(people)
            found.offer(people, scores)
            if generation < self.generations:
                people = self.next_generation(people, scores)

    # --- on measurements ----------------------------------------------------------------------------------------------

    @property
    def on_measurements(self) -> bool:
        """Whether there are enough measurements to breed from without a model."""
        return not self.expects_model and len(self.points) >= PARENTS and len(self.leaders(2)) == 2

    def best(self, count: int, score: Scorer | None) -> Points:
        """The best of all generations, or children of the best measured points without a model."""
        return self.take(self.offspring(), count) if score is None else super().best(count, score)

    def offspring(self) -> Points:
        """Children of the best measured points, whose fitness is their speed; in random order."""
        parents = self.leaders(PARENTS)
        seconds = np.sort(self.seconds)[: len(parents)]
        children = self.next_generation(parents, -seconds[0] / seconds)
        return children[self.rng.permutation(len(children))]

    # --- generations --------------------------------------------------------------------------------------------------

    def first_generation(self) -> Points:
        """The best measured points and new random ones."""
        best = self.leaders(int(self.measured * self.population))
        return Points.concat([best, self.sample(max(self.population - len(best), self.fresh_points))])

    def next_generation(self, people: Points, scores: Floats) -> Points:
        """The children of a population, as many as it has members."""
        size, rng = self.population, self.rng
        parents = rng.choice(len(people), size=size, p=chances(scores, self.fitness))
        fate = rng.random(size)
        mutants = fate < self.mutation
        if self.variant == "metaschedule":
            copies = np.flatnonzero(fate >= self.mutation + self.crossover)
            mutants[copies[_repeated(parents[copies])]] = True
        crossed = (fate >= self.mutation) & (fate < self.mutation + self.crossover)
        children = people[parents]
        mutated = self.space.mutate(children[mutants], rng, self.local, self.structure, by_kind(self.mix))
        others = people[rng.choice(len(people), size=int(crossed.sum()), p=chances(scores, self.fitness))]
        mixed = self.space.crossover(children[crossed], others, rng)
        return Points.concat([mutated, mixed, children[~mutants & ~crossed]])


def chances(scores: Floats, fitness: Fitness) -> Floats:
    """The probability of each point to become a parent; uniform if no point has positive fitness."""
    finite = np.isfinite(scores)
    if fitness == "rank":
        worth = np.argsort(np.argsort(-scores, kind="stable"), kind="stable").astype(np.float64)
    else:
        zero = float(np.median(scores[finite])) if fitness == "median" and finite.any() else 0.0
        worth = np.maximum(zero - np.where(finite, scores, np.inf), 0.0)
    total = worth.sum()
    return np.asarray(worth / total) if total > 0 else np.full(len(scores), 1 / len(scores))


def _repeated(numbers: Ints) -> Mask:
    """A mask of the entries that occurred before."""
    again = np.ones(len(numbers), np.bool_)
    again[np.unique(numbers, return_index=True)[1]] = False
    return again
