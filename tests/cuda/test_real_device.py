"""Kernels on the GPU of this machine, if it has one; the rest of the tests emulates, wherever it runs.

SEARCHLAB_CUDA=pycuda python -m pytest tests/cuda/test_real_device.py
"""

from pathlib import Path

import pytest

import searchlab as sl
from searchlab.backend import compile
from searchlab.cuda.cuda_backend import CudaBackend
from searchlab.defaults import default_schedule
from searchlab.lab.export import export
from searchlab.measure import Job, Protocol, Worker
from searchlab.targets import parse
from searchlab.targets.cuda_devices import cuda_devices
from searchlab.testing import check_backend
from searchlab.workloads import parse as workload

pytestmark = pytest.mark.skipif(not cuda_devices().found, reason=f"no GPU: {cuda_devices().missing}")
SPECS = (
    "matmul:m=127,n=65,k=33",
    "matmul:m=1024,n=1024,k=1024",
    "conv2d:ci=5,co=7,h=9,w=11,k=3,padding=1,stride=2,then=bias,relu",
    "depthwise_conv2d:c=5,h=9,w=8,k=3,padding=1",
    "softmax:rows=33,cols=1025",
    "layer_norm:rows=5,cols=777",
    "elementwise:rows=9,cols=31,ops=add,gelu",
)


def test_the_back_end_conforms() -> None:
    check_backend(CudaBackend(), parse("cuda"))


@pytest.mark.parametrize("spec", SPECS)
def test_operators(spec: str) -> None:
    w, target = workload(spec), parse("cuda")
    inputs = w.inputs(seed=1)
    assert w.check(compile(default_schedule(w.program, target), target)(*inputs.values()), inputs) is None


@pytest.mark.parametrize("cache", ["warm", "cold"])
def test_times_are_possible(cache: str) -> None:
    """No device computes more than 2 Pop/s in float32."""
    w, target = workload(SPECS[1]), parse("cuda")
    with Worker("device") as worker:
        protocol = Protocol(repeats=5, cache=cache)  # type: ignore[arg-type]
        outcome = worker.run(Job("job", w, target, default_schedule(w.program, target), protocol=protocol))
    assert outcome.ok, outcome.error
    assert w.flops / 2e15 < min(outcome.times) < 1.0 and outcome.notes["device"]


def test_exports(tmp_path: Path) -> None:
    pytest.importorskip("pycuda")
    w, target = workload(SPECS[0]), parse("cuda")
    export(default_schedule(w.program, target), target, tmp_path / "out", title=w.label)
    inputs = w.inputs(seed=2)
    assert w.check(sl.load(tmp_path / "out")(*inputs.values()), inputs) is None
