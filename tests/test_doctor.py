"""The doctor: its findings on simulated machines and on this one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from searchlab import doctor
from searchlab.cli import app
from searchlab.doctor import MachineCheck, examine, memory_limit, summary
from searchlab.timing.corelock import CoreLock

ROOT = Path(__file__).resolve().parents[1]
NAMES = {
    "processor", "cores", "vectors", "caches", "governor", "turbo", "virtualisation", "clock", "load", "core lock",
    "memory", "disk", "llvm", "kernel", "ray", "torch", "onnxruntime", "xgboost", "optuna",
    "cuda",
}  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Path]:
    """A machine made of files: paths with their text."""

    def make(files: dict[str, str]) -> Path:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text + "\n")
        return tmp_path

    return make


def found(root: Path, name: str) -> MachineCheck:
    return next(check for check in examine(root) if check.name == name)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_LOOK_S", 0.01)


# --- this machine -----------------------------------------------------------------------------------------------------


def test_every_check_has_a_line() -> None:
    checks = list(examine())
    assert {check.name for check in checks} == NAMES
    assert all(check.value for check in checks)
    for check in checks:
        assert check.advice or check.state == "ok", f"{check.name}: {check.state} without advice"
        assert not check.advice or check.advice.rstrip()[-1] in ".", check.advice
    assert summary(checks)["can_measure"]


def test_the_command_prints_a_table() -> None:
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0, result.output
    assert all(name in result.stdout for name in NAMES)
    assert "\x1b" not in result.stdout


def test_the_json_is_complete() -> None:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert {line["name"] for line in lines} == NAMES | {"summary"}
    assert all(set(line) == {"group", "name", "state", "value", "advice"} for line in lines[:-1])
    assert sum(lines[-1][state] for state in ("ok", "note", "warning", "problem")) == len(NAMES)
    assert lines[-1]["can_measure"] is True


def test_heavy_libraries_are_left_alone() -> None:
    code = (
        "import sys; from searchlab.doctor import examine; list(examine());"
        "assert not {'torch', 'onnxruntime', 'ray', 'xgboost', 'optuna', 'pycuda'} & set(sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr


# --- others -----------------------------------------------------------------------------------------------------------


def test_what_makes_measuring_impossible_shows_in_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        return None

    monkeypatch.setattr(doctor, "find_spec", missing)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert "Measuring is impossible here" in result.stdout
    assert "pip install llvmlite" in " ".join(result.stdout.split())  # wherever the table breaks its lines


def test_a_check_that_fails_does_not_end_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(root: Path) -> Any:
        raise OSError("no such thing")

    monkeypatch.setitem(doctor._CHECKS["machine"], "clock", fail)
    check = found(Path("/"), "clock")
    assert check.state == "warning"
    assert "no such thing" in check.advice


@pytest.mark.parametrize(
    ("files", "name", "state", "value"),
    [
        ({"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave"}, "governor", "warning", "powersave"),
        ({"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance"}, "governor", "ok", "performance"),
        ({}, "governor", "note", "not visible"),
        ({"sys/devices/system/cpu/intel_pstate/no_turbo": "0"}, "turbo", "note", "on"),
        ({"sys/devices/system/cpu/intel_pstate/no_turbo": "1"}, "turbo", "ok", "off"),
        ({"sys/devices/system/cpu/cpufreq/boost": "1"}, "turbo", "note", "on"),
        ({}, "turbo", "note", "not visible"),
        (
            {"proc/cpuinfo": "model name : Fast 9000\nflags : fpu hypervisor"},
            "virtualisation",
            "note",
            "virtual machine",
        ),
        ({"proc/cpuinfo": "flags : fpu"}, "virtualisation", "ok", "none seen"),
        ({"run/.containerenv": ""}, "virtualisation", "note", "container"),
        ({"proc/cpuinfo": "processor : 0\nmodel name : Fast 9000"}, "processor", "ok", "Fast 9000"),
        ({"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"}, "clock", "note", "source hpet"),
    ],
)
def test_made_up_machines(
    machine: Callable[..., Path],
    files: dict[str, str],
    name: str,
    state: str,
    value: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "_tick", lambda: 50e-9)
    check = found(machine(files), name)
    assert check.state == state
    assert value in check.value


def test_memory_limits_of_containers(machine: Callable[..., Path], tmp_path: Path) -> None:
    assert memory_limit(tmp_path) is None
    machine({"sys/fs/cgroup/memory.max": "max"})
    assert memory_limit(tmp_path) is None
    machine({"sys/fs/cgroup/memory/memory.limit_in_bytes": str((1 << 63) - 4096)})
    assert memory_limit(tmp_path) is None
    machine({"proc/self/cgroup": "0::/job/7", "sys/fs/cgroup/job/7/memory.max": str(8 << 30)})
    assert memory_limit(tmp_path) == 8 << 30
    machine({"sys/fs/cgroup/memory.max": str(1 << 30)})
    assert memory_limit(tmp_path) == 1 << 30
    assert found(tmp_path, "memory").state == "warning"


def test_a_busy_core_lock_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    core = min(os.sched_getaffinity(0))
    assert found(Path("/"), "core lock").state == "ok"
    with CoreLock([core]):
        check = found(Path("/"), "core lock")
        assert check.state == "warning"
        assert f"measures on core {core}" in check.value
    assert found(Path("/"), "core lock").state == "ok"


def test_ranges_of_cores() -> None:
    assert list(doctor._ranges([0, 1, 2, 5, 7, 8])) == ["0-2", "5", "7-8"]


def test_gpus_are_emulated_unless_a_package_reaches_one(
    machine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCHLAB_CUDA", "emulator")
    check = found(machine({"proc/driver/nvidia/version": "NVRM version: made up"}), "cuda")
    assert (check.state, check.value) == ("note", "driver found, no device reached")
    assert check.advice.startswith("Kernels for GPUs are emulated: emulator is chosen. pip install")
