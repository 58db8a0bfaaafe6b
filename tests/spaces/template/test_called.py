"""The template that calls intrinsics: random points on odd sizes are right, and it can be switched off."""

import numpy as np
import pytest

from searchlab.backend import compile
from searchlab.errors import SpaceError
from searchlab.search import Task
from searchlab.targets import detect, parse
from searchlab.workloads import parse as workload
from spaces.template import TemplateSpace

SPECS = [
    "matmul:m=19,n=43,k=21,dtype=uint8",
    "qdense:m=7,n=35,k=17,zero=3,out_zero=128",
    "qconv2d:ci=5,co=19,h=6,w=7,k=3,padding=1,zero=9",
    "qconv2d:n=2,ci=6,co=17,h=5,w=5,k=1,weight_zero=2",
    "conv2d:ci=7,co=33,h=9,w=8,k=3,stride=2,padding=1,dtype=int8",
]
MACHINES = ["x86-64-v3:threads=2", "native"]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("spec", SPECS)
def test_random_points_are_right(spec: str, machine: str) -> None:
    target = parse(machine)
    if machine != "native" and "avx2" not in detect().enabled_features():
        pytest.skip("this CPU lacks AVX2")
    task = Task(workload(spec), target)
    space = TemplateSpace("calls").space(task)
    inputs = task.workload.inputs(seed=5)
    expected = task.workload.reference(inputs)
    for point in space.sample(4, np.random.default_rng(1)):
        program = space.program(point)
        assert "tensorized" in str(program)
        result = compile(program, target)(*inputs.values())
        assert task.workload.check(result, inputs, expected) is None, space.text(point)


def test_calls_are_there_unless_switched_off() -> None:
    task = Task(workload("qdense:m=7,n=35,k=17"), parse("x86-64-v3"))
    names = {s.name for s in TemplateSpace().sketches(task)}
    without = {s.name for s in TemplateSpace(intrinsics="never").sketches(task)}
    assert {n for n in names if n.startswith("calls")} == names - without and names > without


def test_where_nothing_matches_the_space_is_the_same() -> None:
    for spec, machine in (("matmul:m=16,n=16,k=16", "x86-64-v3"), ("qdense:m=7,n=35,k=17", "x86-64-v2")):
        task = Task(workload(spec), parse(machine))
        ours, never = (list(TemplateSpace(intrinsics=x).sketches(task)) for x in ("auto", "never"))
        assert [(s.name, s.program.hash) for s in ours] == [(s.name, s.program.hash) for s in never]


def test_another_word_is_refused() -> None:
    with pytest.raises(SpaceError, match="intrinsics = 'always': accepted are auto, never"):
        TemplateSpace(intrinsics="always")  # type: ignore[arg-type]
