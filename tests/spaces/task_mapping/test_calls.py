"""Mappings that end in a call: points on odd and prime sizes are right, and an option says where there are any."""

import numpy as np
import pytest

from searchlab.errors import SpaceError
from searchlab.ir.statement_tree import statements
from searchlab.ir.stmt import Tensorized
from searchlab.search import SPACES, Sketch, Space, Task
from searchlab.targets import detect, parse
from searchlab.testing import check_point
from searchlab.testing.spaces import check_features, check_moves, check_seeds
from searchlab.workloads import parse as workload
from spaces.task_mapping import TaskMappingSpace

BYTES = [
    "matmul:m=19,n=43,k=23,dtype=uint8",
    "qmatmul:m=13,n=37,k=29,zero=128,weight_zero=3",
    "qdense:m=7,n=35,k=17,zero=3,out_zero=128",
    "batch_matmul:batch=3,m=7,n=17,k=11,dtype=int8",
    "qconv2d:ci=5,co=19,h=6,w=7,k=3,padding=1,zero=9,weight_zero=2",
    "qconv2d:n=2,ci=6,co=17,h=5,w=5,k=1",
    "conv2d:ci=7,co=33,h=9,w=8,k=3,stride=2,padding=1,dtype=int8",
    "conv1d:ci=6,co=11,w=15,k=3,dtype=uint8",
]
FLOATS = [
    "matmul:m=29,n=67,k=13",
    "dense:m=31,n=71,k=7,activation=relu",
    "batch_matmul:batch=2,m=17,n=37,k=5",
    "conv2d:ci=3,co=37,h=5,w=17,k=3,padding=1",
]
MACHINES = ["x86-64-v3:threads=2", "native"]
V3 = parse("x86-64-v3:threads=2")


def runs(machine: str) -> bool:
    return machine == "native" or {"avx2", "fma"} <= detect().enabled_features()


def calls(sketch: Sketch) -> list[str]:
    assert sketch.program is not None
    return [x.intrinsic for x in statements(sketch.program.body) if isinstance(x, Tensorized)]


def space_of(spec: str, intrinsics: str, machine: str = "x86-64-v3:threads=2") -> Space:
    task = Task(workload(spec), parse(machine))
    return TaskMappingSpace(intrinsics=intrinsics).space(task)  # type: ignore[arg-type]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("spec", [*BYTES, *FLOATS])
def test_points_are_right(spec: str, machine: str) -> None:
    if not runs(machine):
        pytest.skip("this CPU lacks AVX2")
    task, generator = Task(workload(spec), parse(machine)), TaskMappingSpace(intrinsics="always")
    space = generator.space(task)
    check_moves(space, count=4)
    check_seeds(generator, task, space)
    points = space.enumerate()
    with_calls = [n for n, sketch in enumerate(space.sketches) if calls(sketch)]
    assert with_calls
    for n in with_calls[:3]:
        mine = points[np.flatnonzero(points.sketch == n)]
        check_features(space, mine[:2], task)
        for at in np.random.default_rng(n).permutation(len(mine))[:2].tolist():
            check_point(space, mine[at], task)


@pytest.mark.skipif("avx512bf16" not in detect().enabled_features(), reason="this CPU has no products of bfloat16")
@pytest.mark.parametrize("name", ["task-mapping", "template"])
@pytest.mark.parametrize("spec", ["matmul:m=19,n=43,k=21", "conv2d:ci=5,co=19,h=6,w=7,k=3,padding=1"])
def test_products_of_bfloat16(spec: str, name: str) -> None:
    task = Task(workload(f"{spec},dtype=bfloat16"), detect(threads=2))
    space = SPACES.make(name).space(task)
    assert all(calls(sketch) for sketch in space.sketches)
    for point in space.sample_new(2, np.random.default_rng(0)).points:
        check_point(space, point, task)


@pytest.mark.parametrize(
    ("spec", "auto", "always"),
    [
        ("qconv2d:ci=8,co=16,h=9,w=9", "only", "only"),
        ("matmul:m=32,n=32,k=32,dtype=int8", "only", "only"),
        ("matmul:m=32,n=32,k=32", "none", "some"),
        ("matmul:m=2,n=32,k=32", "none", "none"),  # fewer rows than any micro-kernel has
        ("qdepthwise_conv2d:c=16,h=9,w=9", "none", "none"),
        ("softmax:rows=9,cols=33", "none", "none"),
    ],
)
def test_the_option_says_where_calls_are(spec: str, auto: str, always: str) -> None:
    def kind(intrinsics: str) -> str:
        found = [bool(calls(s)) for s in space_of(spec, intrinsics).sketches]
        return "only" if all(found) else "some" if any(found) else "none"

    assert (kind("never"), kind("auto"), kind("always")) == ("none", auto, always)


def test_float32_is_as_it_was() -> None:
    for spec in ("matmul:m=32,n=48,k=16", "conv2d:ci=4,co=16,h=9,w=9,k=3"):
        auto, never = (space_of(spec, x).sketches for x in ("auto", "never"))
        assert [(s.name, s.program and s.program.hash) for s in auto] == [
            (s.name, s.program and s.program.hash) for s in never
        ]


@pytest.mark.parametrize("spec", ["qconv2d:ci=6,co=24,h=7,w=7,k=3,padding=1", "matmul:m=24,n=48,k=8"])
def test_the_same_seed_gives_the_same_programs(spec: str) -> None:
    def drawn() -> list[str]:
        space = space_of(spec, "always")
        return [space.program(p).hash for p in space.sample(8, np.random.default_rng(3))]

    assert drawn() == drawn()


def test_sizes_do_not_matter() -> None:
    spaces = [space_of(f"qmatmul:m={n},n={n},k={n}", "auto") for n in (31, 32, 48)]
    knobs = [[[k.to_json() for k in s.knobs] for s in space.sketches] for space in spaces]
    assert knobs[0] == knobs[1] == knobs[2] and all(s.size.valid <= 600 for s in spaces)


def test_weights_are_packed_in_the_kernel_if_they_must() -> None:
    task = Task(workload("qdense:m=9,n=33,k=17"), V3)
    ahead, here = (TaskMappingSpace(pack_ahead=x).space(task) for x in (True, False))
    assert all(s.program.layouts for s in ahead.sketches if s.program is not None)
    assert not any(s.program.layouts for s in here.sketches if s.program is not None)
    if runs("x86-64-v3"):
        for point in here.sample_new(3, np.random.default_rng(0)).points:
            check_point(here, point, task)


def test_tiles_fill_the_registers() -> None:
    for machine in ("x86-64-v3", "x86-64-v4"):
        space = space_of("qmatmul:m=64,n=64,k=64", "auto", machine)
        registers = parse(machine).vector_registers
        values = space.values(space.enumerate())
        used = values["rows"] * values["vectors"] + values["vectors"] + 1
        assert registers - 4 < used.max() <= registers


@pytest.mark.parametrize("machine", ["x86-64-v3:threads=2", "x86-64-v4:threads=2"])
def test_the_first_seed_has_the_tile_of_the_default_schedule(machine: str) -> None:
    task, generator = Task(workload("qmatmul:m=60,n=64,k=64"), parse(machine)), TaskMappingSpace()
    space = generator.space(task)
    knobs = space.choice(generator.seeds(task, space)[0])["knobs"]
    assert (knobs["rows"], knobs["vectors"]) == ((6, 2) if "v3" in machine else (10, 2))


def test_the_option_is_known_by_name() -> None:
    made = SPACES.make({"task-mapping": {"intrinsics": "never"}})
    assert isinstance(made, TaskMappingSpace) and made.intrinsics == "never"
    with pytest.raises(SpaceError, match="intrinsics = 'sometimes': accepted are auto, always, never"):
        TaskMappingSpace(intrinsics="sometimes")  # type: ignore[arg-type]
