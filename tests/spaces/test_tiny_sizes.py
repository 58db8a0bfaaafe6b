"""All spaces on axes of one, two, three elements and prime ones: every point of every space is right there, too."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.errors import WorkloadError
from searchlab.search import SPACES, Task
from searchlab.targets import parse as target
from searchlab.testing import check_moves, check_point
from searchlab.workloads import operators, parse

SPACE_NAMES = ("template", "sketch", "task-mapping", "probabilistic")
SIZES = {
    "matmul": "m n k",
    "batch_matmul": "batch m n k",
    "dense": "m n k",
    "transpose_batch_matmul": "batch seq heads dim",
    "conv1d": "ci co w k stride padding",
    "conv2d": "ci co h w k stride padding",
    "conv3d": "ci co d h w k stride padding",
    "depthwise_conv2d": "c h w k stride padding",
    "conv2d_bn_relu": "ci co h w k",
    "conv2d_transpose": "ci co h w k stride padding",
    "capsule_conv2d": "ci co h w k",
    "max_pool2d": "c h w k stride padding",
    "avg_pool2d": "c h w k stride padding",
    "global_avg_pool2d": "c h w",
    "softmax": "rows cols",
    "layer_norm": "rows cols",
    "l2_norm": "batch rows cols",
    "elementwise": "rows cols",
    "reduce": "shape axis",
    "qmatmul": "m n k zero",
    "qdense": "m n k zero",
    "qconv2d": "ci co h w k stride padding zero",
    "qdepthwise_conv2d": "c h w k stride padding zero",
}
RANGES = {
    "zero": (0, 128),
    "k": (1, 2, 3),
    "stride": (1, 2, 3),
    "padding": (0, 1),
    "shape": ("1", "1x1", "7x1", "1x7", "5x3x1", "1x2x3"),
}
EXTENTS = (1, 2, 3, 5, 7, 13, 19)
MACHINES = ("x86-64-v2:threads=4", "x86-64-v3:threads=1", "x86-64-v3:threads=2")
DEGENERATE = (
    "matmul:m=3,n=1,k=5",
    "matmul:m=1,n=7,k=1",
    "dense:m=3,n=19,k=1",
    "conv2d:ci=1,co=2,h=1,w=1,k=1",
    "avg_pool2d:c=13,h=1,w=1,k=1",
)


@st.composite
def specs(draw: st.DrawFn) -> str:
    operator = draw(st.sampled_from(sorted(SIZES)))
    ranges = {name: RANGES.get(name, EXTENTS) for name in SIZES[operator].split()}
    if operator in ("matmul", "batch_matmul", "dense", "qmatmul", "qdense"):
        ranges["k"] = EXTENTS
    chosen = {name: draw(st.sampled_from(values)) for name, values in ranges.items() if name != "axis"}
    if "axis" in ranges:
        chosen["axis"] = draw(st.integers(0, str(chosen["shape"]).count("x")))
    return f"{operator}:{','.join(f'{name}={value}' for name, value in chosen.items())}"


def smallest(operator: str) -> str:
    fixed = {"stride": "1", "padding": "0", "axis": "0"}
    return f"{operator}:{','.join(f'{name}={fixed.get(name, 1)}' for name in SIZES[operator].split())}"


def check(space_name: str, spec: str, machine: str, points: int = 2) -> None:
    task = Task(parse(spec), target(machine))
    space = SPACES.make(space_name).space(task)
    check_moves(space, count=8)
    for point in space.sample_new(points, np.random.default_rng(0)).points:
        check_point(space, point, task)


def test_every_operator_is_there() -> None:
    assert {n for n, o in operators().items() if o.path.startswith("searchlab.")} == {*SIZES}


@pytest.mark.parametrize("space_name", SPACE_NAMES)
@pytest.mark.parametrize("spec", [*map(smallest, SIZES), *DEGENERATE])
def test_the_smallest(space_name: str, spec: str) -> None:
    check(space_name, spec, MACHINES[-1], points=1)


@pytest.mark.parametrize("space_name", SPACE_NAMES)
@settings(max_examples=12)
@given(spec=specs(), machine=st.sampled_from(MACHINES))
def test_any_small_size(space_name: str, spec: str, machine: str) -> None:
    try:
        parse(spec)
    except WorkloadError:  # a window larger than what it slides over, padding as large as the kernel
        return
    check(space_name, spec, machine)
