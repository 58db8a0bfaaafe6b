"""Operators of every kind on edges, primes and odd sizes, and random bound schedules, under both oracles."""

import pytest
from cuda_oracles import TARGET, is_right
from random_bound_schedules import random_bound_schedule

from searchlab.defaults import default_schedule
from searchlab.errors import BuildError
from searchlab.targets import CudaTarget, parse
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
