"""Operators of every kind on edges, primes and odd sizes, and random bound schedules, under both oracles."""

import pytest
from cuda_oracles import TARGET, is_right
from random_bound_schedules import random_bound_schedule

from searchlab.defaults import default_schedule
from searchlab.errors import BuildError
from searchlab.targets import CudaTarget, parse
from searchlab.workloads import operators
from searchlab.workloads import parse as workload

# a refusal is no fault, but must stay rare: what cannot be proved is refused
MOST_REFUSED = 0.1


@pytest.mark.parametrize(
    "spec",
    [
        "matmul:m=67,n=43,k=31",
        "batch_matmul:batch=3,m=17,n=19,k=11",
        "dense:m=13,n=29,k=37",
        "conv2d:ci=5,co=7,h=11,w=13,k=3,padding=1",
        "conv2d:ci=3,co=5,h=12,w=9,k=3,stride=2",
        "conv2d:ci=4,co=6,h=7,w=7,k=1",
        "depthwise_conv2d:c=7,h=11,w=9,k=3,padding=1",
        "conv2d_transpose:ci=3,co=4,h=5,w=5,k=4,stride=2,padding=1",
        "reduce:shape=3x1031,axis=-1",
        "softmax:rows=3,cols=127",
        "layer_norm:rows=5,cols=101",
        "elementwise:rows=17,cols=31,ops=sigmoid",
    ],
)
def test_default_schedules_of_every_kind(spec: str) -> None:
    w = workload(spec)
    assert is_right(w, default_schedule(w.program, TARGET, w.weights))


SMALL = (
    "matmul:m=17,n=19,k=13",
    "batch_matmul:batch=2,m=5,n=7,k=9",
    "dense:m=17,n=16,k=9",
    "transpose_batch_matmul:batch=1,seq=5,heads=2,dim=7",
    "conv1d:ci=3,co=5,w=11,k=3,padding=1",
    "conv2d:ci=3,co=5,h=5,w=7,k=3,padding=1",
    "conv3d:ci=2,co=3,d=2,h=3,w=5,k=2",
    "depthwise_conv2d:c=3,h=5,w=7,k=3,padding=1",
    "conv2d_bn_relu:ci=2,co=3,h=5,w=7,k=3",
    "conv2d_transpose:ci=2,co=3,h=2,w=3,k=2,stride=2,padding=0",
    "capsule_conv2d:ci=2,co=2,h=3,w=3,k=2",
    "max_pool2d:c=3,h=7,w=9,k=3,padding=1",
    "avg_pool2d:c=3,h=7,w=9,k=3",
    "global_avg_pool2d:c=3,h=5,w=7",
    "softmax:rows=3,cols=37",
    "layer_norm:rows=5,cols=33",
    "l2_norm:batch=1,rows=5,cols=7",
    "elementwise:rows=5,cols=7",
    "reduce:shape=3x73,axis=1",
    "qmatmul:m=17,n=16,k=9",
    "qdense:m=17,n=16,k=9",
    "qconv2d:ci=3,co=5,h=5,w=7,k=3",
    "qdepthwise_conv2d:c=3,h=5,w=7,k=3",
)


def types_of(spec: str) -> tuple[str, ...]:
    """The types of elements that an operator takes."""
    (dtype,) = (p for p in operators()[spec.split(":")[0]].parameters if p.name == "dtype")
    return tuple(map(str, dtype.choices))


def test_every_operator_is_among_them() -> None:
    ours = {name for name, o in operators().items() if o.path.startswith("searchlab.")}  # other tests add some
    assert {spec.split(":")[0] for spec in SMALL} == ours


@pytest.mark.parametrize("spec", ["matmul:m=17,n=16,k=13", "softmax:rows=3,cols=37"], ids=lambda s: s.split(":")[0])
def test_default_schedules_of_every_type(spec: str) -> None:
    for dtype in types_of(spec):
        w = workload(f"{spec},dtype={dtype}")
        assert is_right(w, default_schedule(w.program, TARGET, w.weights, w.ranges)), dtype


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
@pytest.mark.parametrize("spec", SMALL, ids=lambda s: s.split(":")[0])
def test_default_schedules_of_every_operator_and_type(spec: str, arch: str) -> None:
    target = parse(f"cuda:arch={arch}")
    assert isinstance(target, CudaTarget)
    for dtype in types_of(spec):
        w = workload(f"{spec},dtype={dtype}")
        assert is_right(w, default_schedule(w.program, target, w.weights, w.ranges), target), dtype


def refused(seed: int, target: CudaTarget = TARGET) -> bool:
    w, program = random_bound_schedule(seed)
    try:
        return not is_right(w, program, target)
    except BuildError as e:
        assert "emulator" not in str(e) and "ptxas" not in str(e), f"seed {seed}: {e}"
        return True
    except AssertionError as e:
        raise AssertionError(f"seed {seed}: {e}") from None


def test_random_bound_schedules() -> None:
    assert sum(map(refused, range(24))) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1500, 50))
def test_five_hundred_random_bound_schedules(first: int) -> None:
    old = parse("cuda:arch=sm_75")
    assert isinstance(old, CudaTarget)
    assert sum(refused(seed, (TARGET, old)[seed % 2]) for seed in range(first, first + 50)) <= MOST_REFUSED * 50
