"""What kernels need of a multiprocessor, by the assembler: noted in outcomes, and refused where no block can run."""

from dataclasses import replace

import pytest

from searchlab.backend import build
from searchlab.cuda import kernel_use
from searchlab.cuda.cuda_backend import CudaBackend
from searchlab.cuda.cuda_kernel import CudaArtifact
from searchlab.cuda.kernel_use import KernelUse, assembled_use, checked_use, use_notes
from searchlab.cuda.ptxas import find_ptxas
from searchlab.defaults import default_schedule
from searchlab.errors import ConstraintError
from searchlab.measure import Job, Protocol, Worker
from searchlab.targets import CudaTarget, parse
from searchlab.workloads import workload

W = workload("matmul", m=16, n=16, k=16)


def target() -> CudaTarget:
    found = parse("cuda:arch=sm_80")
    assert isinstance(found, CudaTarget)
    return found


def artifact() -> CudaArtifact:
    made = build(default_schedule(W.program, target()), target())
    assert isinstance(made, CudaArtifact)
    return made


def test_notes_tell_of_all_kernels() -> None:
    assert use_notes(()) == {}
    assert use_notes([KernelUse(1024)]) == {"shared memory": "1024 bytes"}
    assert use_notes([KernelUse(0, 32, 0, 1.0), KernelUse(64, 255, 8, 0.125)]) == {
        "registers": "32, 255",
        "spills": "0 bytes, 8 bytes",
        "shared memory": "0 bytes, 64 bytes",
        "occupancy": "100%, 12%",
    }


def test_blocks_that_do_not_fit_are_refused() -> None:
    (kernel,) = artifact().kernels
    wide = replace(kernel, block=(1024, 1, 1))
    assert checked_use(wide, target(), 64, 0).occupancy == 0.5
    with pytest.raises(ConstraintError, match="1024 threads with 65 registers each .* does not fit"):
        checked_use(wide, target(), 65, 0)


def test_without_an_assembler_only_shared_memory_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_use, "find_ptxas", lambda: None)
    (kernel,) = artifact().kernels
    assert assembled_use(kernel, target()) == KernelUse(kernel.shared)


@pytest.mark.skipif(find_ptxas() is None, reason="no ptxas")
def test_outcomes_have_the_facts() -> None:
    (use,) = CudaBackend().examined(artifact()).uses
    assert use.registers and use.spills == 0 and use.occupancy
    with Worker("facts") as worker:
        quick = Protocol(warmup=0, repeats=1, min_repeat_ms=0.0)
        outcome = worker.run(Job("facts", W, target(), default_schedule(W.program, target()), protocol=quick))
    assert outcome.ok, outcome.error
    assert outcome.notes["registers"] == str(use.registers) and outcome.notes["emulated"]


@pytest.mark.skipif(find_ptxas() is None, reason="no ptxas")
def test_programs_that_do_not_fit_are_not_measured() -> None:
    small = replace(target(), registers_per_sm=1024)  # a multiprocessor with hardly any registers
    with Worker("refused") as worker:
        outcome = worker.run(Job("refused", W, small, default_schedule(W.program, small)))
    assert outcome.status == "constraints" and "does not fit" in outcome.error
