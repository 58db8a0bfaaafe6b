"""GPUs of AMD: programs are assembled, and what they use is read from the assembly; nothing claims to run them."""

import pickle
from math import prod

import pytest

from searchlab.backend import backend_of, build, compile
from searchlab.cuda.rocm_backend import RocmArtifact, amd_ir
from searchlab.defaults import default_schedule
from searchlab.errors import BuildError, TargetError
from searchlab.measure import Job, Worker
from searchlab.targets import RocmTarget, Target, parse
from searchlab.workloads import parse as workload


def assembled(spec: str, arch: str) -> RocmArtifact:
    target = parse({"rocm": {"arch": arch}})
    made = build(default_schedule(workload(spec).program, target), target)
    assert isinstance(made, RocmArtifact)
    return made


def test_targets_travel() -> None:
    target = parse({"rocm": {"arch": "gfx90a"}})
    assert target == parse("rocm") == Target.from_dict(target.to_dict()) == pickle.loads(pickle.dumps(target))
    with pytest.raises(TargetError, match="unknown architecture 'gfx9'; known: gfx906, gfx90a"):
        parse("rocm:arch=gfx9")


@pytest.mark.parametrize("arch", ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100"])
def test_assembly_and_its_counts(arch: str) -> None:
    made = assembled("matmul:m=64,n=64,k=64", arch)
    ((kernel,), (use,)) = made.kernels, made.uses
    assert f"amdgcn-amd-amdhsa--{arch}" in kernel.text
    assert ("s_barrier" in kernel.text) == (prod(kernel.block) > made.target.warp)  # a wave is in step with itself
    assert use.shared == kernel.shared > 0 and use.spills == 0
    assert 16 <= (use.registers or 0) <= 256 and 0 < (use.occupancy or 0) <= 1
    assert f".vgpr_count:     {use.registers}" in kernel.text


def test_programs_of_several_kernels() -> None:
    made = assembled("softmax:rows=4,cols=40", "gfx90a")
    assert len(made.uses) == len(made.kernels) > 1
    backend = backend_of(made.target)
    for form in backend.forms:
        assert "kernel0" in backend.listing(made.program, made.target, form)


def test_resident_blocks() -> None:
    target = parse("rocm:arch=gfx90a")
    assert isinstance(target, RocmTarget)
    assert target.resident_blocks(64, 8, 0) == 32  # as many waves as there is room for
    assert target.resident_blocks(256, 64, 0) == 8
    assert target.resident_blocks(256, 256, 0) == 2
    assert target.resident_blocks(256, 32, 33 << 10) == 1
    assert target.resident_blocks(128, 8, 0) == 16
    assert target.resident_blocks(2048, 8, 0) == target.resident_blocks(64, 8, 65 << 10) == 0


def test_nothing_runs_them() -> None:
    w, target = workload("matmul:m=8,n=8,k=8"), parse("rocm")
    with pytest.raises(BuildError, match="can be read here, but not run"):
        compile(default_schedule(w.program, target), target)
    with Worker("rocm") as worker:
        outcome = worker.run(Job("rocm", w, target, default_schedule(w.program, target)))
    assert outcome.status == "build" and "not run" in outcome.error and outcome.notes["environment"]


def test_instructions_of_another_vendor_are_refused() -> None:
    with pytest.raises(BuildError, match="llvm.nvvm.shfl.sync.bfly.i32 is an instruction of NVIDIA's GPUs"):
        amd_ir("declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)")
