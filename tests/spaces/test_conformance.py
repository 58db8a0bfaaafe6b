"""All spaces hold to the conformance suite, and the suite finds a space that is not made for its task's machine."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from costmodels.gbt import GBTModel
from searchlab.search import SPACES, Points, Space, SpaceGenerator, Task
from searchlab.targets import parse
from searchlab.testing import check_space
from searchlab.workloads import workload
from spaces.template import TemplateSpace

MACHINE = parse("x86-64-v3:threads=2")
TASK = Task(workload("matmul", m=12, n=32, k=8), MACHINE)
NAMES = ("template", "sketch", "task-mapping", "probabilistic")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("machine", ["x86-64-v2", "x86-64-v3:threads=2"])
def test_spaces_conform(name: str, machine: str) -> None:
    check_space(SPACES.make(name), Task(TASK.workload, parse(machine)), points=2)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", [{"vector_bits": 128}, {"vector_registers": 4}, {"threads": 1}], ids=str)
def test_the_prior_of_trees_is_for_the_machine(name: str, change: dict[str, int]) -> None:
    space = SPACES.make(name).space(TASK)
    points = space.sample(64, np.random.default_rng(0))
    found = GBTModel().predict(space, points)
    other = Space(space.sketches, target=replace(MACHINE, **change))  # type: ignore[arg-type]
    assert (found == GBTModel().predict(Space(space.sketches, target=MACHINE), points)).all()
    assert (found != GBTModel().predict(other, points)).any()


class Forgetful(TemplateSpace):
    """Makes its space without saying for which machine."""

    def space(self, task: Task) -> Space:
        return Space(list(self.sketches(task)), self.name, self.version)


class Elsewhere(Space):
    """Says that it is for one machine, and gives features of another."""

    def features(self, points: Points, view: str) -> Any:
        return Space(self.sketches, self.name, self.version, parse("x86-64-v2:threads=2")).features(points, view)


class Misled(TemplateSpace):
    def space(self, task: Task) -> Space:
        return Elsewhere(list(self.sketches(task)), self.name, self.version, task.target)


class Half(Space):
    """Has features for half of its points only."""

    def features(self, points: Points, view: str) -> Any:
        return super().features(points[: len(points) // 2], view)


class Halved(TemplateSpace):
    def space(self, task: Task) -> Space:
        return Half(list(self.sketches(task)), self.name, self.version, task.target)


@pytest.mark.parametrize(
    ("generator", "complaint"),
    [
        (Forgetful(), "made for None, but the task is for x86-64-v3"),
        (Misled(), "features ignore vector_registers"),
        (Halved(), "features of view 'statements' for 1 of 2 points"),
    ],
    ids=["no target", "another target", "half"],
)
def test_wrong_features_are_found_out(generator: SpaceGenerator, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_space(generator, TASK, points=2)
