"""The target and the back end for GPUs: limits, occupancy, conformance, and emulated times that say what they are."""

import pytest

from searchlab.backend import backend_of
from searchlab.bench import measure
from searchlab.cuda.cuda_backend import CudaBackend
from searchlab.errors import MeasureError, TargetError
from searchlab.measure import Job, Protocol, Worker
from searchlab.targets import CudaTarget, Target, parse
from searchlab.testing import check_backend
from searchlab.workloads import workload

TARGET = parse({"cuda": {"arch": "sm_80"}})


def test_the_back_end_conforms() -> None:
    check_backend(CudaBackend(), TARGET)


def test_specs_mean_the_same() -> None:
    assert parse("cuda:arch=sm_80") == parse("cuda") == TARGET == Target.from_dict(TARGET.to_dict())
    assert parse("cuda:arch=sm_90").fingerprint() != TARGET.fingerprint()
    with pytest.raises(TargetError, match="unknown architecture 'sm_70'; known: sm_75, sm_80, sm_86, sm_89, sm_90"):
        parse("cuda:arch=sm_70")
    with pytest.raises(TargetError, match="unknown option 'threads'"):
        parse("cuda:threads=2")


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "blocks"),
    [
        ("sm_80", 256, 32, 0, 8),  # all 64 warps
        ("sm_80", 256, 64, 0, 4),  # 16384 of 65536 registers each
        ("sm_80", 128, 255, 0, 2),  # 8 warps of 8192 registers
        ("sm_80", 32, 16, 0, 32),  # the most blocks
        ("sm_80", 128, 32, 48 << 10, 3),  # 49 of 164 KiB each
        ("sm_80", 128, 32, 163 << 10, 1),
        ("sm_80", 128, 32, 164 << 10, 0),
        ("sm_80", 1025, 32, 0, 0),
        ("sm_80", 128, 256, 0, 0),
        ("sm_75", 1024, 64, 0, 1),
        ("sm_75", 256, 32, 32 << 10, 2),
        ("sm_86", 1024, 32, 0, 1),  # 48 warps hold one block of 32
        ("sm_89", 64, 32, 0, 24),
        ("sm_90", 128, 32, 99 << 10, 2),
    ],
)
def test_resident_blocks(arch: str, threads: int, registers: int, shared: int, blocks: int) -> None:
    target = parse(f"cuda:arch={arch}")
    assert isinstance(target, CudaTarget)
    assert target.resident_blocks(threads, registers, shared) == blocks
    warps = -(-threads // 32)
    assert target.occupancy(threads, registers, shared) == pytest.approx(blocks * warps * 32 / target.threads_per_sm)


def test_emulated_times_are_marked() -> None:
    assert backend_of(TARGET).emulated and not backend_of(parse("native")).emulated
    w = workload("elementwise", rows=3, cols=4, ops="relu")
    with Worker("emulated") as worker:
        quick = Protocol(warmup=0, repeats=2, min_repeat_ms=0.1, beaten=None)
        outcome = worker.run(Job("emulated", w, TARGET, w.program, protocol=quick))
    assert outcome.ok and outcome.notes["emulated"]
    with pytest.raises(MeasureError, match="sm_80 is emulated here"):
        measure(w, TARGET)
