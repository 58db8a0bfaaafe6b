"""Programs that go row by row: every space can fetch the next row ahead, beside the structures it has without."""

import numpy as np
import pytest

from searchlab.search import Space, Task
from searchlab.search.registries import SPACES
from searchlab.targets import detect
from searchlab.testing.spaces import check_point
from searchlab.workloads import parse

NAMES = ("sketch", "probabilistic", "template", "task-mapping")


def space_of(name: str, spec: str) -> tuple[Task, Space]:
    task = Task(parse(spec), detect())
    return task, SPACES.make(name).space(task)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("spec", ["softmax:rows=6,cols=384", "layer_norm:rows=6,cols=300"])
def test_the_next_row_is_fetched_ahead(name: str, spec: str) -> None:
    task, space = space_of(name, spec)
    ahead = [n for n, s in enumerate(space.sketches) if "ahead" in s.name]
    assert 0 < len(ahead) < len(space.sketches)
    names = {s.name for s in space.sketches}
    assert {space.sketches[n].name.replace("/ahead", "").replace("-ahead", "") for n in ahead} <= names
    points = space.sample(400, np.random.default_rng(1))
    point = points[np.isin(points.sketch, ahead)][:1]
    assert len(point) == 1
    assert "prefetch" in str(space.program(point))
    check_point(space, point, task)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("spec", ["softmax:rows=6,cols=30", "matmul:m=16,n=256,k=256", "elementwise:rows=8,cols=512"])
def test_short_rows_and_single_stages_are_not(name: str, spec: str) -> None:
    _, space = space_of(name, spec)
    assert not any("/ahead" in s.name or "-ahead" in s.name for s in space.sketches)
