"""All spaces on element types other than float32: points are right, and moves are valid."""

import numpy as np
import pytest

from searchlab.search import SPACES, Task
from searchlab.targets import parse as target
from searchlab.testing import check_moves, check_point
from searchlab.workloads import parse

SPACE_NAMES = ("template", "sketch", "task-mapping", "probabilistic")
SPECS = (
    "matmul:m=24,n=40,k=16,dtype=float16",
    "matmul:m=7,n=33,k=9,dtype=bfloat16",
    "dense:m=12,n=36,k=8,activation=relu,dtype=float16",
    "conv2d:ci=4,co=17,h=7,w=9,k=3,padding=1,dtype=bfloat16",
    "depthwise_conv2d:c=5,h=9,w=17,padding=1,dtype=float16",
    "softmax:rows=8,cols=40,dtype=bfloat16",
    "layer_norm:rows=5,cols=33,dtype=float16",
    "elementwise:rows=9,cols=40,dtype=float16",
    "max_pool2d:c=3,h=9,w=17,padding=1,dtype=bfloat16",
    "reduce:shape=9x40,dtype=float16",
)


@pytest.mark.parametrize("name", SPACE_NAMES)
@pytest.mark.parametrize("spec", SPECS)
def test_points_are_right(name: str, spec: str) -> None:
    task = Task(parse(spec), target("x86-64-v3:threads=2"))
    space = SPACES.make(name).space(task)
    check_moves(space, count=4)
    (point,) = space.sample_new(1, np.random.default_rng(2)).points
    check_point(space, point, task)
