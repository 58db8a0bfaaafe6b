"""Several tasks, one budget: the gradient rule against values worked out by hand, and what it is good for."""

import math

import numpy as np
import pytest

from searchlab.errors import SpaceError
from searchlab.lab.study.joint import JointStudy
from searchlab.lab.study.objective import Latency, Patient
from searchlab.lab.study.scheduler import Policy, TaskProgress, TaskScheduler
from searchlab.lab.study.study import Study
from searchlab.measure.recorded.tables import load
from searchlab.search import CostModel, History, Points, Space
from searchlab.search.knob import Floats

STRATEGY = f"{__name__.replace('test_scheduler', 'test_study')}:Plain"


def test_the_gradient_by_hand() -> None:
    tasks = [TaskProgress("a", 8.0, (10.0, 8.0, 7.0, 4.0)), TaskProgress("b", 100.0, (5.0, 5.0, 5.0, 5.0))]
    found = TaskScheduler(Latency((1.0, 3.0))).gradients(tasks)
    # a: improved by 6 in 3 rounds; outlook min(-4/4, 2*8/(8/4) - 4 = 4) = -1
    assert found[0] == pytest.approx(0.2 * -2.0 + 0.8 * -1.0)
    # b: no improvement; outlook min(-5/4, 2*5 - 5) = -1.25; three times in a run
    assert found[1] == pytest.approx(3 * 0.8 * -1.25)


def test_similar_tasks_raise_hope() -> None:
    slow, fast = TaskProgress("conv", 1000.0, (10.0,) * 6), TaskProgress("conv", 1001.0, (1.0,) * 6)
    other = TaskProgress("pool", 1001.0, (1.0,) * 6)
    scheduler = TaskScheduler(Latency((1.0, 1.0)))
    assert scheduler.gradients([slow, fast])[0] < scheduler.gradients([slow, other])[0]


def test_every_task_gets_a_round_first_and_turns_are_taken() -> None:
    for policy in ("gradient", "round-robin"):
        scheduler = TaskScheduler(Latency((1.0,) * 3), policy)  # type: ignore[arg-type]
        tasks = [TaskProgress("a", 1.0, (1.0,)), TaskProgress("b", 1.0), TaskProgress("c", 1.0, (1.0,))]
        assert scheduler.choose(tasks) == 1
    assert (
        TaskScheduler(Latency((1.0,) * 3), "round-robin").choose(
            [TaskProgress("a", 1.0, (1.0,) * n) for n in (3, 2, 4)]
        )
        == 1
    )
    assert scheduler.choose(tasks, [False] * 3) is None


def test_a_task_without_a_result_comes_first() -> None:
    tasks = [TaskProgress("a", 1.0, (1.0, 1.0)), TaskProgress("b", 1.0, (math.inf, math.inf))]
    assert TaskScheduler(Latency((1.0, 1.0))).choose(tasks) == 1


def test_epsilon_makes_random_choices() -> None:
    tasks = [TaskProgress("a", 1.0, (9.0, 1.0)), TaskProgress("b", 1.0, (1.0, 1.0))]
    chosen = {
        TaskScheduler(Latency((1.0, 1e-6)), epsilon=1.0, rng=np.random.default_rng(n)).choose(tasks) for n in range(9)
    }
    assert chosen == {0, 1}
    assert TaskScheduler(Latency((1.0, 1e-6))).choose(tasks) == 0


def test_objectives() -> None:
    assert Latency((2.0, 3.0))([1.0, 10.0]) == 32.0
    patient = TaskScheduler(Patient(Latency((1.0, 1.0)), rounds=2))
    tired, lively = TaskProgress("a", 1.0, (2.0,) * 4), TaskProgress("b", 1.0, (4.0, 3.0, 2.0, 1.0))
    assert patient.choose([tired, lively]) == 1 and patient.choose([tired, tired]) is None


def test_candidates_name_their_task() -> None:
    """Whoever was asked last, a batch is measured and told where it belongs."""
    studies = [Study(load(name), model=None, strategy=STRATEGY, batch=4) for name in ("matmul-256", "softmax-128x1024")]
    network = JointStudy(studies, (1.0, 1.0), "round-robin")
    first = network.ask(4)
    network.tell(first, network.measure(first))
    second = network.ask(4)
    assert [{c.part for c in batch} for batch in (first, second)] == [{0}, {1}]
    assert [o.id for o in network.measure(first)] == [c.job.id for c in first]
    network.tell(second, network.measure(second))
    assert network.turns == [0, 1] and [len(s.trials) for s in studies] == [4, 4]


def tuned(policy: Policy, seed: int) -> float:
    names = ("matmul-256", "conv2d-32x28x28", "softmax-128x1024")
    studies = [Study(load(name), model=None, strategy=STRATEGY, seed=seed, batch=4) for name in names]
    network = JointStudy(studies, (30.0, 1.0, 1.0), policy, seed=seed)
    found = network.optimize(trials=60)
    assert network.trials == sum(len(s.trials) for s in studies) == 60 and len(network.turns) == 15
    assert found == network.rounds[-1].best_s == Latency(network.weights)(network.seconds)
    values = [r.best_s for r in network.rounds]
    assert values[:2] == [np.inf] * 2 and values[2:] == sorted(values[2:], reverse=True)
    return found


def test_the_gradient_rule_spends_the_budget_where_it_counts() -> None:
    gains = [tuned("round-robin", n) / tuned("gradient", n) for n in range(8)]
    assert np.mean(gains) > 1.0


# --- one model for all tasks ------------------------------------------------------------------------------------------


class Taught(CostModel):
    """A model that remembers what it was trained on."""

    name = "taught"
    view = "summary"

    def __init__(self, rng: np.random.Generator | None = None) -> None:
        super().__init__(rng)
        self.lessons: list[list[tuple[str, int]]] = []

    def fit(self, history: History) -> None:
        self.lessons.append([(trials.task, len(trials)) for trials in history])

    def predict(self, space: Space, points: Points) -> Floats:
        return space.encode(points).sum(axis=1)


def taught(share: bool) -> JointStudy:
    studies = [Study(load(n), model=Taught(), strategy="random", batch=4) for n in ("matmul-256", "softmax-128x1024")]
    joint = JointStudy(studies, (1, 1), "round-robin", share_model=share)
    joint.optimize(trials=24)
    return joint


def test_a_shared_model_learns_from_all_tasks_and_its_own_last() -> None:
    names = ["matmul-256", "softmax-128x1024"]
    for number, study in enumerate(taught(True).studies):
        assert isinstance(study.model, Taught)
        mine, other = names[number], names[1 - number]
        assert all([task for task, _ in lesson] == [other, mine] for lesson in study.model.lessons)
        # the first task has nothing to learn from at first; later it knows as many trials of the other as of its own
        assert study.model.lessons[-1] == [(other, 8 + 4 * number), (mine, 8)]
    for study in taught(False).studies:
        assert isinstance(study.model, Taught)
        assert {len(lesson) for lesson in study.model.lessons} == {1}


def test_sharing_is_repeatable_and_knobs_are_not_shared() -> None:
    first, again = (taught(True) for _ in range(2))
    assert [r.points.rows() for r in first.rounds] == [r.points.rows() for r in again.rounds]
    studies = [Study(load("matmul-256"), model={"gbt": {"view": "knobs"}}, strategy="random") for _ in range(2)]
    with pytest.raises(SpaceError, match="a model on knobs cannot be shared"):
        JointStudy(studies, (1, 1), share_model=True)
