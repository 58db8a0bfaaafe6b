"""Every strategy, with and without a model, holds to the conformance suite."""

import importlib.util

import pytest

from searchlab.search import Points, Scorer, Strategy
from searchlab.strategies import (
    Annealing,
    Bandit,
    Bayesian,
    Evolutionary,
    Genetic,
    Gradient,
    Grid,
    Local,
    Mcts,
    Metropolis,
    Optuna,
    Random,
)
from searchlab.testing import check_strategy

needs_optuna = pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="optuna is not installed")
SMALL = {"population": 64, "generations": 2}


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        (Random, {}),
        (Grid, {}),
        (Grid, {"order": "index", "start": 5}),
        (Annealing, {"steps": 20}),
        (Annealing, {"steps": 20, "diversity": 2, "polish": 0.25}),
        (Evolutionary, SMALL),
        (Evolutionary, {**SMALL, "variant": "metaschedule", "diversity": 3}),
        (Metropolis, {"chains": 32, "steps": 20}),
        (Gradient, {"starts": 32, "steps": 6}),
        (Gradient, {"starts": 8, "steps": 0, "roundings": 1, "diversity": 2}),
        (Mcts, {"simulations": 24, "population": 8, "polish": 0.2}),
        (Bayesian, {}),
        (Bayesian, {"everything": 0, "pool": 64}),
        (Bayesian, {"surrogate": "forest", "trees": 8}),
        (Bayesian, {"most": 16, "lie": "worst"}),
        (Genetic, {}),
        (Local, {}),
        (Local, {"polish": "adjacent"}),
        (Bandit, {}),
        pytest.param(Optuna, {}, marks=needs_optuna),
    ],
)
def test_conformance(strategy: type[Strategy], options: dict[str, object]) -> None:
    check_strategy(strategy, **options)


@pytest.mark.parametrize("again", [4, 1])
def test_one_that_repeats_itself_is_found(again: int) -> None:
    """Within a batch, and from batch to batch."""

    class Repeats(Random):
        def ask(self, count: int, score: Scorer | None = None) -> Points:
            return self.space.enumerate()[[0] * min(again, count)]

    with pytest.raises(AssertionError, match="a point was proposed twice"):
        check_strategy(Repeats)
