"""Every sketch of the sketch space is a structure here: the same symbolic program, symbols and all, so the same hash.

The knobs of a sketch are knobs of the structure with the same valid options, so equal choices give equal programs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from searchlab.search import Space, Task
from searchlab.targets import detect
from searchlab.testing import check_point
from searchlab.workloads import workload
from spaces.probabilistic import ProbabilisticSpace, TraceSpace, replay
from spaces.sketch import SketchSpace

CASES = ["matmul", "dense", "conv2d", "l2_norm", "softmax", "depthwise_conv2d"]


def check_cover(here: TraceSpace, sketches: Space) -> None:
    known = {s.program.hash: n for n, s in enumerate(here.sketches) if s.program is not None}
    rng = np.random.default_rng(0)
    for s, sketch in enumerate(sketches.sketches):
        assert sketch.program is not None
        assert sketch.program.hash in known, f"no structure is like sketch '{sketch.name}'"
        mine = here.sketches[known[sketch.program.hash]]
        theirs = {k.name: k for k in sketch.knobs}
        assert theirs.keys() == {k.name for k in mine.knobs}
        assert mine.count == sketch.count
        assert all((k.find(theirs[k.name].options.tolist()) >= 0).all() for k in mine.knobs)
        if s % 8 == 0:
            row = [s, *sketch.draw(1, rng)[0].tolist()]
            point = type(here.sample(1, rng)).of([row], sketches.width)
            choice = {**sketches.choice(point), "sketch": mine.name}
            assert here.program(here.chosen(choice)).hash == sketches.program(point).hash


@pytest.mark.parametrize("name", CASES)
def test_sketches_are_covered(name: str, space: Callable[..., TraceSpace], task: Callable[..., Task]) -> None:
    check_cover(space(name), SketchSpace().space(task(name)))


def test_a_1x1_convolution_is_covered() -> None:
    task = Task(workload("conv2d", ci=4, co=6, h=3, w=4, k=1), detect())
    here = ProbabilisticSpace().space(task)
    assert any("collapse" in s.name for s in here.sketches)
    check_cover(here, SketchSpace().space(task))
    point = next(p for p in here.sample(200, np.random.default_rng(0)) if "collapse" in here.text(p))
    program = check_point(here, point, task)
    assert replay(task.program, here.trace(point)).program.hash == program.hash


@pytest.mark.slow
@pytest.mark.parametrize("odd", [False, True], ids=["even", "odd"])
def test_sketches_of_all_operators_are_covered(
    operator: str, odd: bool, space: Callable[..., TraceSpace], task: Callable[..., Task]
) -> None:
    check_cover(space(operator, odd), SketchSpace().space(task(operator, odd)))
