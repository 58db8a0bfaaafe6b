"""Kernels on a device: the same code as with a real one, on a made-up GPU behind the names of both packages."""

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from searchlab import targets
from searchlab.backend import Artifact, backend_of, build, compile, load
from searchlab.bench import measure
from searchlab.cuda.cuda_backend import CudaBackend, EmulatedKernel
from searchlab.cuda.cuda_kernel import CudaArtifact
from searchlab.cuda.device_kernel import DeviceKernel
from searchlab.defaults import default_schedule
from searchlab.errors import BuildError, ConfigError, KernelError, MeasureError, TargetError
from searchlab.lab.config import from_data
from searchlab.measure import CoreLock, Job, Limits, LocalMeasurer, Protocol, Worker
from searchlab.targets import CudaTarget, cuda_devices, parse
from searchlab.testing import check_backend
from searchlab.timing import race
from searchlab.workloads import Workload, workload

pytestmark = pytest.mark.usefixtures("gpu_log")
BOTH = pytest.mark.parametrize("package", ["pycuda", "cuda-bindings"])
QUICK = Protocol(warmup=1, repeats=3, min_repeat_ms=0.0, beaten=None)


def small() -> tuple[Workload, CudaTarget]:
    target = parse("cuda")
    assert isinstance(target, CudaTarget)
    return workload("matmul", m=8, n=8, k=8), target


def with_line(artifact: Artifact, line: str) -> CudaArtifact:
    """The artifact with a line at the end of its PTX."""
    assert isinstance(artifact, CudaArtifact)
    return replace(artifact, kernels=tuple(replace(k, text=f"{k.text}\n{line}\n") for k in artifact.kernels))


def calls(log: Path) -> list[list[object]]:
    return [json.loads(line)[1:] for line in log.read_text().splitlines()]


def names(log: Path) -> list[object]:
    return [call[0] for call in calls(log)]


def test_the_back_end_conforms_on_a_device() -> None:
    backend, target = CudaBackend(), parse("cuda")
    assert not backend.emulated
    check_backend(backend, target)


@BOTH
def test_limits_are_those_of_the_device() -> None:
    _, target = small()
    assert target.arch == "sm_86"  # code for the newest known architecture that an sm_87 runs
    assert (target.threads_per_sm, target.blocks_per_sm) == (1280, 12)
    assert (target.shared_per_sm, target.shared_per_block) == (90 << 10, 89 << 10)
    (device,) = cuda_devices.cuda_devices().found
    assert (device.name, device.sms, device.capability) == ("Fake GPU", 7, 87)
    assert parse("cuda:arch=sm_80") == parse("cuda:arch=sm_80") != target


def test_code_for_newer_devices_is_refused() -> None:
    backend = CudaBackend()
    backend.require(parse("cuda:arch=sm_86"))
    with pytest.raises(BuildError, match="Fake GPU is sm_87, which cannot run code for sm_90"):
        backend.require(parse("cuda:arch=sm_90"))


@BOTH
def test_a_call_is_a_launch_between_events(gpu_log: Path) -> None:
    w, target = small()
    kernel = compile(default_schedule(w.program, target), target)
    assert isinstance(kernel, DeviceKernel)
    gpu_log.write_text("")
    inputs = w.inputs(seed=1)
    out = np.zeros((8, 8), np.float32)
    runs = kernel.ready(inputs, {}, {"C": out}, lambda n: (0, None))
    prepared = names(gpu_log)
    assert prepared.count("allocate") == 3 and prepared.count("write") == 2 and "launch" not in prepared
    gpu_log.write_text("")
    seconds = runs(4)
    assert names(gpu_log) == ["record", *["launch"] * 4, "record"]
    assert seconds is not None and 0 < seconds < 1
    assert runs(8) == pytest.approx(2 * seconds)
    runs.read_back()
    assert w.check(out, inputs) is None
    gpu_log.write_text("")
    del runs
    assert names(gpu_log) == ["free"] * 3


def test_an_outcome_has_device_times_and_facts(gpu_log: Path) -> None:
    w, target = small()
    program = default_schedule(w.program, target)
    with Worker("device") as worker:
        warm = worker.run(Job("warm", w, target, program, protocol=QUICK))
        cold = worker.run(Job("cold", w, target, program, protocol=replace(QUICK, cache="cold")))
    assert warm.ok and cold.ok, warm.error or cold.error
    assert len(set(warm.times)) == 1  # the clock of the device counts steps
    assert "emulated" not in warm.notes and "preempted" not in warm.notes
    assert warm.notes["device"] == "Fake GPU" and warm.notes["registers"] == "40" and "occupancy" in warm.notes
    assert warm.notes["clocks"] == "1410 MHz, memory 1215 MHz" and warm.notes["temperature"] == "56 C"
    flushes = [call for call in calls(gpu_log) if call[:2] == ["fill", 0]]
    assert flushes and all(size == 32 << 20 for _, _, size in flushes)
    assert not warm.pulses


FAULTS = {"illegal": ("run", "illegal.address"), "resources": ("run", "out.of.resources"), "memory": ("oom", "GPU")}


@BOTH
def test_a_fault_costs_one_candidate(gpu_log: Path) -> None:
    w, target = small()
    good = build(default_schedule(w.program, target), target)
    with Worker("faults") as worker:
        for fault, (status, error) in FAULTS.items():
            gpu_log.write_text("")
            bad = with_line(good, f"// fault: {fault}")
            found = [worker.run(job(w, target, artifact)) for artifact in (good, bad, good)]
            assert [o.status for o in found] == ["ok", status, "ok"], found
            assert found[1].attempts == 1 and re.search(error, found[1].error, re.I), found[1].error
            pids = [json.loads(line)[0] for line in gpu_log.read_text().splitlines() if '"launch"' in line]
            assert len(set(pids)) == 3  # the first child, a fresh one to be sure, and another for the next candidate


def job(w: Workload, target: CudaTarget, artifact: Artifact, run_s: float = 20.0) -> Job:
    return Job("job", w, target, artifact=artifact, protocol=QUICK, limits=Limits(run_s=run_s))


def test_a_hanging_kernel_is_ended(gpu_log: Path) -> None:
    w, target = small()
    good = build(default_schedule(w.program, target), target)
    with Worker("hang") as worker:
        hung = worker.run(job(w, target, with_line(good, "// fault: hang"), run_s=1.0))
        after = worker.run(job(w, target, good))
    assert hung.status == "timeout" and "run_s" in hung.error and after.ok


def test_stray_writes_are_noticed() -> None:
    """Where a device would let a kernel write beside its arrays, the margins around them tell."""
    w, target = small()
    artifact = build(default_schedule(w.program, target), target)
    assert isinstance(artifact, CudaArtifact)
    moved = [replace(k, text=_moved(k.text)) for k in artifact.kernels]
    kernel = load(replace(artifact, kernels=tuple(moved)))
    with pytest.raises(KernelError, match="writes beyond the ends of 'C'"):
        kernel(*w.inputs(seed=0).values())


def _moved(text: str) -> str:
    """PTX whose stores to global memory go 16 bytes further."""
    changed, count = re.subn(r"(st\.global[\w.]*\s+\[%rd\d+)(?:\+(\d+))?\]", _further, text)
    assert count
    return changed


def _further(found: re.Match[str]) -> str:
    return f"{found[1]}+{int(found[2] or 0) + 16}]"


def test_races_are_timed_by_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "SAMPLE_SECONDS", 0.0)  # a run is enough
    w, target = workload("elementwise", rows=3, cols=4, ops="relu"), parse("cuda")
    row = measure(w, target, seconds=0.01, min_rounds=2)
    assert set(row.times) == {"searchlab"}  # libraries of the host do not compete
    assert row.times["searchlab"].spread == pytest.approx(0.0)


def test_the_emulator_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cuda_devices.CHOICE, "emulator")
    target = parse("cuda")
    assert target.name == "sm_80" and backend_of(target).emulated
    w = workload("elementwise", rows=3, cols=4, ops="relu")
    assert isinstance(compile(default_schedule(w.program, target), target), EmulatedKernel)
    monkeypatch.setenv(cuda_devices.CHOICE, "rocm")
    with pytest.raises(TargetError, match="accepted are pycuda, cuda-bindings, emulator"):
        targets.parse("cuda")


def test_a_package_without_a_driver_is_no_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pycuda").mkdir()
    (tmp_path / "pycuda" / "__init__.py").write_text("")
    (tmp_path / "pycuda" / "driver.py").write_text("raise ImportError('libcuda.so.1: cannot open shared object file')")
    monkeypatch.syspath_prepend(str(tmp_path))
    cuda_devices._asked.cache_clear()
    found = cuda_devices.cuda_devices()
    assert not found.found and "libcuda.so.1" in found.missing
    assert backend_of(parse("cuda")).emulated
    assert "pycuda.driver" not in sys.modules  # this process may still fork


def test_workers_have_devices_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert cuda_devices.visible_device(1) == {"CUDA_VISIBLE_DEVICES": "5"}
    with pytest.raises(TargetError, match="device 2: CUDA_VISIBLE_DEVICES leaves 2"):
        cuda_devices.visible_device(2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert cuda_devices.visible_device(1) == {"CUDA_VISIBLE_DEVICES": "1"}


def test_devices_are_locked(gpu_log: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    w, target = small()
    built = build(default_schedule(w.program, target), target)
    with LocalMeasurer(devices=(0,), cores=[min(os.sched_getaffinity(0))], lock_timeout_s=0.0) as measurer:
        (outcome,) = measurer.measure([job(w, target, built)])
        assert outcome.ok, outcome.error
        seen = {call[1] for call in calls(gpu_log) if call[0] == "visible"}
        assert "0" in seen  # the worker saw one device only
        with CoreLock([0], kind="GPU"), pytest.raises(MeasureError, match="GPUs to measure on: this process measures"):
            list(measurer.measure([job(w, target, built)]))
        with CoreLock([1], kind="GPU"):
            (again,) = measurer.measure([job(w, target, built)])
            assert again.ok


@pytest.mark.parametrize(
    ("target", "devices", "message"),
    [
        ("cuda", [3], "device 3 cannot be used; accepted: each once of 0"),
        ("cuda", [0, 0], "device 0 cannot be used; accepted: each once of 0"),
        ("x86-64-v2", [0], "device 0 cannot be used; accepted: each once of none"),
    ],
)
def test_devices_of_experiments_exist(target: str, devices: list[int], message: str) -> None:
    given = {"workloads": ["matmul:m=8,n=8,k=8"], "space": "template", "budget": {"trials": 1}, "target": target}
    from_data({**given, "measure": {"local": {}}})
    with pytest.raises(ConfigError, match=message):
        from_data({**given, "measure": {"local": {"devices": devices}}})
