"""The benchmark's score: the expectation of random search is exact, and scores lie where they should."""

from itertools import permutations

import numpy as np
import pytest

from benchmarks import replay
from searchlab.measure.recorded.tables import Table, load
from searchlab.search import RecordedSpace, menu
from searchlab.strategies import Evolutionary


def small(seconds: list[float]) -> replay.Replay:
    space = RecordedSpace.of([menu("t", range(1, len(seconds) + 1))], np.arange(len(seconds)).reshape(-1, 1), "small")
    zeros = np.zeros(len(seconds))
    status = tuple("ok" if np.isfinite(s) else "run" for s in seconds)
    return replay.Replay(Table(space, status, np.array(seconds), zeros, zeros, zeros, zeros))


def test_the_expectation_of_random_search_is_exact() -> None:
    seconds = [3.0, 1.0, np.inf, 4.0, 2.0]
    found = small(seconds).random.expected
    for k in range(1, 6):
        orders = [min([s for s in p[:k] if np.isfinite(s)], default=4.0) for p in permutations(seconds)]
        assert found[k - 1] == pytest.approx(np.mean(orders))


def test_scores_of_the_best_and_of_the_worst() -> None:
    case = replay.Replay(load("matmul-256"))
    seconds = np.sort(case.table.seconds)
    assert case.random.score(seconds[:200]) == pytest.approx(1.0)
    assert case.random.score(seconds[::-1][:200]) < -1


def test_a_run_is_repeated_by_its_seed() -> None:
    case = replay.Replay(load("softmax-128x1024"))
    options = {"population": 64, "generations": 1}
    contender = replay.Contender(Evolutionary, options, model=True)
    assert case.run(contender, 3, 50) == case.run(contender, 3, 50) != case.run(contender, 4, 50)
