"""What a search starts with: seeds of its space, which it then learns from, or nothing."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from searchlab.errors import SpaceError
from searchlab.lab.records import RecordStore
from searchlab.lab.study import JointStudy, Study, TaskSubject
from searchlab.measure.job import Job, Measurer, Outcome
from searchlab.search import STRATEGIES, Points, Task, space
from searchlab.targets import parse as target
from searchlab.workloads import parse

TASK = Task(parse("matmul:m=48,n=64,k=32"), target("x86-64-v3:threads=2"))


class ByHash(Measurer[Job]):
    """Times that follow from the program alone, without hardware."""

    def __init__(self) -> None:
        self.jobs: list[str] = []

    def measure(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in jobs:
            self.jobs.append(job.id)
            seconds = 1e-3 * (1 + int(job.program.hash[:6], 16) / 16**6)
            yield Outcome(job.id, "ok", (seconds,) * 3, number=1)


def study(**options: object) -> Study:
    subject = TaskSubject(TASK, space("sketch", TASK))
    given = {"model": None, "strategy": "random", "measurer": ByHash(), "confirm": False}
    return Study(subject, **{**given, **options})  # type: ignore[arg-type]


def test_the_first_batch_is_seeds_alone_and_at_most_half_a_batch() -> None:
    made = study(batch=16)
    made.optimize(trials=24)
    seeds = made.space.seeds
    assert made.rounds[0].points == seeds[: len(made.rounds[0].points)]
    assert 4 <= len(made.rounds[0].points) <= 8 and made.rounds[0].points == seeds[:8]
    assert len(made.trials) == 24 and len(np.unique(made.space.key(made.trials.points))) == 24


def test_a_small_batch_spreads_the_seeds() -> None:
    made = study(batch=4)
    made.optimize(trials=14)
    seeds, key = made.space.seeds, made.space.key
    assert [len(r.points) for r in made.rounds] == [2, 4, 4, 4]
    for number, done in enumerate(made.rounds):
        assert done.points[:2] == seeds[2 * number : 2 * number + 2]
        assert not np.isin(key(done.points[2:]), key(seeds[: 2 * number + 2])).any()


def test_random_starts_with_what_the_strategy_proposes() -> None:
    made = study(start="random", batch=8)
    alone = STRATEGIES.make("random", space=made.space, rng=made.seeds.generator("strategy"))
    assert Points.concat([c.point for c in made.ask()]) == alone.ask(8)
    made = study(start="random", batch=8, strategy="evolutionary", model="gbt")
    made.space.seed_with(lambda: pytest.fail("seeds were looked for"))
    made.optimize(trials=8)


def test_the_same_seed_gives_the_same_candidates_and_a_search_resumes(tmp_path: Path) -> None:
    whole = study(strategy="evolutionary", model="gbt", batch=8, seed=3)
    whole.optimize(trials=24)
    with RecordStore(tmp_path / "records") as store:
        first = study(strategy="evolutionary", model="gbt", batch=8, seed=3, store=store, cell="c")
        first.optimize(trials=12)
        assert [r.place.seed for r in store.records(TASK.workload.key)] == [True] * 8 + [False] * 4
    with RecordStore(tmp_path / "records") as store:
        measurer = ByHash()
        again = study(strategy="evolutionary", model="gbt", batch=8, seed=3, store=store, cell="c", measurer=measurer)
        again.optimize(trials=24)
    assert again.trials.points == whole.trials.points
    assert len(measurer.jobs) < 24


def test_a_space_without_seeds_starts_as_ever() -> None:
    bare = space("sketch", TASK)
    bare.seed_with(lambda: Points.empty(bare.width))
    given = {"model": None, "strategy": "random", "measurer": ByHash(), "confirm": False}
    seeded = Study(TaskSubject(TASK, bare), **given)  # type: ignore[arg-type]
    random = Study(TaskSubject(TASK, bare), start="random", **given)  # type: ignore[arg-type]
    assert seeded.optimize(trials=16).seconds == random.optimize(trials=16).seconds
    assert seeded.trials.points == random.trials.points


def test_an_unknown_start_is_refused() -> None:
    with pytest.raises(SpaceError, match="unknown start 'warm'; accepted: seeds, random"):
        study(start="warm")


def test_tasks_of_a_network_start_with_their_seeds() -> None:
    joint = JointStudy([study(batch=8), study(batch=8)], (1, 1))
    joint.optimize(trials=16)
    for one in joint.studies:
        assert one.rounds[0].points == one.space.seeds[:4]


@pytest.mark.parametrize("name", ["evolutionary", "local", "genetic", "annealing", "bayesian", "bandit"])
def test_strategies_learn_from_points_they_did_not_ask_for(name: str) -> None:
    """With seeds far better than everything else, some of what is proposed next lies beside them."""
    made = space("sketch", TASK)
    strategy = STRATEGIES.make(name, space=made, rng=np.random.default_rng(1))
    many = made.sample_new(24, np.random.default_rng(0)).points
    told = Points.concat([made.seeds[:4], many])
    strategy.tell(told, np.concatenate([[1e-6] * 4, [1e-3] * len(many)]))
    assert strategy.leaders(4) == made.seeds[:4]
    near = made.key(Points.concat([made.neighbours(p, adjacent=False) for p in made.seeds[:4]]))
    asked = strategy.ask(32)
    assert np.isin(made.key(asked), near).sum() >= 3


def test_chains_of_annealing_start_at_points_told_before_any_was_asked_for() -> None:
    made = space("sketch", TASK)
    strategy = STRATEGIES.make({"annealing": {"steps": 1}}, space=made, rng=np.random.default_rng(1))
    seeds, seen = made.seeds[:3], list[Points]()
    strategy.tell(seeds, np.array([1e-6, 2e-6, np.inf]))

    def score(points: Points) -> np.ndarray:  # type: ignore[type-arg]
        seen.append(points)
        return np.arange(len(points), dtype=np.float64)

    strategy.ask(4, score)
    assert seen[0][:2] == seeds[:2] and len(seen[0]) == 128
