"""Spaces on GPUs: they conform, their limits hold, and their programs are right at sizes that no tile divides."""

import numpy as np
import pytest

from searchlab.analysis import schema
from searchlab.backend import backend_of, compile
from searchlab.cuda.ptxas import assemble, find_ptxas
from searchlab.errors import SpaceError
from searchlab.search import SPACES, Space, Task
from searchlab.targets import CudaTarget, parse
from searchlab.testing import check_space
from searchlab.workloads import parse as workload
from spaces.probabilistic import ProbabilisticSpace
from spaces.sketch import SketchSpace
from spaces.task_mapping import TaskMappingSpace
from spaces.template import TemplateSpace
from tests.cuda_oracles import is_right

TARGET = parse("cuda:arch=sm_80")
assert isinstance(TARGET, CudaTarget)
NAMES = ("template", "sketch", "task-mapping", "probabilistic")
SPECS = (
    "matmul:m=37,n=53,k=29",
    "batch_matmul:batch=3,m=17,n=13,k=11",
    "dense:m=19,n=34,k=23,activation=gelu",
    "transpose_batch_matmul:batch=1,seq=19,heads=3,dim=17",
    "conv1d:ci=3,co=11,w=41,k=3,stride=1,padding=1",
    "conv2d:ci=5,co=11,h=7,w=13,k=3,stride=1,padding=1",
    "conv3d:ci=2,co=7,d=2,h=3,w=5,k=2,stride=1,padding=0",
    "depthwise_conv2d:c=7,h=11,w=13,k=3,stride=2,padding=1",
    "conv2d_bn_relu:ci=3,co=7,h=10,w=9,k=3",
    "conv2d_transpose:ci=2,co=7,h=2,w=9,k=2,stride=2,padding=0",
    "capsule_conv2d:ci=2,co=3,h=3,w=3,k=2",
    "max_pool2d:c=5,h=17,w=19,k=3,stride=2,padding=1",
    "avg_pool2d:c=5,h=17,w=19,k=3,stride=1,padding=0",
    "global_avg_pool2d:c=7,h=11,w=13",
    "softmax:rows=7,cols=127",
    "layer_norm:rows=5,cols=131",
    "l2_norm:batch=1,rows=17,cols=19",
    "elementwise:rows=17,cols=31",
    "reduce:shape=9x73,axis=1",
    "qmatmul:m=17,n=23,k=13,zero=128,out_zero=128",
)


CALLS = (
    "matmul:m=37,n=29,k=35,dtype=float16",
    "batch_matmul:batch=2,m=17,n=19,k=21,dtype=bfloat16",
    "qmatmul:m=33,n=9,k=41,zero=128",
    "conv2d:ci=5,co=17,h=3,w=17,k=3,padding=1,dtype=float16",
)
MORE_CALLS = (
    "dense:m=19,n=34,k=23,activation=gelu,dtype=float16",
    "matmul:m=64,n=64,k=64,dtype=int8",
    "transpose_batch_matmul:batch=1,seq=19,heads=3,dim=17,dtype=float16",
    "conv1d:ci=3,co=11,w=41,k=3,stride=1,padding=1,dtype=bfloat16",
    "conv2d_bn_relu:ci=3,co=17,h=5,w=18,k=3,dtype=float16",
    "qconv2d:ci=3,co=17,h=5,w=18,k=3",
)


def made(name: str, spec: str) -> Space:
    return SPACES.make(name).space(Task(workload(spec), TARGET))


@pytest.mark.parametrize("name", NAMES)
def test_spaces_conform(name: str) -> None:
    check_space(SPACES.make(name), Task(workload("matmul:m=12,n=32,k=8"), TARGET), points=2)
    check_space(SPACES.make(name), Task(workload("softmax:rows=3,cols=70"), parse("cuda:arch=sm_75")), points=1)


@pytest.mark.parametrize("number", range(len(SPECS)), ids=lambda n: SPECS[n].split(":")[0])
def test_an_odd_size_is_right(number: int) -> None:
    """Every operator in one of the spaces, in turn, emulated."""
    space, w = made(NAMES[number % len(NAMES)], SPECS[number]), workload(SPECS[number])
    program, inputs = space.program(space.sample(1, np.random.default_rng(number))), w.inputs(0)
    assert w.check(compile(program, TARGET)(*inputs.values()), inputs) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("spec", SPECS + CALLS + MORE_CALLS, ids=lambda s: s.split(":")[0])
def test_thirty_points_are_right(name: str, spec: str) -> None:
    random_points_are_right(name, spec, 30)


@pytest.mark.slow
@pytest.mark.skipif(find_ptxas() is None, reason="there is no ptxas")
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
@pytest.mark.parametrize("name", NAMES)
def test_code_is_accepted_by_the_assembler(name: str, arch: str) -> None:
    """Some points of every operator, for an old, a common and a recent architecture."""
    target = parse(f"cuda:arch={arch}")
    for spec in SPECS + CALLS + MORE_CALLS:
        space = SPACES.make(name).space(Task(workload(spec), target))
        for point in space.sample_new(3, np.random.default_rng(1)).points:
            for kernel in backend_of(target).build(space.program(point), target).kernels:  # type: ignore[attr-defined]
                assert assemble(kernel.text, arch).cubin, space.text(point)


def random_points_are_right(name: str, spec: str, count: int) -> None:
    space, w = made(name, spec), workload(spec)
    for point in space.sample_new(count, np.random.default_rng(0)).points:
        assert is_right(w, space.program(point)), space.text(point)


@pytest.mark.parametrize("number", range(len(CALLS)), ids=lambda n: CALLS[n].split(":")[0])
def test_tensor_cores_take_any_size(number: int) -> None:
    """Products of short numbers are called, each in one of the spaces, under both oracles."""
    spec, name = CALLS[number], ("sketch", "task-mapping", "probabilistic", "template")[number]
    space, w = made(name, spec), workload(spec)
    assert all(s.tensorized for s in space.sketches)
    point = space.sample(1, np.random.default_rng(number))
    program = space.program(point)
    assert is_right(w, program)
    assert "mma.sync" in backend_of(TARGET).listing(program, TARGET, "PTX")
    columns = dict(zip(schema("summary").columns, np.exp2(space.features(point, "summary")[0]) - 1, strict=True))
    (kernel, *_) = backend_of(TARGET).build(program, TARGET).kernels  # type: ignore[attr-defined]
    assert round(columns["gpu_threads"]) == int(np.prod(kernel.block)) and columns["all_calls"] >= 1


def test_what_tensor_cores_use_is_foreseen() -> None:
    """Shared memory with the room between rows, threads and blocks, of tiles that divide the product."""
    space = made("task-mapping", "matmul:m=256,n=256,k=256,dtype=float16")
    for point in space.sample_new(3, np.random.default_rng(2)).points:
        columns = dict(zip(schema("summary").columns, np.exp2(space.features(point, "summary")[0]) - 1, strict=True))
        (kernel,) = backend_of(TARGET).build(space.program(point), TARGET).kernels  # type: ignore[attr-defined]
        assert round(columns["gpu_shared_bytes"]) == kernel.shared
        assert round(columns["gpu_blocks"]) == int(np.prod(kernel.grid))


def test_tensor_cores_are_an_option_and_a_matter_of_architecture() -> None:
    task = Task(workload("matmul:m=32,n=32,k=32,dtype=float16"), TARGET)
    old = Task(task.workload, parse("cuda:arch=sm_75"))
    brain = Task(workload("matmul:m=32,n=32,k=32,dtype=bfloat16"), parse("cuda:arch=sm_75"))
    wide = Task(workload("matmul:m=32,n=32,k=32"), TARGET)
    for generator in (TemplateSpace, SketchSpace, TaskMappingSpace, ProbabilisticSpace):
        called = lambda t, how="auto": {s.tensorized for s in generator(intrinsics=how).space(t).sketches}  # noqa: B023, E731
        assert called(task) == {True} and called(task, "never") == {False}, generator
        assert called(old) == {True} and called(brain) == {False}, generator
        assert called(wide, "always") == {False}, generator  # tf32 would shorten the factors
    assert "mma_f16_16x8x8" in SketchSpace().space(old).sketches[0].name


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_one_kernel(name: str) -> None:
    """Softmax and layer norm have a structure of one kernel, which comes first among the seeds."""
    w = workload(("softmax:rows=6,cols=127", "layer_norm:rows=9,cols=70")[NAMES.index(name) % 2])
    generator, task = SPACES.make(name), Task(w, TARGET)
    space = generator.space(task)
    seeds = generator.seeds(task, space)
    found = [p for p in seeds if "rows" in space.sketches[int(p.sketch[0])].name]
    assert found
    program = space.program(found[0])
    assert is_right(w, program)
    (kernel,) = backend_of(TARGET).build(program, TARGET).kernels  # type: ignore[attr-defined]
    assert "shfl.sync" in kernel.text


@pytest.mark.parametrize("name", NAMES)
def test_limits_hold_for_all_points(name: str) -> None:
    """Threads, shared memory and grids of what is built, which conditions on whole populations foresaw."""
    space = made(name, "matmul:m=128,n=96,k=64")
    points = space.sample(400, np.random.default_rng(1))
    columns = dict(zip(schema("summary").columns, np.exp2(space.features(points, "summary").T) - 1, strict=True))
    assert (np.round(columns["gpu_threads"]) <= 1024).all() and (
        np.round(columns["gpu_shared_bytes"]) <= 48 << 10
    ).all()
    for n in range(3):
        (kernel, *_) = backend_of(TARGET).build(space.program(points[n]), TARGET).kernels  # type: ignore[attr-defined]
        assert int(np.prod(kernel.block)) == round(columns["gpu_threads"][n])
        assert int(np.prod(kernel.grid)) == round(columns["gpu_blocks"][n])


def test_the_177_points_are_programs_of_every_size() -> None:
    for spec in ("matmul:m=1024,n=1024,k=1024", "matmul:m=2039,n=509,k=61", "conv2d:ci=3,co=64,h=56,w=56,k=3"):
        sketch = made("task-mapping", spec).sketches[0]
        assert sketch.count == 177 and sketch.exact


def test_sums_are_cut_into_parts_where_there_are_few_tiles() -> None:
    task = Task(workload("matmul:m=32,n=32,k=384"), TARGET)
    space = TaskMappingSpace().space(task)
    assert [s.name for s in space.sketches] == ["simt", "simt-parallel-k"]
    assert [s.name for s in TaskMappingSpace(parallel_k="off").space(task).sketches] == ["simt"]
    point = next(p for p in space.sample(40, np.random.default_rng(0)) if int(p.sketch[0]) == 1)
    assert is_right(task.workload, space.program(point))


def test_seeds_have_whole_warps_and_several_structures() -> None:
    for name in NAMES:
        generator, task = SPACES.make(name), Task(workload("matmul:m=256,n=256,k=256"), TARGET)
        space = generator.space(task)
        seeds = generator.seeds(task, space)
        columns = dict(zip(schema("summary").columns, np.exp2(space.features(seeds, "summary").T) - 1, strict=True))
        assert len(seeds) >= 4 and (np.round(columns["gpu_threads"]) % 32 == 0).all(), name


def test_a_structure_for_cpus_is_refused() -> None:
    task = Task(workload("matmul:m=16,n=16,k=16"), TARGET)
    with pytest.raises(SpaceError, match=r"structure 'SSRS' on a GPU; accepted: SSSR"):
        SketchSpace(structure="SSRS").space(task)
