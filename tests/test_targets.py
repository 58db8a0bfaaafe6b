"""Targets: detection, its cap, the spec grammar, and that a target is a value that travels."""

import dataclasses
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from searchlab import targets
from searchlab.errors import BuildError, TargetError
from searchlab.llvm.jit import check_runs_here
from searchlab.measure import Job
from searchlab.measure.local import LocalMeasurer
from searchlab.targets import CpuTarget, Target, cpu, detect, host, parse
from searchlab.workloads import workload

CPUS = [name for name in CpuTarget.names() if name not in ("native", "arm", "wasm")]  # the last two take names of CPUs


def test_detects_this_machine() -> None:
    host = detect()
    assert host is detect()
    assert 1 <= host.threads == host.cores <= (os.cpu_count() or 1)
    assert host.vector_bits in (128, 256, 512)
    assert host.vector_registers in (16, 32)
    assert 8 << 10 <= host.l1 <= 1 << 20
    assert host.l1 <= host.l2
    assert detect(1).threads == 1
    assert detect(1).cores == host.cores


@pytest.mark.parametrize("spec", ["native:threads=1", {"native": {"threads": 1}}, detect(1)])
def test_spec_forms_mean_the_same(spec: object) -> None:
    assert parse(spec) == detect(1)  # type: ignore[arg-type]


def test_plain_native() -> None:
    assert parse("native") == parse({"native": None}) == detect()


@pytest.mark.parametrize("name", CPUS)
def test_named_cpus(name: str) -> None:
    target = parse(name)
    assert target.cpu == name
    assert target.threads == target.cores == 1
    assert parse(f"{name}:threads=6").threads == 6
    assert target.enabled_features()


def test_named_cpu_vectors() -> None:
    v3, v4 = parse("x86-64-v3"), parse("x86-64-v4")
    assert (v3.vector_bits, v3.vector_registers, v3.lanes("float32"), v3.lanes("float64")) == (256, 16, 8, 4)
    assert (v4.vector_bits, v4.vector_registers, v4.lanes("float32"), v4.lanes("int8")) == (512, 32, 16, 64)
    assert {"avx2", "fma"} <= v3.enabled_features() < v4.enabled_features()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nativ", "did you mean 'native'"),
        ("x86-64-v33", "did you mean 'x86-64-v3'.*known: native, x86-64-v2"),
        ("native:thread=2", "unknown option 'thread'; known: threads"),
        ("native:threads=two", "integer"),
        ("native:threads=0", "threads must be 1 to"),
        ("native:threads=100000", "threads must be 1 to"),
        ({"native": {}, "x86-64-v3": {}}, "one name"),
    ],
)
def test_refused_specs(spec: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        parse(spec)


def test_unknown_dtype() -> None:
    with pytest.raises(TargetError, match="unknown dtype 'float'; known: float32"):
        detect().lanes("float")


@pytest.mark.parametrize("target", [detect(), *map(parse, CPUS)], ids=str)
def test_is_a_value_that_travels(target: Target) -> None:
    assert Target.from_dict(json.loads(json.dumps(target.to_dict()))) == target
    assert pickle.loads(pickle.dumps(target)) == target
    assert len({target, Target.from_dict(target.to_dict())}) == 1
    assert len(str(target).splitlines()) == 1 and target.cpu in str(target)


def test_refuses_partial_descriptions() -> None:
    data = detect().to_dict()
    with pytest.raises(TargetError, match="l3"):
        Target.from_dict({key: value for key, value in data.items() if key != "l3"})
    with pytest.raises(TargetError, match="l4"):
        Target.from_dict({**data, "l4": 1})


def test_fingerprint_depends_on_what_code_depends_on_and_no_process() -> None:
    base = parse("x86-64-v3:threads=2")
    assert base.fingerprint() != base.with_threads(1).fingerprint() != parse("x86-64-v4").fingerprint()
    assert dataclasses.replace(base, cores=8).fingerprint() == base.fingerprint()
    code = "from searchlab.targets import parse; print(parse('x86-64-v3:threads=2').fingerprint())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=_root())
    assert run.stdout.strip() == base.fingerprint()


# --- the cap ----------------------------------------------------------------------------------------------------------

AVX2 = pytest.mark.skipif("x86-64-v3" not in targets.offered(), reason="this machine lacks AVX2")


@AVX2
def test_a_cap_leaves_cores_and_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = cpu._host()
    monkeypatch.setenv("SEARCHLAB_CPU", "x86-64-v3")
    capped, named = detect(), parse("x86-64-v3")
    assert (capped.cpu, capped.features, capped.vector_bits) == ("x86-64-v3", named.features, 256)
    assert (capped.vector_registers, capped.lanes("float32")) == (16, 8)
    assert (capped.cores, capped.l1, capped.l2, capped.l3) == (whole.cores, whole.l1, whole.l2, whole.l3)
    assert capped is detect() and parse("native") == capped
    monkeypatch.setenv("SEARCHLAB_CPU", "native")
    assert detect() == whole
    monkeypatch.delenv("SEARCHLAB_CPU")
    assert detect() == whole


@AVX2
def test_code_beyond_the_cap_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCHLAB_CPU", "x86-64-v2")
    check_runs_here(parse("x86-64-v2"))
    with pytest.raises(BuildError, match=r"needs avx, avx2, .* which this x86-64-v2 lacks \(SEARCHLAB_CPU says so\)"):
        check_runs_here(parse("x86-64-v3"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x86-64-v33", "SEARCHLAB_CPU=x86-64-v33: unknown CPU; did you mean .* accepted here: native"),
        ("neoverse-n1" if cpu._host().arch == "x86_64" else "x86-64-v3", "lacks the instructions of .* accepted"),
    ],
)
def test_caps_that_cannot_be(name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCHLAB_CPU", name)
    with pytest.raises(TargetError, match=message):
        detect()


def test_a_cap_above_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    small = dataclasses.replace(parse("x86-64-v2"), cpu="small")
    monkeypatch.setattr(cpu, "_host", lambda: small)
    monkeypatch.setattr(cpu, "_capped", cpu._capped.__wrapped__)
    monkeypatch.setenv("SEARCHLAB_CPU", "x86-64-v3")
    with pytest.raises(TargetError, match=r"v3: this small lacks avx, avx2, .*; accepted here: native, x86-64-v2$"):
        detect()


@AVX2
def test_commands_and_workers_follow_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes inherit it: what they take for native, and the code that they agree to run."""
    monkeypatch.setenv("SEARCHLAB_CPU", "x86-64-v2")
    shown = subprocess.run(
        [sys.executable, "-m", "searchlab", "doctor", "--json"], capture_output=True, text=True, cwd=_root()
    )
    (line,) = (x for x in map(json.loads, shown.stdout.splitlines()) if x.get("name") == "vectors")
    assert "on x86-64-v2" in line["value"] and "capped by SEARCHLAB_CPU" in line["value"]
    w = workload("elementwise", rows=4, cols=16)
    beyond, within = (Job(name, w, parse(name), w.program) for name in ("x86-64-v3", "x86-64-v2"))
    with LocalMeasurer() as measurer:
        found = {outcome.id: outcome for outcome in measurer.measure([beyond, within])}
    assert found["x86-64-v2"].ok, found["x86-64-v2"].error
    assert found["x86-64-v3"].status == "build" and "SEARCHLAB_CPU says so" in found["x86-64-v3"].error
    assert "environment" in found["x86-64-v3"].notes


# --- what the system says ---------------------------------------------------------------------------------------------


def test_caches_are_per_core(tmp_path: Path) -> None:
    instructions, data = ("Instruction", 1, "64K", "0"), ("Data", 1, "48K", "0")
    shared_l2, shared_l3 = ("Unified", 2, "2M", "0,8"), ("Unified", 3, "32M", "0-15")
    for index, (kind, level, size, shared) in enumerate((instructions, data, shared_l2, shared_l3)):
        entry = tmp_path / f"index{index}"
        entry.mkdir()
        for name, value in (("type", kind), ("level", level), ("size", size), ("shared_cpu_list", shared)):
            (entry / name).write_text(f"{value}\n")
    assert host._caches(tmp_path) == (48 << 10, 1 << 20, 2 << 20)


def test_hidden_caches_fall_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_sysconf_cache", lambda level: 0)
    assert host._caches(tmp_path / "nothing") == host.CACHE_DEFAULTS


@pytest.mark.parametrize(("text", "cores"), [("max 100000", 8), ("150000 100000", 2), ("garbage", 8)])
def test_container_quota(tmp_path: Path, text: str, cores: int) -> None:
    path = tmp_path / "cpu.max"
    path.write_text(text)
    assert host._quota(path, 8) == cores


def test_import_stays_light() -> None:
    code = "import sys, searchlab.targets; print(sorted({'numpy', 'llvmlite'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=_root())
    assert run.stdout.strip() == "[]"


def _root() -> Path:
    return Path(__file__).resolve().parents[1]


def test_processors_of_other_architectures() -> None:
    assert parse({"arm": "neoverse-n1"}) == parse("arm:neoverse-n1") == parse("neoverse-n1") == parse("arm")
    assert parse({"arm": {"cpu": "cortex-a72", "threads": 4}}) == parse("arm:cortex-a72,threads=4")
    target = parse("arm:cpu=cortex-a76")
    assert isinstance(target, CpuTarget)
    assert (target.arch, target.cpu, target.vector_bits) == ("aarch64", "cortex-a76", 128)
    assert "dotprod" in target.enabled_features()
    with pytest.raises(TargetError, match="target 'arm': unknown CPU 'm68k'; known: neoverse-n1, "):
        parse({"arm": "m68k"})
    with pytest.raises(TargetError, match="unknown option 'cpu'; known: threads"):
        parse("native:znver4")
