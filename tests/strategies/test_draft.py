"""Drafts: an estimate thins out what is drawn, sketch by sketch, and strategies start from what it leaves."""

from typing import Any

import numpy as np
import pytest

from searchlab.errors import SpaceError
from searchlab.search import Points, Strategy
from searchlab.search.knob import Floats
from searchlab.strategies import Annealing, Draft, Evolutionary, Gradient, Mcts, Metropolis
from searchlab.strategies.draft import estimated
from searchlab.testing import check_strategy, small_space
from searchlab.testing.models import tiled_space
from searchlab.testing.strategies import cost

SMALL: dict[type[Strategy], dict[str, Any]] = {
    Annealing: {"chains": 16, "steps": 8},
    Evolutionary: {"population": 32, "generations": 2},
    Gradient: {"starts": 16, "steps": 3},
    Mcts: {"simulations": 8, "population": 8},
    Metropolis: {"chains": 16, "steps": 8},
}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_without_a_number_points_are_as_random_as_ever() -> None:
    space = small_space()
    assert Draft().sample(space, 40, rng()) == space.sample(40, rng())
    assert Draft().sample_of(space, 1, 40, rng()) == space.sample_of(1, 40, rng())
    assert Draft(30).sample(tiled_space(), 40, rng()) == tiled_space().sample(40, rng())


def test_each_sketch_keeps_its_share_of_the_best() -> None:
    space, count = tiled_space(), 2000
    drawn, kept = space.sample(count, rng(1)), Draft(count).sample(space, 100, rng(1))
    assert len(kept) == len(set(space.key(kept).tolist())) == 100
    for sketch in (0, 1):
        mine, all_mine = (p[p.sketch == sketch] for p in (kept, drawn))
        different = len(set(space.key(all_mine).tolist()))
        assert abs(len(mine) - 100 * different / len(set(space.key(drawn).tolist()))) <= 1
        rest = np.isin(space.key(all_mine), space.key(mine), invert=True)
        assert estimated(space, mine).max() <= estimated(space, all_mine[rest]).min()


def test_of_one_sketch_the_best_are_kept() -> None:
    space = tiled_space()
    kept = Draft(1000).sample_of(space, 1, 20, rng(2))
    drawn = space.sample_of(1, 500, rng(2))
    assert (kept.sketch == 1).all() and len(set(space.key(kept).tolist())) == 20
    assert sorted(estimated(space, kept).tolist()) == pytest.approx(
        np.sort(estimated(space, drawn[np.unique(space.key(drawn), return_index=True)[1]]))[:20].tolist()
    )


def test_what_a_small_space_lacks_is_drawn_again() -> None:
    space = tiled_space(4, 4, 4)
    assert space.size.valid < 200
    found = Draft(1000).sample(space, 200, rng())
    assert len(found) == 200 and space.valid(found).all()
    assert set(space.key(found).tolist()) == set(space.key(space.enumerate()).tolist())


@pytest.mark.parametrize("cls", SMALL, ids=lambda c: c.name)
def test_a_search_starts_from_its_draft(cls: type[Strategy]) -> None:
    space, seen = tiled_space(), list[Points]()

    def score(points: Points) -> Floats:
        seen.append(points)
        return cost(points)

    cls(space, rng(3), draft=3000, **SMALL[cls]).ask(8, score)  # type: ignore[call-arg]
    random = estimated(space, space.sample(3000, rng(4)))
    assert np.median(estimated(space, seen[0][:8])) < np.quantile(random, 0.05)


def test_before_there_is_a_model_a_batch_is_a_draft_too() -> None:
    space = tiled_space()
    plain, drafted = (Metropolis(space, rng(5), draft=n).ask(30) for n in (0, 3000))
    assert len(drafted) == len(set(space.key(drafted).tolist())) == 30
    assert estimated(space, drafted).max() < np.median(estimated(space, plain))


@pytest.mark.parametrize("cls", SMALL, ids=lambda c: c.name)
def test_conformance_with_programs(cls: type[Strategy]) -> None:
    check_strategy(cls, tiled_space(8, 8, 4), draft=100, **SMALL[cls])


def test_refusals() -> None:
    with pytest.raises(SpaceError, match="0 for none, not -1"):
        Evolutionary(small_space(), rng(), draft=-1)
    with pytest.raises(SpaceError, match="space 'small' has none; leave out the draft"):
        Evolutionary(small_space(), rng(), draft=5000).ask(4, cost)
