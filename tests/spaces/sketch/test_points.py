"""Points: every operator's space holds to the conformance suite, and random programs compute what they should."""

import numpy as np
import pytest
from scipy.stats import chisquare

import searchlab as sl
from searchlab.search import Points, Sketch, Space, Task, split_knob
from searchlab.testing import check_moves, check_point, check_space
from searchlab.workloads import Workload, operators, parse
from spaces.sketch import SketchSpace

SMALL = [
    "avg_pool2d:c=6,h=11,w=12,k=3,stride=2,padding=1",
    "batch_matmul:batch=2,m=7,n=12,k=9,dtype=int8",
    "capsule_conv2d:ci=3,co=4,h=6,w=6,k=3,stride=2,padding=1,capsule=2",
    "conv1d:ci=6,co=10,w=17,k=3,stride=2,padding=1",
    "conv2d:ci=6,co=8,h=9,w=10,k=3,padding=1,groups=2",
    "conv2d:ci=4,co=6,h=9,w=9,k=3,dilation=2",
    "conv2d:n=2,ci=5,co=7,h=11,w=13,k=1",
    "conv2d_bn_relu:ci=4,co=6,h=7,w=8,k=3",
    "conv2d_transpose:ci=4,co=6,h=5,w=6,k=4,stride=2,padding=1",
    "conv3d:ci=3,co=4,d=4,h=6,w=5,k=3",
    "dense:m=12,n=18,k=14,activation=gelu",
    "dense:m=1,n=13,k=40,bias=false,dtype=uint8",
    "depthwise_conv2d:c=6,h=12,w=13,k=3,stride=2,padding=1",
    "elementwise:rows=7,cols=36",
    "global_avg_pool2d:c=12,h=5,w=7",
    "l2_norm:batch=3,rows=7,cols=10",
    "layer_norm:rows=6,cols=44",
    "matmul:m=24,n=36,k=18",
    "matmul:m=13,n=7,k=11,dtype=float64",
    "matmul:m=4,n=4,k=96",
    "max_pool2d:c=4,h=13,w=14",
    "reduce:shape=6x10x12,axis=1",
    "qconv2d:ci=6,co=8,h=9,w=10,k=3,padding=1,zero=128",
    "qdense:m=12,n=18,k=14",
    "qdepthwise_conv2d:c=6,h=12,w=13,stride=2,padding=1,zero=3",
    "qmatmul:m=24,n=36,k=18,zero=128",
    "qmatmul:m=13,n=7,k=11,weight_zero=3,out=int8",
    "reduce:shape=40,axis=0,op=max",
    "reduce:shape=9x14,axis=0,op=min,dtype=int32",
    "softmax:rows=7,cols=48",
    "transpose_batch_matmul:batch=2,seq=10,heads=3,dim=8",
]


def at(spec: str) -> Task:
    return Task(parse(spec), sl.detect(threads=2))


@pytest.mark.parametrize("spec", SMALL)
def test_spaces_conform(spec: str) -> None:
    space = check_space(SketchSpace(), at(spec), points=2)
    assert all(s.knobs and (s.unconditional or "calls(" in s.name) for s in space.sketches)


def test_all_operators_are_there() -> None:
    ours = {n for n, o in operators().items() if o.path.startswith("searchlab.")}  # other tests add their own
    assert {spec.partition(":")[0] for spec in SMALL} == ours


def test_padding_in_every_place() -> None:
    task = at("conv2d:ci=4,co=6,h=8,w=9,k=3,padding=1")
    space = SketchSpace().space(task)
    names = [sketch.name for sketch in space.sketches]
    for place in ("P@Y0", "P@Y1", "P@Y2", "P@inline"):
        s = names.index(f"pack-fuse2/W_local@Y0/{place}")
        drawn = space.sketches[s].draw(1, np.random.default_rng(2))
        check_point(space, Points.of([[s, *drawn[0]]], space.width), task)


def test_tile_sizes_are_drawn_evenly() -> None:
    space = Space([Sketch("tile", (split_knob("i", 24, 3, max_inner=4),))])
    options = space.sketches[0].knobs[0].options
    assert sorted(map(tuple, options.tolist())) == [
        (a, b, 24 // a // b)
        for a in range(1, 25)
        for b in range(1, 25)
        if 24 % a == 0 and 24 // a % b == 0 and 24 // a // b <= 4
    ]
    drawn = space.sample(20_000, np.random.default_rng(0)).options[:, 0]
    assert chisquare(np.bincount(drawn, minlength=len(options))).pvalue > 1e-3


def test_tile_sizes_of_many_sketches_are_drawn_evenly() -> None:
    space = SketchSpace().space(at("matmul:m=24,n=6,k=4"))
    drawn = space.sample(20_000, np.random.default_rng(0))
    for s, sketch in enumerate(space.sketches):
        rows = drawn.options[drawn.sketch == s]
        assert len(rows) == pytest.approx(20_000 * sketch.count / space.size.valid, rel=0.1)
        assert chisquare(np.bincount(rows[:, 0], minlength=len(sketch.knobs[0]))).pvalue > 1e-3


def _study() -> list[Workload]:
    more = ["matmul:m=16,n=24,k=20,dtype=uint8", "conv2d:ci=4,co=6,h=8,w=9,k=3,padding=1,dtype=int8"]
    return [parse(spec) for spec in (*SMALL, *more, "conv2d:ci=6,co=8,h=9,w=10,k=1,stride=2")]


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("workload", _study(), ids=str)
def test_a_thousand_points_in_all(workload: Workload) -> None:
    task = Task(workload, sl.detect(threads=2))
    space = SketchSpace().space(task)
    check_moves(space, seed=1)
    points = space.sample_new(36, np.random.default_rng(3)).points
    for point in points:
        check_point(space, point, task, seed=3)


def test_without_places_stages_stay_apart() -> None:
    chain = Task(sl.workload("elementwise", rows=32, cols=64, ops="add,relu,mul"), sl.detect(threads=1))
    rules = ["spaces.sketch.rules:Tile", "spaces.sketch.rules:Skip"]
    (apart,) = SketchSpace(rules, places=False).space(chain).sketches
    assert apart.program is not None and len(apart.program.blocks) == 3
    assert len(SketchSpace(rules).space(chain).sketches) > 1
