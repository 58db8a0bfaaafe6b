"""The same seed gives the same points as in every version before, with and without a cost model."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from searchlab.search import Strategy
from searchlab.strategies import Annealing, Evolutionary, Genetic, Grid, Local, Metropolis, Random
from searchlab.testing import small_space
from searchlab.testing.strategies import cost, measure

# Not here: Bayesian, and Bandit that has it for a member, compare sums whose last digits depend on the machine's BLAS,
# and Optuna's points are those of its version.
CASES: dict[str, tuple[type[Strategy], dict[str, Any]]] = {
    "annealing": (Annealing, {"chains": 8, "steps": 20}),
    "evolutionary": (Evolutionary, {"population": 32}),
    "evolutionary, metaschedule": (Evolutionary, {"variant": "metaschedule", "population": 32}),
    "genetic": (Genetic, {}),
    "grid": (Grid, {}),
    "local": (Local, {}),
    "metropolis": (Metropolis, {}),
    "random": (Random, {}),
}


def keys(cls: type[Strategy], options: dict[str, Any], model: bool) -> Iterator[list[int]]:
    """What is proposed in five batches, some of which fail."""
    space = small_space()
    strategy = cls(space, np.random.default_rng(0), **options)
    for _ in range(5):
        points = strategy.ask(6, cost if model else None)
        yield [*points.sketch.tolist(), *points.options.ravel().tolist()]
        strategy.tell(points, measure(points))


def test_points_are_the_same(golden: Callable[[str, str], None]) -> None:
    found = {
        f"{name}{' with a model' if model else ''}": list(keys(*CASES[name], model))
        for name in CASES
        for model in (False, True)
    }
    golden("strategies.jsonl", "".join(f"{json.dumps([name, batches])}\n" for name, batches in found.items()))
