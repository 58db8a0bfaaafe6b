"""Every option of every strategy does something: another value gives another trace."""

import importlib.util
from typing import Any

import numpy as np
import pytest

from searchlab.errors import SpaceError
from searchlab.registry import accepted_options
from searchlab.search import Points, Space, Strategy, menu
from searchlab.search.sketch import Sketch
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
from searchlab.testing import small_space
from searchlab.testing.models import tiled_space
from searchlab.testing.strategies import cost

GUIDED: dict[str, Any] = {"epsilon": 0.5, "breadth": 0.6, "diversity": 3.0, "polish": 0.5, "draft": 500}
# A base of options, and for every option another value; an option named "plain" is tried without a model.
OTHER: dict[type[Strategy], tuple[dict[str, Any], dict[str, Any]]] = {
    Random: ({}, {}),
    Grid: ({}, {"order": "index", "start": 3}),
    Annealing: (
        {"steps": 30, "chains": 8, "early_stop": 30},
        {"chains": 16, "steps": 2, "early_stop": 1, "temperature": 50.0, "persistent": False, **GUIDED},
    ),
    Evolutionary: (
        {"population": 32, "generations": 2},
        {
            "variant": "metaschedule", "population": 64, "generations": 1, "mutation": 0.3, "crossover": 0.15,
            "measured": 0.9, "fresh_points": 40, "fitness": "rank", "mix": {"category": 1.0}, "structure": 0.9,
            "local": 0.0, **GUIDED,
        },
    ),
    Metropolis: (
        {"chains": 16, "steps": 12},
        {
            "chains": 8, "steps": 3, "hot": 20.0, "cold": 0.9, "jump": 0.9,
            "prior": lambda points: 50.0 * (points.sketch == 0), **GUIDED,
        },
    ),
    Gradient: ({"starts": 16, "steps": 4}, {"starts": 8, "steps": 0, "roundings": 1, **GUIDED}),
    Mcts: (
        {"simulations": 64, "population": 16},
        {"simulations": 8, "population": 64, "exploration": 9.0, "widening": 9.0, "backup": "mean", **GUIDED},
    ),
    Bayesian: (
        {"start": 4},
        {
            "surrogate": "forest", "start": 9, "everything": 0, "lie": "worst", "growth": 3.0, "most": 8, "pool": 64,
            "trees": 4,
        },
    ),
    Genetic: ({}, {"population": 4, "tournament": 6, "crossover": 0.0, "mutation": 1.0, "local": 1.0}),
    Local: ({"start": 3}, {"start": 12, "kick": 1, "restart": 1.0, "polish": "adjacent"}),
    Bandit: ({}, {"members": ["tests-random"], "exploration": 5.0, "window": 1, "sharpness": 0.01}),
    Optuna: ({}, {"sampler": "random", "start": 2, "liar": False, "pool": 16}),
}  # fmt: skip
PLAIN = {"walkers": 2, "hot": 50.0, "half_life": 1}
# what an option needs to matter
NEEDS: dict[tuple[type[Strategy], str], dict[str, Any]] = {
    (Bayesian, "pool"): {"everything": 0},
    (Bayesian, "trees"): {"surrogate": "forest"},
    (Evolutionary, "fresh_points"): {"measured": 0.5},
}
CASES = [(cls, name, value, True) for cls, (_, others) in OTHER.items() for name, value in others.items()]
CASES += [(Annealing, name, value, False) for name, value in PLAIN.items()]


def trace(cls: type[Strategy], options: dict[str, Any], model: bool, space: Space) -> list[list[int]]:
    strategy = cls(space, np.random.default_rng(3), **options)
    rows: list[list[int]] = []
    for count in (6, 6, 1, 1, 1, 6, 6, 6, 6, 6):
        batch = strategy.ask(count, cost if model else None)
        strategy.tell(batch, cost(batch))
        rows += batch.rows()
    return rows


def too_large_to_list() -> Space:
    """A space whose points nobody counts."""
    knobs = tuple(menu(f"m{n}", range(1, 33)) for n in range(5))
    return Space([Sketch("large", knobs)], "large")


@pytest.mark.parametrize(("cls", "option", "value", "model"), CASES, ids=lambda x: getattr(x, "__name__", str(x))[:20])
def test_an_option_changes_the_trace(cls: type[Strategy], option: str, value: Any, model: bool) -> None:
    if cls is Optuna and importlib.util.find_spec("optuna") is None:
        pytest.skip("optuna is not installed")
    if option == "members":
        from searchlab.search import STRATEGIES

        STRATEGIES.add(Random, "tests-random")
    base = OTHER[cls][0] | NEEDS.get((cls, option), {})
    space = too_large_to_list() if (cls, option) == (Optuna, "pool") else small_space()
    space = tiled_space() if option == "draft" else space  # which has programs
    assert trace(cls, base, model, space) != trace(cls, {**base, option: value}, model, space)


@pytest.mark.parametrize("cls", OTHER, ids=lambda c: c.name)
def test_no_option_is_left_out(cls: type[Strategy]) -> None:
    tested = {*OTHER[cls][1], *(PLAIN if cls is Annealing else ())}
    assert tested == accepted_options(cls).keys() - {"space", "rng"}


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [
        (Grid, {"order": "diagonal"}, "unknown order 'diagonal'; known: index, stride"),
        (Annealing, {"chains": 0}, "at least 1"),
        (Annealing, {"epsilon": 1.5}, "between 0 and 1, not 1.5"),
        (Annealing, {"diversity": 0.5}, "1 or more times the batch"),
        (Evolutionary, {"variant": "tvm"}, "unknown variant 'tvm'; known: ansor, metaschedule"),
        (Evolutionary, {"fitness": "best"}, "known: median, negated, rank"),
        (Evolutionary, {"mutation": 0.9, "crossover": 0.2}, "between 0 and 1"),
        (Metropolis, {"cold": 0.0}, "0 < cold <= hot"),
        (Metropolis, {"draft": -1}, "0 for none, not -1"),
        (Gradient, {"starts": 0}, "starts and roundings are at least 1"),
        (Gradient, {"steps": -1}, "steps at least 0"),
        (Mcts, {"population": 1}, "population >= 2"),
        (Mcts, {"widening": 0.0}, "widening > 0"),
        (Mcts, {"backup": "worst"}, "unknown backup 'worst'; known: best, mean"),
        (Bayesian, {"surrogate": "tree"}, "known: gp, forest"),
        (Bayesian, {"lie": "none"}, "known: mean, best, worst"),
        (Bayesian, {"growth": 1.0}, "growth > 1"),
        (Genetic, {"population": 1}, "population >= 2"),
        (Local, {"polish": "some"}, "known: all, adjacent"),
        (Local, {"kick": 0}, "at least 1"),
        (Bandit, {"members": []}, "at least one member"),
        (Optuna, {"sampler": "magic"}, "known: tpe, gp, nsga2, random"),
    ],
)
def test_options_that_make_no_sense_are_refused(cls: type[Strategy], options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        cls(small_space(), np.random.default_rng(0), **options)


def test_a_time_for_every_point() -> None:
    strategy = Random(small_space(), np.random.default_rng(0))
    points = strategy.ask(3)
    with pytest.raises(SpaceError, match="3 points are told with as many times"):
        strategy.tell(points, np.ones(2))
    with pytest.raises(SpaceError, match="nan"):
        strategy.tell(points, np.array([1.0, np.nan, 1.0]))


def test_what_is_told_again_has_the_newer_time() -> None:
    strategy = Random(small_space(), np.random.default_rng(0))
    points = strategy.ask(3)
    strategy.tell(points, np.array([3.0, 2.0, np.inf]))
    assert strategy.leaders(5) == points[[1, 0]]
    strategy.tell(points[[0, 0]], np.array([4.0, 1.0]))
    assert strategy.leaders(5) == points[[0, 1]] and len(strategy.points) == 3
    assert strategy.seconds.tolist() == [1.0, 2.0, np.inf] and len(strategy.pending) == 0
    strategy.tell(Points.empty(strategy.space.width), np.empty(0))
    assert len(strategy.points) == 3
