"""The task-mapping space: conformance on all operators, sizes that do not depend on the input, parallel-k."""

import numpy as np
import pytest

import searchlab as sl
from searchlab.errors import SpaceError
from searchlab.search import SPACES, Task
from searchlab.targets import Target, parse
from searchlab.testing import check_point, check_space
from searchlab.workloads import operators
from searchlab.workloads import parse as workload
from spaces.task_mapping import TaskMappingSpace
from spaces.task_mapping.parallel_k import parts_by_rule, parts_to_try

CASES = [
    "matmul:m=13,n=37,k=29",
    "matmul:m=16,n=48,k=8,dtype=int8",
    "matmul:m=6,n=20,k=7,dtype=float64",
    "batch_matmul:batch=3,m=7,n=17,k=11",
    "dense:m=7,n=33,k=19,activation=gelu",
    "dense:m=8,n=16,k=16,bias=false,dtype=uint8",
    "transpose_batch_matmul:batch=1,seq=11,heads=3,dim=8",
    "conv1d:ci=5,co=17,w=23,k=3,padding=1",
    "conv2d:ci=5,co=19,h=9,w=11,k=3,padding=1",
    "conv2d:ci=8,co=8,h=9,w=11,k=3,stride=2,groups=2",
    "conv2d:ci=6,co=32,h=8,w=8,k=1",
    "conv2d:ci=5,co=7,h=9,w=11,k=3,dilation=2,dtype=int8",
    "conv3d:ci=3,co=17,d=4,h=5,w=7,k=3,padding=1",
    "depthwise_conv2d:c=5,h=9,w=17,k=3,padding=1",
    "conv2d_bn_relu:ci=5,co=17,h=8,w=8,k=3,padding=1",
    "conv2d_transpose:ci=5,co=7,h=5,w=6",
    "capsule_conv2d:ci=3,co=5,h=5,w=6",
    "max_pool2d:c=3,h=11,w=13,padding=1",
    "avg_pool2d:c=3,h=11,w=13,dtype=float64",
    "global_avg_pool2d:c=5,h=7,w=7",
    "softmax:rows=5,cols=37",
    "layer_norm:rows=5,cols=37",
    "l2_norm:batch=2,rows=7,cols=37",
    "elementwise:rows=7,cols=37,ops=tanh",
    "reduce:shape=5x7x37,axis=-1",
    "reduce:shape=5x7x37,axis=1,op=mean",
    "reduce:shape=37,axis=0,op=max,dtype=int32",
    "qmatmul:m=13,n=37,k=29,zero=128",
    "qmatmul:m=16,n=48,k=8,weight_zero=3,out=int8",
    "qdense:m=7,n=33,k=19,zero=3",
    "qconv2d:ci=5,co=19,h=9,w=11,k=3,padding=1,zero=128",
    "qdepthwise_conv2d:c=5,h=9,w=17,padding=1,zero=3",
]


def target(threads: int = 2) -> Target:
    return sl.detect().with_threads(min(threads, sl.detect().cores))


def test_every_operator_has_a_case() -> None:
    ours = {n for n, o in operators().items() if o.path.startswith("searchlab.")}  # other tests add their own
    assert {c.partition(":")[0] for c in CASES} == ours


@pytest.mark.parametrize("spec", CASES)
def test_conformance(spec: str) -> None:
    space = check_space(TaskMappingSpace(), Task(workload(spec), target()), points=3)
    assert space.size.exact and space.size.valid <= 600


def test_one_thread() -> None:
    check_space(TaskMappingSpace(), Task(workload("conv2d_bn_relu:ci=5,co=17,h=8,w=8,k=3"), target(1)), points=3)


@pytest.mark.parametrize("spec", ["matmul:m=7,n=37,k=9", "conv2d:ci=3,co=17,h=5,w=6,k=3"])
def test_weights_packed_in_the_kernel(spec: str) -> None:
    space = check_space(TaskMappingSpace(pack_ahead=False), Task(workload(spec), target()), points=4)
    assert not any(s.program.layouts for s in space.sketches if s.program is not None)


def test_narrow_machine_gets_smaller_tiles() -> None:
    def tiles(name: str) -> int:
        space = TaskMappingSpace().space(Task(workload("matmul:m=64,n=64,k=64"), parse(name)))
        values = space.values(space.enumerate())
        return int((values["rows"] * values["vectors"]).max())

    assert tiles("x86-64-v3") <= 16 - 2 < tiles("x86-64-v4") <= 32 - 2


@pytest.mark.parametrize("op", ["matmul:m={0},n={0},k={0}", "conv2d:ci=8,co={0},h={0},w={0},k=3"])
def test_menus_do_not_depend_on_the_input(op: str) -> None:
    spaces = [TaskMappingSpace().space(Task(workload(op.format(n)), target())) for n in (31, 32, 48)]
    knobs = [[[k.to_json() for k in s.knobs] for s in space.sketches] for space in spaces]
    assert knobs[0] == knobs[1] == knobs[2]


def test_found_by_name() -> None:
    made = SPACES.make({"task-mapping": {"parallel_k": "off"}})
    assert isinstance(made, TaskMappingSpace) and made.parallel_k == "off"
    with pytest.raises(SpaceError, match="accepted: rule, search, off"):
        TaskMappingSpace(parallel_k="on")  # type: ignore[arg-type]


def test_run_time_sizes_are_refused() -> None:
    with pytest.raises(SpaceError, match=r"needs fixed extents; write workload.at\(m=...\)"):
        TaskMappingSpace().space(Task(sl.workload("matmul", m="?", n=8, k=8), target()))


def test_parallel_k_rule() -> None:
    assert parts_by_rule(1, 64, 64, 383, 2) == 1
    assert parts_by_rule(1, 1, 64, 512, 2) == parts_by_rule(1, 64, 1, 512, 2) == 16
    assert parts_by_rule(1, 64, 64, 512, 2) == 8
    assert parts_by_rule(1, 128, 64, 512, 2) == 4
    assert parts_by_rule(2, 128, 64, 512, 2) == 2
    assert parts_by_rule(1, 512, 512, 512, 2) == 1
    assert parts_by_rule(1, 64, 64, 516, 2) == 4  # gcd(8, 516)
    assert parts_to_try(384) == [2, 3, 4, 6, 8, 12, 16]


@pytest.mark.parametrize("mode", ["rule", "search"])
def test_parallel_k_sketch(mode: str) -> None:
    task = Task(workload("dense:m=5,n=33,k=384,activation=relu"), parse("native:threads=2"))
    space = TaskMappingSpace(parallel_k=mode).space(task)  # type: ignore[arg-type]
    names = [s.name for s in space.sketches]
    number = names.index("parallel-k")
    points = space.enumerate()
    points = points[np.flatnonzero(points.sketch == number)]
    parts = set(space.values(points)["parts"].tolist())
    assert parts == ({8} if mode == "rule" else {2, 3, 4, 6, 8, 12, 16})
    for n in (0, len(points) // 2, len(points) - 1):
        check_point(space, points[n], task)
    assert "parallel-k" not in [s.name for s in TaskMappingSpace(parallel_k="off").space(task).sketches]


@pytest.mark.slow
@pytest.mark.parametrize("spec", CASES)
def test_all_points(spec: str) -> None:
    task = Task(workload(spec), target())
    space = TaskMappingSpace().space(task)
    points = space.enumerate()
    chosen = np.random.default_rng(0).permutation(len(points))[:1000]
    for n in chosen.tolist():
        check_point(space, points[n], task)
