"""The points of all spaces as programs for every size, compiled and compared with numpy at sizes of no search."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from searchlab.backend import compile
from searchlab.errors import SpaceError
from searchlab.ir.program import Program
from searchlab.search import SPACES, Sketch, Space, Task, menu
from searchlab.search.any_size import AnySize
from searchlab.targets import parse as target
from searchlab.workloads import Family, read_family, workload

SPACE_NAMES = ("template", "sketch", "task-mapping", "probabilistic")
FAMILIES = (
    "matmul:m=dyn(1..70),n=40,k=24",
    "matmul:m=13,n=dyn(1..70),k=24",
    "matmul:m=10,n=24,k=dyn(1..70)",
    "dense:m=dyn(1..70),n=40,k=24,activation=gelu",
    "batch_matmul:batch=dyn(1..12),m=7,n=24,k=12",
    "softmax:rows=dyn(1..40),cols=37",
    "softmax:rows=6,cols=dyn(1..90)",
    "layer_norm:rows=dyn(1..40),cols=37",
    "conv2d:n=dyn(1..6),ci=3,co=8,h=7,w=9,k=3,padding=1",
)
MACHINE = "x86-64-v3:threads=2"


@cache
def made(text: str, name: str, at: int) -> tuple[Family, AnySize]:
    family = read_family(text)
    space = SPACES.make(name).space(Task(family.at(at), target(MACHINE)))
    return family, AnySize(space, family.workload.program)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_right_for_sizes_of_no_search(data: st.DataObject) -> None:
    text, name = data.draw(st.sampled_from(FAMILIES)), data.draw(st.sampled_from(SPACE_NAMES))
    searched = [s for s, _ in read_family(text).representatives]
    family, any_size = made(text, name, data.draw(st.sampled_from(searched[1:])))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    (point,) = any_size.space.sample_new(1, rng).points
    try:
        program = any_size.program(point)
    except SpaceError as e:  # some programs of mapped tasks are written as loops, without primitives
        assert name == "task-mapping" and "not made by schedule primitives" in str(e)
        return
    kernel = compile(program, target(MACHINE))
    sizes = data.draw(st.lists(st.integers(family.range.low, family.range.high), min_size=2, max_size=3, unique=True))
    for size in sizes:
        fixed = family.at(size)
        inputs = fixed.inputs(size)
        wrong = fixed.check(kernel(*inputs.values()), inputs)
        assert wrong is None, f"{name} at {size}: {any_size.space.text(point)}: {wrong}"


@pytest.mark.parametrize("name", SPACE_NAMES)
@pytest.mark.parametrize("text", FAMILIES)
def test_seeds_can_be_used_for_every_size(text: str, name: str) -> None:
    """What a space knows to be fast is not lost on a family."""
    family = read_family(text)
    space = SPACES.make(name).space(task := Task(family.at(family.range.high), target(MACHINE)))
    any_size = AnySize(space, family.workload.program)
    any_size.require()
    for point in SPACES.make(name).seeds(task, space)[:4]:
        program = any_size.program(point)
        assert program.sizes == (family.size,) and not program.knobs and not program.assumptions


def test_a_space_that_cannot_says_why() -> None:
    """A program that was not made by primitives is one for its size only."""
    plain = workload("matmul", m=4, n=4, k=4)
    space = Space([Sketch("fixed", (menu("t", [1, 2]),), (), plain.program)], "made", "1", target(MACHINE))
    with pytest.raises(
        SpaceError, match="space 'made' has no structure that can be used for every size: .* primitives"
    ):
        AnySize(space, _any()).require()
    with pytest.raises(SpaceError, match="space 'made': 'fixed' cannot be used for every size"):
        AnySize(space, _any()).program(space.at([0]))


def test_recorded_points_have_no_programs() -> None:
    space = Space([Sketch("table", (menu("t", [1, 2]),), rows=np.array([[0], [1]]))], "table", "1", target(MACHINE))
    with pytest.raises(SpaceError, match="recorded, not built"):
        AnySize(space, _any()).require()


def _any() -> Program:
    return workload("matmul", m="?", n=4, k=4).program
