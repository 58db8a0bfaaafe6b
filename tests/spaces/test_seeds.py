"""Seeds: every space has some for whatever it is asked, and they are points that compute what they should."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.analysis import extractor
from searchlab.defaults import default_schedule
from searchlab.errors import ComponentError
from searchlab.search import SPACES, Points, Sketch, Space, SpaceGenerator, Task, space
from searchlab.search.likeness import MOST, like
from searchlab.targets import detect
from searchlab.targets import parse as target
from searchlab.testing import check_point
from searchlab.testing.spaces import check_seeds
from searchlab.workloads import parse
from spaces.common.tilings import register_tiles, tilings

NAMES = ("sketch", "probabilistic", "template", "task-mapping")
MACHINES = ("x86-64-v3:threads=2", "x86-64-v4:threads=2")

# Tiny, large and grouped ones, and such with further stages; `test_odd_sizes` has every operator.
SPECS = [
    "matmul:m=2,n=3,k=1",
    "conv2d:ci=32,co=48,h=14,w=14,k=1",
    "conv2d:ci=6,co=9,h=13,w=11,k=3,padding=1,groups=3",
    "conv2d:ci=5,co=7,h=15,w=13,k=3,dilation=2,stride=2,then=relu",
    "dense:m=13,n=64,k=29,activation=gelu",
    "dense:m=1,n=97,k=31",
    "l2_norm:batch=1,rows=67,cols=31",
    "matmul:m=509,n=509,k=509",
    "matmul:m=48,n=80,k=36,dtype=int8",
    "reduce:shape=4001,axis=0,op=max",
]


def task(spec: str, machine: str = MACHINES[1]) -> Task:
    return Task(parse(spec), target(machine))


def _cases() -> Iterator[tuple[str, str, str]]:
    """Every one in every space, on one machine or the other; the slowest space takes every third."""
    for number, spec in enumerate(SPECS):
        for turn, name in enumerate(NAMES):
            if name != "probabilistic" or number % 3 == 0:
                yield name, spec, MACHINES[(number + turn) % 2]


@pytest.mark.parametrize(("name", "spec", "machine"), list(_cases()))
def test_there_are_seeds(name: str, spec: str, machine: str) -> None:
    generator, at = SPACES.make(name), task(spec, machine)
    found = generator.space(at)
    seeds = check_seeds(generator, at, found)
    assert min(2, found.size.valid) <= len(seeds) <= 8


@given(st.sampled_from([1, 2, 3, 7, 12, 31, 64, 97]), st.integers(1, 130), st.integers(1, 130))
@settings(max_examples=15)
def test_matmuls_of_all_sizes_have_seeds_of_the_sketch_space(m: int, n: int, k: int) -> None:
    at = task(f"matmul:m={m},n={n},k={k}")
    generator = SPACES.make("sketch")
    assert len(check_seeds(generator, at, generator.space(at)))


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("sketch", "conv2d_bn_relu:ci=8,co=17,h=9,w=11,k=3,padding=1"),
        ("sketch", "conv2d:ci=8,co=12,h=6,w=10,k=1"),
        ("sketch", "depthwise_conv2d:c=3,h=12,w=19,k=3,padding=1"),
        ("probabilistic", "matmul:m=24,n=96,k=36"),
        ("probabilistic", "softmax:rows=7,cols=128"),
        ("template", "conv2d:ci=6,co=16,h=9,w=10,k=3,padding=1"),
        ("task-mapping", "batch_matmul:batch=2,m=17,n=31,k=23"),
    ],
)
def test_seeds_are_right(name: str, spec: str) -> None:
    at = Task(parse(spec), detect(threads=2))
    found = space(name, at)
    for point in found.seeds[:3]:
        check_point(found, point, at)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("spec", ["matmul:m=96,n=192,k=64", "conv2d:ci=16,co=64,h=14,w=14,k=3,padding=1"])
def test_the_first_seeds_fill_the_registers_and_do_not_spill(spec: str, machine: str) -> None:
    at = task(spec, machine)
    found = space("sketch", at)
    point = found.seeds[0]
    (tiling,) = tilings(at, found.sketches[int(point.sketch[0])])
    knobs = found.choice(point)["knobs"]
    assert tiling.row is not None
    rows, vectors = knobs[tiling.row.name][-1], math.ceil(knobs[tiling.vector.name][-1] / tiling.lanes)
    registers = at.target.vector_registers
    assert registers // 4 <= rows * vectors <= rows * vectors + vectors + 1 <= registers
    assert all(r * v + v + 1 <= registers for r, v in register_tiles(at.target, tiling))


def test_seeds_follow_the_structure_not_the_name_of_an_operator() -> None:
    at = task("matmul:m=48,n=64,k=32")
    own = Task(replace(at.workload, operator=replace(at.workload.operator, name="own_product")), at.target)
    assert own.workload.name != at.workload.name
    for name in ("sketch", "probabilistic", "task-mapping"):
        assert space(name, own).seeds == space(name, at).seeds


# --- a space that knows nothing ---------------------------------------------------------------------------------------


class Bare(SpaceGenerator):
    """The sketches of another space, without its knowledge."""

    name = "bare"
    version = "1"

    def sketches(self, task: Task) -> list[Sketch]:
        return list(SPACES.make("task-mapping").sketches(task))


class Wrong(Bare):
    """Gives what it must not."""

    given: object = None

    def seeds(self, task: Task, space: Space) -> Points:
        return self.given  # type: ignore[return-value]


@pytest.mark.parametrize("spec", ["matmul:m=48,n=64,k=32", "softmax:rows=7,cols=64"])
def test_without_knowledge_seeds_are_like_the_default_schedule(spec: str) -> None:
    at, bare = task(spec), Bare()
    found = bare.space(at)
    seeds = check_seeds(bare, at, found)
    assert 0 < len(seeds) <= MOST
    program = default_schedule(at.program, at.target, at.weights)
    wanted = extractor(program, "summary", at.target)({})[0]
    unit = found.features(found.sample(500, np.random.default_rng(1)), "summary").std(axis=0) + 1e-6

    def apart(points: Points) -> np.ndarray:  # type: ignore[type-arg]
        return np.asarray(np.minimum(np.abs(found.features(points, "summary") - wanted) / unit, 8).mean(axis=1))

    drawn = apart(found.sample(200, np.random.default_rng(2)))
    assert apart(seeds[0])[0] <= np.quantile(drawn, 0.1)


def test_a_program_of_the_space_is_most_like_itself() -> None:
    found = space("task-mapping", task("matmul:m=48,n=64,k=32"))
    point = found.sample(1, np.random.default_rng(3))
    near = like(found, found.program(point), 4, np.random.default_rng(0))
    features = found.features(Points.concat([point, near[0]]), "summary")
    assert features[0] == pytest.approx(features[1])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "seeds returned None"),
        ([[0, 1]], "seeds returned a value of type list"),
        (Points.of([[0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]), "the same point twice|not in the space"),
        (Points.of([[99, 0]]), "points that are not in the space"),
    ],
)
def test_wrong_seeds_are_refused(given: object, message: str) -> None:
    generator = Wrong()
    generator.given = given
    found = space(generator, task("matmul:m=48,n=64,k=32"))
    with pytest.raises(ComponentError, match=message):
        found.seeds  # noqa: B018
