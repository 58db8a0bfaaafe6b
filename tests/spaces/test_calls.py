"""Calls of intrinsics in derived structures: points on odd sizes are right, and calls can be switched off."""

from dataclasses import replace

import numpy as np
import pytest

from searchlab.backend import compile
from searchlab.errors import SpaceError
from searchlab.ir.statement_tree import statements
from searchlab.ir.stmt import Tensorized
from searchlab.search import SPACES, Sketch, Space, Task
from searchlab.targets import cpu_of, detect
from searchlab.targets import parse as target
from searchlab.testing import check_features, check_moves, check_space
from searchlab.workloads import parse
from spaces.probabilistic import CallTiling, ProbabilisticSchedule, ProbabilisticSpace
from spaces.sketch import SketchSpace

NAMES = ("sketch", "probabilistic")
BYTES = [
    "matmul:m=19,n=43,k=21,dtype=uint8",
    "matmul:m=16,n=32,k=64,dtype=int8",
    "batch_matmul:batch=3,m=7,n=17,k=13,dtype=int8",
    "qmatmul:m=13,n=35,k=18,zero=128,weight_zero=3,out_zero=128",
    "qdense:m=7,n=37,k=17,zero=3",
    "qconv2d:ci=5,co=19,h=7,w=11,k=3,padding=1,zero=9",
    "conv2d:ci=7,co=33,h=9,w=8,k=3,stride=2,padding=1,dtype=int8",
]
FLOATS = [
    "matmul:m=37,n=53,k=19",
    "batch_matmul:batch=3,m=17,n=31,k=11",
    "conv2d:ci=3,co=19,h=7,w=23,k=3,padding=0,then=bias,relu",
    "dense:m=29,n=67,k=13,activation=gelu",
]
MACHINES = ("x86-64-v3:threads=2", "native")
CASES = [
    *((name, spec, MACHINES[0]) for name in NAMES for spec in (*BYTES, *FLOATS)),
    *((NAMES[n % 2], spec, MACHINES[1]) for n, spec in enumerate((*BYTES, *FLOATS))),
]
BFLOATS = replace(cpu_of(target("x86-64-v4")), features=cpu_of(target("x86-64-v4")).features + ",+avx512bf16")


def calls(space: Space, sketch: Sketch) -> list[str]:
    program = sketch.program
    assert program is not None
    return [s.intrinsic for s in statements(program.body) if isinstance(s, Tensorized)]


def skip_unless_it_runs(machine: str) -> None:
    if machine != "native" and not {"avx2", "fma"} <= detect().enabled_features():
        pytest.skip("this CPU lacks AVX2")


def check_points(space: Space, task: Task, points: int) -> None:
    """Random points of structures with calls are right."""
    inputs = task.workload.inputs(seed=5)
    expected = task.workload.reference(inputs)
    called = Space([s for s in space.sketches if "calls(" in s.name], target=task.target)
    for point in called.sample(points, np.random.default_rng(3)):
        program = called.program(point)
        assert "tensorized" in str(program)
        result = compile(program, task.target)(*inputs.values())
        assert task.workload.check(result, inputs, expected) is None, called.text(point)


@pytest.mark.parametrize(("name", "spec", "machine"), CASES)
def test_random_points_are_right(name: str, spec: str, machine: str) -> None:
    skip_unless_it_runs(machine)
    task = Task(parse(spec), target(machine))
    space = SPACES.make(name, intrinsics="always").space(task)
    if machine != "native" or any("calls(" in s.name for s in space.sketches):  # not every machine has instructions
        check_points(space, task, 2)


@pytest.mark.skipif("avx512bf16" not in detect().enabled_features(), reason="this CPU lacks AVX-512 BF16")
@pytest.mark.parametrize("name", NAMES)
def test_products_of_bfloats(name: str) -> None:
    for spec in ("matmul:m=7,n=33,k=9,dtype=bfloat16", "conv2d:ci=3,co=17,h=5,w=9,k=3,padding=1,dtype=bfloat16"):
        task = Task(parse(spec), detect(threads=2))
        check_points(SPACES.make(name).space(task), task, 2)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("spec", ["matmul:m=3,n=290,k=76,dtype=uint8", "conv2d:ci=4,co=33,h=3,w=9,k=3,padding=1"])
def test_a_prime_number_of_calls(name: str, spec: str) -> None:
    skip_unless_it_runs("x86-64-v3")
    task = Task(parse(spec), target("x86-64-v3:threads=2"))
    for tails in ("auto", "always"):
        check_points(SPACES.make(name, intrinsics="always", tails=tails).space(task), task, 1)


@pytest.mark.parametrize("name", NAMES)
def test_the_suite_holds(name: str) -> None:
    skip_unless_it_runs("x86-64-v3")
    check_space(SPACES.make(name), Task(parse("qdense:m=12,n=40,k=24,zero=3"), target(MACHINES[0])), points=2)
    check_space(
        SPACES.make(name, intrinsics="always"), Task(parse("matmul:m=12,n=32,k=8"), target(MACHINES[0])), points=2
    )


# --- which structures call --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("spec", "machine", "intrinsics"),
    [
        ("qdense:m=7,n=37,k=17", target("x86-64-v3"), {"avx2_s16s16_8x2"}),
        ("matmul:m=8,n=32,k=8,dtype=bfloat16", BFLOATS, {"avx512bf16_16x2"}),
    ],
)
def test_narrow_elements_have_no_other_structures(name: str, spec: str, machine: object, intrinsics: set[str]) -> None:
    task = Task(parse(spec), machine)  # type: ignore[arg-type]
    space = SPACES.make(name).space(task)
    made = [calls(space, s) for s in space.sketches if "rfactor" not in s.name]
    assert made and all(found for found in made) and {x for found in made for x in found} == intrinsics


@pytest.mark.parametrize("generator", [SketchSpace, ProbabilisticSpace])
@pytest.mark.parametrize("spec", ["matmul:m=16,n=32,k=8", "matmul:m=16,n=32,k=8,dtype=uint8"])
def test_never_means_never(generator: type, spec: str) -> None:
    task = Task(parse(spec), target("x86-64-v3"))
    space = generator(intrinsics="never").space(task)
    assert not any(calls(space, s) for s in space.sketches)


@pytest.mark.parametrize("generator", [SketchSpace, ProbabilisticSpace])
def test_floats_stay_as_they_are_unless_asked(generator: type) -> None:
    task = Task(parse("matmul:m=16,n=32,k=8"), target("x86-64-v3"))
    auto, never, always = ([*generator(intrinsics=x).sketches(task)] for x in ("auto", "never", "always"))
    assert [(s.name, s.program.hash) for s in auto] == [(s.name, s.program.hash) for s in never]
    added = {s.name for s in always} - {s.name for s in auto}
    assert added and all(n.startswith("calls(avx2_f32_") for n in added) and len(always) == len(auto) + len(added)


@pytest.mark.parametrize("generator", [SketchSpace, ProbabilisticSpace])
def test_another_word_is_refused(generator: type) -> None:
    with pytest.raises(SpaceError, match="intrinsics = 'sometimes': accepted are auto, always, never"):
        generator(intrinsics="sometimes")


# --- points -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("spec", ["matmul:m=48,n=96,k=64,dtype=uint8", "qconv2d:ci=16,co=32,h=14,w=14,k=3,padding=1"])
def test_tiles_fit_the_registers_and_populations_have_features(name: str, spec: str) -> None:
    machine = target("x86-64-v3:threads=2")
    task = Task(parse(spec), machine)
    space = SPACES.make(name).space(task)
    check_moves(space, count=16)
    points = space.sample(256, np.random.default_rng(0))
    assert space.valid(points).all()
    assert np.isfinite(np.asarray(space.features(points, "summary"))).all()
    for point in points[:16]:
        row = [s for s in statements(space.program(point).body) if getattr(s, "kinds", None) == ("unrolled",)]
        around = [s for s in row if any(isinstance(x, Tensorized) for x in statements(s))]
        assert np.prod([s.extent.value for s in around]) < machine.vector_registers, space.text(point)
    check_features(space, points[:2], task)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_points(name: str) -> None:
    task = Task(parse("qdense:m=12,n=40,k=24,zero=3"), target("x86-64-v3"))
    first, second = (SPACES.make(name).space(task) for _ in range(2))
    drawn = [s.sample(32, np.random.default_rng(7)) for s in (first, second)]
    assert [first.text(p) for p in drawn[0]] == [second.text(p) for p in drawn[1]]
    assert [s.program.hash for s in first.sketches] == [s.program.hash for s in second.sketches]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", NAMES)
def test_seeds_take_the_tile_that_fills_the_registers(name: str) -> None:
    task = Task(parse("matmul:m=512,n=512,k=512,dtype=uint8"), target("x86-64-v3:threads=2"))
    made = SPACES.make(name)
    space = made.space(task)
    best = space.text(made.seeds(task, space)[0])
    assert best.startswith("calls(avx2_s16s16_8x2)-layout(") and "x4, j=" in best and "x2, k=" in best


def test_a_trace_draws_tiles_and_states_the_condition() -> None:
    task = Task(parse("matmul:m=16,n=32,k=8,dtype=uint8"), target("x86-64-v3"))
    s = ProbabilisticSchedule(task.program, task=task, intrinsics="auto")
    first, *_ = CallTiling().apply(s, "C")
    kinds = [i.kind for i in first.trace.instructions]
    assert kinds.count("sample_perfect_tile") == 3 and kinds.count("tensorize") == kinds.count("require") == 1
