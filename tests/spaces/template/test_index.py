"""One integer per configuration, as AutoTVM has it."""

import math

import numpy as np
import pytest

import searchlab as sl
from searchlab.errors import SpaceError
from searchlab.search import Points, Sketch, Space, Task, menu
from spaces.template import TemplateSpace, config_at, config_index


def test_first_knob_is_fastest() -> None:
    knobs = (menu("a", [1, 2, 3]), menu("b", [1, 2]), menu("c", [1, 2, 4, 8]))
    space = Space([Sketch("s", knobs)])
    # option numbers (2, 1, 3) of knobs with 3, 2 and 4 options: 2 + 3 * (1 + 2 * 3)
    assert config_index(space, Points.of([[0, 2, 1, 3], [0, 1, 0, 0], [0, 0, 1, 0]])) == [23, 1, 3]
    assert config_at(space, [23, 1, 3]).rows() == [[0, 2, 1, 3], [0, 1, 0, 0], [0, 0, 1, 0]]
    assert config_index(space, config_at(space, range(24))) == list(range(24))


def test_sketches_follow_one_another() -> None:
    task = Task(sl.workload("matmul", m=12, n=24, k=10), sl.detect(1))
    space = TemplateSpace().space(task)
    sample = space.sample(200, np.random.default_rng(0))
    found = config_index(space, sample)
    assert config_at(space, found) == sample
    starts = np.cumsum([0, *(s.cartesian for s in space.sketches)])
    assert [int(np.searchsorted(starts, i, "right")) - 1 for i in found] == sample.sketch.tolist()
    assert math.prod(space.sketches[0].sizes.tolist()) == starts[1]


def test_numbers_outside_are_refused() -> None:
    space = Space([Sketch("s", (menu("a", [1, 2, 3]),))])
    with pytest.raises(SpaceError, match="no configuration 3: it has 3"):
        config_at(space, [3])
    with pytest.raises(SpaceError, match="no configuration -1"):
        config_at(space, [-1])
