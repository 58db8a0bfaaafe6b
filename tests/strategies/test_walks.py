"""How the strategies move: acceptance, selection, generations, chains, climbs, and who gets the budget."""

from collections import Counter

import numpy as np
import pytest

from searchlab.search import Points, RecordedSpace, Scorer, Space, Strategy, menu
from searchlab.search.knob import Floats
from searchlab.search.moves import by_kind
from searchlab.strategies import Annealing, Bandit, Bayesian, Evolutionary, Genetic, Grid, Local, Metropolis, Random
from searchlab.strategies.annealing import accepts
from searchlab.strategies.evolutionary import chances
from searchlab.strategies.metropolis import Chains
from searchlab.testing import small_space
from searchlab.testing.strategies import cost


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


class Recorder:
    """A model that remembers all that it was asked about."""

    def __init__(self) -> None:
        self.calls: list[Points] = []

    def __call__(self, points: Points) -> Floats:
        self.calls.append(points)
        return cost(points)


def test_grid_covers_a_space_in_order_or_in_strides() -> None:
    space = small_space()
    everything = space.enumerate()
    assert Grid(space, rng(), order="index").ask(1000) == everything
    strides = Grid(space, rng(), order="stride").ask(12)
    places = sorted(np.flatnonzero(np.isin(space.key(everything), space.key(strides))).tolist())
    assert np.diff([0, *places, len(everything)]).max() < 2.5 * len(everything) / 12


# --- annealing --------------------------------------------------------------------------------------------------------


def test_acceptance_follows_the_rule() -> None:
    worse, better = np.full(40000, -0.5), np.full(100, 0.2)
    assert accepts(worse, 1.0, rng()).mean() == pytest.approx(np.exp(-0.5), abs=0.01)
    assert accepts(better, 0.5, rng()).all() and not accepts(worse, 1e-5, rng()).any()
    assert not accepts(np.array([-np.inf]), 1.0, rng()).any() and accepts(np.array([np.inf]), 1.0, rng()).all()


def test_a_batch_is_the_best_that_chains_met() -> None:
    model = Recorder()
    strategy = Annealing(small_space(), rng(), chains=4, steps=40, temperature=30.0, epsilon=0)
    batch = strategy.ask(5, model)
    met = Random(strategy.space, rng()).fresh(Points.concat(model.calls))
    assert sorted(cost(batch)) == sorted(cost(met))[:5]


def test_chains_go_on_where_they_were() -> None:
    model = Recorder()
    strategy = Annealing(small_space(), rng(), chains=8, steps=5)
    strategy.ask(4, model)
    ended = strategy._states
    model.calls.clear()
    strategy.ask(4, model)
    assert model.calls[0] == ended


def test_a_walk_ends_when_the_list_rests() -> None:
    model = Recorder()
    Annealing(small_space(), rng(), steps=500, early_stop=10).ask(2, model)
    assert len(model.calls) < 60


# --- evolution --------------------------------------------------------------------------------------------------------


def test_parents_are_drawn_by_what_they_are_worth() -> None:
    scores = np.array([-3.0, -1.0, 1.0, np.inf])
    assert chances(scores, "negated").tolist() == [0.75, 0.25, 0, 0]
    assert chances(scores, "median").tolist() == [1, 0, 0, 0]
    assert chances(scores, "rank").tolist() == [0.5, 1 / 3, 1 / 6, 0]
    for none_better in (np.array([1.0, 2.0]), np.array([np.inf, np.inf])):
        assert chances(none_better, "negated").tolist() == [0.5, 0.5]
    assert chances(np.array([2.0, 2.0]), "median").tolist() == [0.5, 0.5]


def test_a_batch_is_the_best_of_all_generations() -> None:
    model = Recorder()
    strategy = Evolutionary(small_space(), rng(), population=20, generations=3, epsilon=0)
    batch = strategy.ask(6, model)
    assert [len(c) for c in model.calls] == [50, 20, 20, 20]  # at least 50 new ones at the start
    met = Random(strategy.space, rng()).fresh(Points.concat(model.calls))
    assert sorted(cost(batch)) == sorted(cost(met))[:6]


def test_the_best_measured_are_among_the_first() -> None:
    strategy = Evolutionary(small_space(), rng(), population=100)
    told = strategy.ask(60)
    strategy.tell(told, cost(told))
    first = strategy.first_generation()
    assert len(first) == 100 and first[:20] == strategy.leaders(20)


def test_children_without_mutation_are_copies() -> None:
    strategy = Evolutionary(small_space(), rng(), population=200, mutation=0.0, crossover=0.0)
    people = strategy.first_generation()
    children = strategy.next_generation(people, cost(people))
    assert set(strategy.space.key(children).tolist()) <= set(strategy.space.key(people).tolist())


def test_metaschedule_copies_no_parent_twice() -> None:
    space = small_space()
    people = space.enumerate()[:12]
    for variant, most in (("ansor", 200), ("metaschedule", 12)):
        strategy = Evolutionary(space, rng(), variant, population=200, mutation=0.0, crossover=0.0, structure=0.0)
        children = strategy.next_generation(people, np.zeros(12))
        kept = children[-most:]
        copies = Counter(space.key(kept).tolist())
        assert (max(copies.values()) > 1) == (variant == "ansor")
    assert Evolutionary(space, rng(), "metaschedule").population == 512


def test_mutations_follow_the_mix() -> None:
    space = small_space()
    people = space.enumerate()[space.enumerate().sketch == 1]
    changed = space.mutate(people, rng(), structure=0.0, weights=by_kind({"category": 1.0}))
    differs = (changed.options != people.options).any(axis=0)
    assert differs.tolist() == [False, False, True]


# --- Metropolis -------------------------------------------------------------------------------------------------------


def ragged() -> RecordedSpace:
    """Few points with very different numbers of neighbours."""
    rows = [[0, 0], [0, 1], [0, 2], [0, 3], [1, 0], [2, 0], [2, 3], [3, 3]]
    return RecordedSpace.of([menu("a", [1, 2, 3, 4]), menu("b", [1, 2, 3, 4])], np.array(rows, np.int32), "ragged")


@pytest.mark.parametrize("prior", [None, lambda points: np.log(1.0 + points.options[:, 0])])
def test_chains_are_distributed_as_promised(prior: Scorer | None) -> None:
    space, heat = ragged(), 0.7
    everything = space.enumerate()
    height = np.linspace(0, 1.4, len(everything))

    def score(points: Points) -> Floats:
        return height[np.array([keys.index(k) for k in space.key(points).tolist()])]

    keys = space.key(everything).tolist()
    strategy = Metropolis(space, rng(), jump=0.2, prior=prior)
    start = space.sample(4000, rng(1))
    now = Chains(start, score(start), strategy._belief(start))
    for _ in range(40):
        now, _ = strategy.step(now, score, heat)
    wanted = np.exp(-height / heat) * (1 if prior is None else np.exp(prior(everything)))
    seen = Counter(space.key(now.points).tolist())
    share = np.array([seen[k] / 4000 for k in keys])
    assert np.abs(share - wanted / wanted.sum()).max() < 0.03


# --- on measurements --------------------------------------------------------------------------------------------------


def landscape() -> RecordedSpace:
    knobs = [menu(n, range(1, 13)) for n in "abc"]
    return RecordedSpace.of(knobs, np.indices((12, 12, 12)).reshape(3, -1).T.astype(np.int32), "landscape")


def height(points: Points) -> Floats:
    return np.asarray(1.0 + (np.abs(points.options - np.array([9, 2, 6])) ** 1.5).sum(axis=1))


def found_after(strategy: Strategy, trials: int) -> float:
    for _ in range(trials // 4):
        points = strategy.ask(4)
        strategy.tell(points, height(points))
    return float(strategy.seconds.min())


@pytest.mark.parametrize(
    ("cls", "trials"), [(Annealing, 80), (Bandit, 32), (Bayesian, 24), (Genetic, 100), (Local, 40)]
)
def test_strategies_learn_from_measurements(cls: type[Strategy], trials: int) -> None:
    """No better than chance, it would win 7 of 8 times or more with a probability of 9 / 256."""
    pairs = [[found_after(c(landscape(), rng(seed)), trials) for c in (cls, Random)] for seed in range(8)]
    assert sum(own < chance for own, chance in pairs) >= 7


@pytest.mark.parametrize("options", [{}, {"surrogate": "forest"}, {"everything": 0}])
def test_bayesian_finds_a_valley_soon(options: dict[str, object]) -> None:
    found = [found_after(Bayesian(landscape(), rng(s), **options), 60) for s in range(3)]  # type: ignore[arg-type]
    assert np.median(found) < 4


def test_local_polishes_before_it_jumps() -> None:
    space: Space = landscape()
    strategy = Local(space, rng(), start=1, restart=0.0)
    while height(strategy.leaders(1))[0] > 1.0 if len(strategy.points) else True:
        points = strategy.ask(1)
        strategy.tell(points, height(points))
    near = set(space.key(space.neighbours(strategy.leaders(1), adjacent=False)).tolist())
    for _ in range(len(near)):
        points = strategy.ask(1)
        strategy.tell(points, height(points))
    assert near <= set(strategy.known.tolist())


def test_the_budget_goes_to_what_works() -> None:
    space = landscape()
    bandit = Bandit(space, rng(), members=[Random(space, rng(1)), Bayesian(space, rng(2))])
    found_after(bandit, 60)
    assert bandit.tries[1] > 1.5 * bandit.tries[0] > 0 and bandit.tries.sum() == 60
    assert all(len(m.points) == 60 for m in bandit.members)
