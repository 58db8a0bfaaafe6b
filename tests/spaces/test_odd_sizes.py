"""All spaces on odd and prime sizes, where tiles do not divide: points are right, moves are valid, seeds repeat."""

from collections.abc import Iterator

import numpy as np
import pytest

from searchlab.search import SPACES, Deferred, Sketch, SpaceError, Task
from searchlab.targets import detect
from searchlab.targets import parse as target
from searchlab.testing import check_features, check_moves, check_point
from searchlab.testing.spaces import check_seeds
from searchlab.workloads import operators, parse
from spaces.probabilistic import ProbabilisticSpace, Trace, replay
from spaces.sketch import SketchSpace

SPACE_NAMES = ("template", "sketch", "task-mapping", "probabilistic")
SPECS = (
    "matmul:m=37,n=53,k=67",
    "batch_matmul:batch=3,m=17,n=31,k=23",
    "dense:m=29,n=67,k=71,activation=gelu",
    "transpose_batch_matmul:batch=1,seq=19,heads=3,dim=17",
    "conv1d:ci=7,co=19,w=41,k=3,stride=1,padding=1",
    "conv2d:ci=7,co=19,h=7,w=23,k=3,stride=1,padding=1",
    "conv3d:ci=2,co=17,d=2,h=3,w=5,k=2,stride=1,padding=0",
    "depthwise_conv2d:c=19,h=17,w=29,k=3,stride=2,padding=1",
    "conv2d_bn_relu:ci=5,co=19,h=18,w=17,k=3",
    "conv2d_transpose:ci=2,co=17,h=2,w=9,k=2,stride=2,padding=0",
    "capsule_conv2d:ci=2,co=17,h=3,w=3,k=2",
    "max_pool2d:c=5,h=37,w=41,k=3,stride=2,padding=1",
    "avg_pool2d:c=5,h=37,w=41,k=3,stride=1,padding=0",
    "global_avg_pool2d:c=19,h=11,w=13",
    "softmax:rows=17,cols=127",
    "layer_norm:rows=19,cols=131",
    "l2_norm:batch=1,rows=37,cols=41",
    "elementwise:rows=67,cols=71",
    "reduce:shape=19x73,axis=1",
    "qmatmul:m=37,n=53,k=67,zero=128,out_zero=128",
    "qdense:m=29,n=67,k=71,zero=128",
    "qconv2d:ci=7,co=19,h=7,w=23,k=3,padding=1,zero=128",
    "qdepthwise_conv2d:c=19,h=17,w=29,stride=2,padding=1,zero=128",
)
WIDEST = "x86-64-v4:threads=2" if detect().vector_bits >= 512 else "x86-64-v3:threads=2"
MACHINES = ("x86-64-v3:threads=2", WIDEST)


def test_every_operator_is_there() -> None:
    assert {n for n, o in operators().items() if o.path.startswith("searchlab.")} == {s.split(":")[0] for s in SPECS}


def _cases() -> Iterator[object]:
    """Every operator in every space; the slowest, which has tests of its own on odd sizes, takes every third."""
    for number, spec in enumerate(SPECS):
        for name in SPACE_NAMES:
            if name != "probabilistic" or number % 3 == 0:
                yield pytest.param(name, number, id=f"{spec.split(':')[0]}-{name}")


@pytest.mark.parametrize(("name", "number"), list(_cases()))
def test_points_and_seeds_are_right_and_moves_are_valid(name: str, number: int) -> None:
    task, generator = Task(parse(SPECS[number]), target(MACHINES[number % 2])), SPACES.make(name)
    space = generator.space(task)
    check_moves(space, seed=number, count=8)
    assert min(2, space.size.valid) <= len(check_seeds(generator, task, space)) <= 8
    (point,) = space.sample_new(1, np.random.default_rng(number)).points
    if number % 5 == 0:
        check_features(space, point, task)
    check_point(space, point, task)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ["sketch", "probabilistic"])
@pytest.mark.parametrize("spec", ["matmul:m=14,n=24,k=12", "conv2d:ci=3,co=6,h=7,w=14,k=3,padding=1"])
def test_everything_may_have_a_tail(spec: str, name: str, machine: str) -> None:
    task = Task(parse(spec), target(machine))
    space = SPACES.make(name, tails="always").space(task)
    check_moves(space, count=8)
    (point,) = space.sample_new(1, np.random.default_rng(5)).points
    check_point(space, point, task)


def made(sketch: Sketch) -> Sketch:
    assert sketch.program is not None  # of a deferred sketch this is where a plan that was wrong is told
    return sketch


@pytest.mark.parametrize("spec", [SPECS[0], SPECS[2], SPECS[5], SPECS[14]])
def test_tails_cost_no_structure(spec: str) -> None:
    task = Task(parse(spec), target(MACHINES[0]))
    for generator in (SketchSpace, ProbabilisticSpace):
        exact, auto = [*generator(tails="never").sketches(task)], [*generator(tails="auto").sketches(task)]
        assert [s.name for s in exact] == [s.name for s in auto]
        assert [isinstance(s, Deferred) for s in exact] == [isinstance(s, Deferred) for s in auto]
        assert any(k.covers is not None for s in auto for k in s.knobs)
        for few, many in zip(exact[:4], map(made, auto[:4]), strict=True):
            assert sum(map(len, few.knobs)) < sum(map(len, many.knobs))


def test_nothing_changes_where_sizes_divide() -> None:
    task = Task(parse("dense:m=64,n=96,k=48,activation=relu"), target(MACHINES[0]))
    for generator in (SketchSpace, ProbabilisticSpace):
        assert generator().space(task).hash == generator(tails="never").space(task).hash
        with pytest.raises(SpaceError, match="tails = 'maybe': accepted are auto, always, never"):
            generator(tails="maybe")  # type: ignore[arg-type]


def test_both_spaces_have_the_same_programs() -> None:
    task = Task(parse(SPECS[2]), target(MACHINES[0]))
    theirs = {s.program.hash: s for s in ProbabilisticSpace().sketches(task) if s.program is not None}
    for sketch in SketchSpace().sketches(task):
        assert sketch.program is not None and sketch.program.hash in theirs
        other = {k.name: k for k in theirs[sketch.program.hash].knobs}
        assert all(k.same_options(other[k.name]) and k.covers == other[k.name].covers for k in sketch.knobs)


def test_traces_with_tails() -> None:
    task = Task(parse("matmul:m=61,n=59,k=71"), target(MACHINES[0]))
    space = ProbabilisticSpace().space(task)
    rng = np.random.default_rng(0)
    points = space.sample(12, rng)
    for point, prior in zip(points, space.log_prior(points), strict=True):
        trace = Trace.from_json(space.trace(point).to_json())
        assert replay(task.program, trace).program.hash == space.program(point).hash
        assert space.point_of(trace) == point and trace.log_prior == pytest.approx(prior)
        changed = space.mutate_trace(trace, rng)
        assert changed is not None and space.valid(space.point_of(changed)).all() and changed != trace
    fresh = replay(task.program, trace.without_decisions(), np.random.default_rng(3)).trace
    assert space.valid(space.point_of(space.complete(fresh, rng))).all()


def test_a_trace_with_tails_on_another_size() -> None:
    task = Task(parse("matmul:m=61,n=59,k=71"), target(MACHINES[0]))
    space = ProbabilisticSpace().space(task)
    trace = space.trace(space.sample(1, np.random.default_rng(0))).with_decision("i", (4, 1, 1, 16))
    other = parse("matmul:m=127,n=64,k=33")
    done = replay(other.program, trace)
    assert done.trace.decisions["i"].value == (8, 1, 1, 16), "the nearest split of 127"
    again = replay(other.program, done.trace)
    assert again.program.hash == done.program.hash and again.trace == done.trace
