"""Every operator has templates, and their points compute what the reference does."""

import numpy as np
import pytest

import searchlab as sl
from searchlab import targets
from searchlab.backend import compile
from searchlab.search import Task, space
from searchlab.testing import check_point, check_space
from searchlab.workloads import operators, parse
from spaces.template import TemplateSpace
from spaces.template.registry import templates

# odd, even and prime extents, and the dtypes that operators take
CASES = {
    "matmul": ["m=37,n=53,k=29", "m=48,n=32,k=24,dtype=float64", "m=7,n=40,k=16,dtype=int8", "m=1,n=1,k=1"],
    "batch_matmul": ["batch=3,m=11,n=20,k=6", "batch=1,m=8,n=16,k=12,dtype=uint8"],
    "dense": ["m=17,n=40,k=24,activation=relu", "m=9,n=23,k=7,bias=false", "m=6,n=32,k=16,dtype=int32"],
    "transpose_batch_matmul": ["batch=1,seq=13,heads=3,dim=20", "batch=2,seq=8,heads=2,dim=16,dtype=float64"],
    "conv1d": ["ci=6,co=20,w=31,k=3,padding=1,then=bias", "ci=5,co=16,w=24,k=1"],
    "conv2d": [
        "ci=6,co=20,h=13,w=11,k=3,padding=1",
        "ci=8,co=16,h=8,w=16,k=1,dtype=float64",
        "ci=6,co=12,h=7,w=9,k=3,padding=1,groups=2",
        "n=2,ci=4,co=6,h=9,w=8,k=2,stride=2,dtype=uint8",
        "ci=5,co=5,h=6,w=7,k=3,dilation=2,groups=5",
    ],
    "conv3d": ["ci=3,co=10,d=4,h=5,w=7,k=2,padding=1", "ci=4,co=8,d=3,h=4,w=6,k=1,stride=2"],
    "depthwise_conv2d": ["c=5,h=13,w=21,k=3,padding=1,then=bn,relu6", "n=2,c=8,h=8,w=16,k=2,stride=2,dtype=int8"],
    "conv2d_bn_relu": ["ci=6,co=20,h=7,w=11,k=3,padding=1", "ci=6,co=16,h=7,w=11,k=1"],
    "conv2d_transpose": ["ci=4,co=18,h=3,w=5", "ci=3,co=5,h=4,w=4,k=3,stride=1,padding=1,dtype=float64"],
    "capsule_conv2d": ["ci=2,co=5,h=4,w=5,k=2,capsule=2,padding=1", "ci=1,co=16,h=4,w=4,k=2,capsule=3"],
    "max_pool2d": ["c=5,h=13,w=23,k=3,stride=2,padding=1", "c=2,h=8,w=32,k=2,dtype=float64"],
    "avg_pool2d": ["n=2,c=5,h=12,w=40,padding=1", "c=3,h=7,w=11,k=3,stride=1"],
    "global_avg_pool2d": ["c=13,h=7,w=7", "n=2,c=8,h=4,w=6,dtype=float64"],
    "softmax": ["rows=7,cols=53", "rows=12,cols=32,dtype=float64"],
    "layer_norm": ["rows=6,cols=40", "rows=5,cols=17,dtype=float64"],
    "l2_norm": ["batch=1,rows=7,cols=53", "batch=3,rows=8,cols=16"],
    "elementwise": ["rows=13,cols=37", "rows=8,cols=48,ops=sigmoid,dtype=float64"],
    "qmatmul": ["m=37,n=53,k=29,zero=128", "m=7,n=40,k=16,dtype=int8,weight_zero=3,out=int8"],
    "qdense": ["m=17,n=40,k=24,zero=128,out_zero=128", "m=6,n=32,k=16,out=int32"],
    "qconv2d": ["ci=6,co=20,h=13,w=11,k=3,padding=1,zero=9", "ci=6,co=16,h=7,w=11,k=3,padding=1,weight_zero=3"],
    "qdepthwise_conv2d": ["c=5,h=13,w=21,k=3,padding=1,zero=9", "c=8,h=8,w=16,padding=1,stride=2,weight_zero=3"],
    "reduce": ["shape=5x7x23", "shape=6x5x16,axis=1,op=max", "shape=4x12,axis=0,op=mean", "shape=31,op=sum,dtype=int8"],
}


def specs() -> list[str]:
    return [f"{name}:{params}" for name, listed in CASES.items() for params in listed]


def test_every_operator_has_templates() -> None:
    ours = {n for n, o in operators().items() if o.path.startswith("searchlab.")}  # other tests add their own
    assert ours <= {*CASES} and all(templates(n) for n in CASES)


@pytest.mark.parametrize("spec", specs())
def test_space_conforms(spec: str) -> None:
    threads = 1 + specs().index(spec) % 2
    check_space(TemplateSpace(), Task(parse(spec), sl.detect(min(threads, sl.detect().cores))), points=2)


@pytest.mark.parametrize("name", CASES)
def test_small_targets_have_valid_points(name: str) -> None:
    task = Task(parse(f"{name}:{CASES[name][0]}"), targets.parse("x86-64-v2:threads=4"))
    found = TemplateSpace().space(task)
    assert all(s.count for s in found.sketches)
    assert len(TemplateSpace().seeds(task, found))


def test_found_by_name() -> None:
    task = Task(sl.workload("matmul", m=12, n=24, k=10), sl.detect(1))
    assert space("template", task).hash == TemplateSpace().space(task).hash
    assert {s.name.split("/")[0] for s in space({"template": {"template": "tiles"}}, task).sketches} == {"tiles"}


def test_run_time_rows() -> None:
    workload = sl.workload("matmul", m="?", n=24, k=10)
    task = Task(workload, sl.detect(min(2, sl.detect().cores)))
    found = TemplateSpace().space(task)
    for point in found.sample_new(3, np.random.default_rng(0)).points:
        kernel = compile(found.program(point), task.target)
        for rows in (1, 5, 64):
            inputs = workload.inputs(0, m=rows)
            assert workload.check(kernel(*inputs.values()), inputs) is None, found.text(point)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(specs())))
def test_a_thousand_points(number: int) -> None:
    task = Task(parse(specs()[number]), sl.detect(min(1 + number % 2, sl.detect().cores)))
    found = TemplateSpace().space(task)
    for point in found.sample_new(-(-1000 // len(specs())), np.random.default_rng(number)).points:
        check_point(found, point, task, seed=number)
