"""The space on all operators: conformance at small even and odd sizes, and the long study of random points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from searchlab.search import Task
from searchlab.testing import check_features, check_moves, check_point
from spaces.probabilistic import ProbabilisticSpace, TraceSpace, replay

SpaceOf = Callable[..., TraceSpace]
TaskOf = Callable[..., Task]
HEAVY = ("conv", "capsule", "pool", "softmax", "layer_norm")  # many structures: fewer variants in the short tests


def check(here: TraceSpace, task: Task, points: int) -> None:
    check_moves(here, count=32)
    sample = here.sample(points, np.random.default_rng(1))
    check_features(here, sample[:1], task)
    for point in sample:
        program = check_point(here, point, task)
        assert replay(task.program, here.trace(point)).program.hash == program.hash


@pytest.mark.slow
def test_conformance_on_even_sizes(operator: str, space: SpaceOf, task: TaskOf) -> None:
    heavy = any(word in operator for word in HEAVY)
    check(space(operator, small=heavy), task(operator), points=1 if heavy else 2)


def test_conformance_on_odd_sizes(operator: str, space: SpaceOf, task: TaskOf) -> None:
    heavy = any(word in operator for word in HEAVY)
    check(space(operator, odd=True, small=heavy), task(operator, odd=True), points=1 if heavy else 2)


@pytest.mark.parametrize("name", ["dense", "l2_norm", "elementwise"])
def test_the_same_space_again(name: str, space: SpaceOf, task: TaskOf) -> None:
    assert ProbabilisticSpace().space(task(name)).hash == space(name).hash


@pytest.mark.slow
@pytest.mark.parametrize("odd", [False, True], ids=["even", "odd"])
def test_random_points_equal_the_reference(operator: str, odd: bool, space: SpaceOf, task: TaskOf) -> None:
    """1,000 points over all operators and sizes."""
    here = space(operator, odd)
    for point in here.sample_new(27, np.random.default_rng(0)).points:
        check_point(here, point, task(operator, odd))
