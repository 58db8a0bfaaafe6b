"""Structures of Winograd's convolution."""

import numpy as np
import pytest

from searchlab.defaults import default_schedule
from searchlab.graph import GraphBuilder, model_tasks
from searchlab.graph.model_source import source_of
from searchlab.lower.passes import lower
from searchlab.search import Task
from searchlab.targets import Target, parse
from searchlab.testing import check_space
from searchlab.workloads import Workload
from spaces.sketch import SketchSpace
from spaces.sketch.rules import DEFAULT_RULES

TARGETS = ["x86-64-v3:threads=2", "x86-64-v4:threads=2"]


def layer(target: Target, h: int = 11, w: int = 10) -> Workload:
    """A convolution with a bias and an activation, after one that begins the chain."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", (1, 3, h, w))
    first = b.constant("first", rng.normal(size=(64, 3, 1, 1)).astype("float32"))
    weights = b.constant("weights", rng.normal(size=(64, 64, 3, 3)).astype("float32"))
    bias = b.constant("bias", rng.normal(size=64).astype("float32"))
    made = b.relu(b.conv2d(b.conv2d(x, first), weights, bias, padding=1))
    source = source_of((b.build(made), (np.ones((1, 3, h, w), "float32"),)))
    (found,) = [t.workload for t in model_tasks(source, target=target) if "winograd" in t.workload.label]
    return found


@pytest.mark.parametrize("name", TARGETS)
def test_structures_conform(name: str) -> None:
    """Points of all structures compute what the graph does, also in bands that do not divide the rows."""
    target = parse(name)
    space = check_space(SketchSpace(), Task(layer(target), target), points=2)
    assert [s.name for s in space.sketches] == ["winograd", "winograd-bands", "winograd-channels"]
    assert all(len(sketch.knobs) == 3 for sketch in space.sketches)


@pytest.mark.parametrize("name", TARGETS)
def test_the_default_schedule_is_the_first_seed(name: str) -> None:
    target = parse(name)
    task = Task(layer(target), target)
    generator = SketchSpace()
    space = generator.space(task)
    seeds = generator.seeds(task, space)
    assert {space.choice(seed)["sketch"] for seed in seeds} == {sketch.name for sketch in space.sketches}
    made, default = (lower(p, target) for p in (space.program(seeds[0]), default_schedule(task.program, target)))
    assert str(made) == str(default)


def test_other_rules_have_their_own_structures() -> None:
    target = parse(TARGETS[0])
    rules = [type(rule)() for rule in DEFAULT_RULES]
    space = SketchSpace(rules=rules).space(Task(layer(target), target))
    assert not any(s.name.startswith("winograd") for s in space.sketches)
