"""The fitness of this machine for measuring: a list of checks, each with advice if something can be improved.

Nothing heavy is imported: installed libraries are looked up in package metadata.  System files are read below `root`,
so that a test can simulate a machine.
"""

from __future__ import annotations

import ctypes.util
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

State = Literal["ok", "note", "warning", "problem"]

_ROOT = Path("/")
_GIB = 1 << 30
_BUSY = 0.1  # the share of the machine that other processes may use without a warning
_LOOK_S = 0.3
_SLOW_CLOCK_S = 1e-6
_GOOD_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")


@dataclass(frozen=True, slots=True)
class MachineCheck:
    """One line of the report; a warning means that times suffer, a problem that nothing can be measured."""

    group: str
    name: str
    state: State
    value: str
    advice: str = ""

    def to_dict(self) -> dict[str, str]:
        return asdict(self)


def examine(root: Path = _ROOT) -> Iterator[MachineCheck]:
    """Yields all checks as they are made; that of the load takes a moment."""
    for group, checks in _CHECKS.items():
        for name, check in checks.items():
            state, value, advice = _guarded(check, root)
            yield MachineCheck(group, name, state, value, advice)


Found = tuple[State, str, str]


def _guarded(check: Callable[[Path], Found], root: Path) -> Found:
    """Runs a check; an error becomes a finding, since people run this when something is broken."""
    try:
        return check(root)
    except Exception as error:  # files of other systems may hold anything, and the other checks still help
        return "warning", "unknown", f"This could not be determined: {type(error).__name__}: {error}."


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


# --- machine ----------------------------------------------------------------------------------------------------------


def _processor(root: Path) -> Found:
    info = _text(root / "proc/cpuinfo") or ""
    names = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    return "ok", names[0] if names else os.uname().machine, ""


def _cores(root: Path) -> Found:
    total, allowed = os.cpu_count() or 1, sorted(os.sched_getaffinity(0))
    value = f"{len(allowed)} of {total} usable ({', '.join(map(str, _ranges(allowed)))})"
    if len(allowed) == 1:
        return "warning", value, "Compiling, searching and timing disturb each other on one core; use two or more."
    if _text(root / "sys/devices/system/cpu/smt/active") == "1":
        return "note", value, "Hyper-threading is on: two kernels on one physical core slow each other down."
    return "ok", value, ""


def _ranges(numbers: list[int]) -> Iterator[str]:
    first = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            yield str(numbers[first]) if at - first == 1 else f"{numbers[first]}-{numbers[at - 1]}"
            first = at


def _caches(root: Path) -> Found:
    from searchlab.targets import detect

    target = detect()
    value = ", ".join(f"L{n} {size >> 10} KiB" for n, size in enumerate((target.l1, target.l2, target.l3), 1))
    if not any((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        return "note", value, "The system hides its caches; conservative sizes are assumed."
    return "ok", f"{value} per core", ""


def _governor(root: Path) -> Found:
    found = {_text(path) for path in (root / "sys/devices/system/cpu").glob("cpu*/cpufreq/scaling_governor")} - {None}
    if not found:
        return "note", "not visible", "The host controls the clock frequency; `searchlab noise` shows how steady it is."
    value = ", ".join(sorted(str(name) for name in found))
    if found != {"performance"}:
        advice = "The clock frequency follows the load; fix it with `cpupower frequency-set -g performance`."
        return "warning", value, advice
    return "ok", value, ""


def _turbo(root: Path) -> Found:
    switch, boost = (_text(root / "sys/devices/system/cpu" / p) for p in ("intel_pstate/no_turbo", "cpufreq/boost"))
    if switch is None and boost is None:
        return "note", "not visible", "Whether the clock may exceed its nominal frequency is unknown here."
    if switch == "0" or boost == "1":
        return "note", "on", "The frequency depends on heat and busy cores; switch it off for steady times."
    return "ok", "off", ""


def _virtual(root: Path) -> Found:
    product = " ".join(
        filter(None, (_text(root / "sys/class/dmi/id" / name) for name in ("sys_vendor", "product_name")))
    )
    words = set((_text(root / "proc/cpuinfo") or "").split())
    kinds = ["virtual machine"] if "hypervisor" in words else []
    cgroup = _text(root / "proc/1/cgroup") or ""
    inside = any(word in cgroup for word in ("docker", "kubepods", "containerd", "lxc"))
    if inside or any((root / name).exists() for name in (".dockerenv", "run/.containerenv")):
        kinds.append("container")
    if not kinds:
        return "ok", product or "none seen", ""
    value = ", ".join(kinds) + (f" ({product})" if product else "")
    return "note", value, "Other virtual machines, invisible from here, may share its cores and caches."


def _clock(root: Path) -> Found:
    source = _text(root / "sys/devices/system/clocksource/clocksource0/current_clocksource") or "unknown"
    tick = _tick()
    value = f"{tick * 1e9:.0f} ns between readings, source {source}"
    if tick > _SLOW_CLOCK_S:
        return "warning", value, "Reading the clock is slow; use longer samples (min_repeat_ms)."
    if source != "unknown" and source not in _GOOD_CLOCKS:
        return "note", value, "This clock source is unusual; the CPU's own counter is faster to read."
    return "ok", value, ""


def _tick() -> float:
    """The smallest difference between two readings of the timing clock."""
    least = float("inf")
    for _ in range(2000):
        first = time.perf_counter_ns()
        second = time.perf_counter_ns()
        if second > first:
            least = min(least, (second - first) * 1e-9)
    return least


# --- disturbances -----------------------------------------------------------------------------------------------------


def _load(root: Path) -> Found:
    import psutil

    first = psutil.cpu_times()
    time.sleep(_LOOK_S)
    spent = {name: after - before for name, before, after in zip(first._fields, first, psutil.cpu_times(), strict=True)}
    total = sum(spent.values()) or 1.0
    idle = spent["idle"] + spent.get("iowait", 0.0)
    busy, steal = 1.0 - idle / total, spent.get("steal", 0.0) / total
    value = f"{busy:.0%} busy now, load {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores"
    if steal > 0.01:
        return "warning", f"{value}, {steal:.0%} stolen", "The host gives your cores to others; measure elsewhere."
    if busy > _BUSY:
        advice = "Other programs are running: times will be noisy, especially those of kernels with several threads."
        return "warning", value, advice
    return "ok", value, ""


def _lock(root: Path) -> Found:
    held = lock_holders()
    if held:
        return "warning", "; ".join(held), "Another searchlab process is timing; yours will wait for its turn."
    return "ok", "no other process is measuring", ""


def lock_holders() -> list[str]:
    """The processes that measure on cores of this one, found by briefly taking each core's lock."""
    from searchlab.errors import MeasureError
    from searchlab.timing.corelock import CoreLock

    held = []
    for core in sorted(os.sched_getaffinity(0)):
        try:
            with CoreLock([core], timeout_s=0.0):
                pass
        except MeasureError as error:  # "waited ... for cores: process 7 measures on core 0"
            held.append(str(error).rpartition(": ")[2])
    return held


# --- resources --------------------------------------------------------------------------------------------------------


def _memory(root: Path) -> Found:
    import psutil

    memory = psutil.virtual_memory()
    limit = memory_limit(root)
    value = f"{memory.available / _GIB:.1f} of {memory.total / _GIB:.1f} GiB available"
    if limit is not None:
        value += f", limited to {limit / _GIB:.1f} GiB by the container"
    if min(memory.available, limit or memory.available) < 2 * _GIB:
        return "warning", value, "Large workloads and their references may not fit; free some memory."
    return "ok", value, ""


def memory_limit(root: Path) -> int | None:
    """The memory limit of this process's control group, if any (versions 1 and 2)."""
    own = [line.split(":", 2) for line in (_text(root / "proc/self/cgroup") or "").splitlines()]
    places = [("", "memory.max")]
    places += [(path, "memory.max") for _, kinds, path in own if not kinds]
    places += [(f"/memory{path}", "memory.limit_in_bytes") for _, kinds, path in own if "memory" in kinds.split(",")]
    places.append(("/memory", "memory.limit_in_bytes"))
    found = [_text(root / f"sys/fs/cgroup{path}" / name) for path, name in places]
    # Version 1 writes "no limit" as a number near the maximum.
    limits = [int(text) for text in found if text and text.isdecimal() and int(text) < 1 << 60]
    return min(limits, default=None)


def _disk(root: Path) -> Found:
    free = shutil.disk_usage(Path.cwd()).free
    value = f"{free / _GIB:.1f} GiB free in {Path.cwd()}"
    if free < _GIB:
        return "warning", value, "Records and logs are written here; free some disk space."
    return "ok", value, ""


# --- software ---------------------------------------------------------------------------------------------------------


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown version"


def _llvm(root: Path) -> Found:
    if find_spec("llvmlite") is None:
        return "problem", "not installed", "Nothing can be compiled without it: `pip install llvmlite`."
    try:
        import llvmlite.binding as llvm

        version = ".".join(map(str, llvm.llvm_version_info))
    except Exception as error:  # a broken native library raises whatever its loader does
        return "problem", f"llvmlite {_version('llvmlite')} is broken", f"{error}; install it again."
    return "ok", f"LLVM {version} through llvmlite {_version('llvmlite')}", ""


def _vectors(root: Path) -> Found:
    from searchlab.targets import CAP, cap, detect

    target = detect()
    features = target.enabled_features()
    shown = [f for f in ("avx2", "fma", "avx512f", "avx512vl", "avx512_bf16", "amx-tile", "neon") if f in features]
    value = f"{target.vector_registers} x {target.vector_bits} bits on {target.cpu} ({', '.join(shown) or 'basic'})"
    if cap():
        advice = f"Code is generated for less than this machine supports; unset {CAP} to use all of it."
        return "note", f"{value}, capped by {CAP}", advice
    if target.arch == "x86_64" and target.vector_bits < 256:
        return "warning", value, "Without AVX, results say little about other machines; a container may be hiding it."
    return "ok", value, ""


def _kernel(root: Path) -> Found:
    """Compiles, runs and verifies a small kernel, the decisive check."""
    try:
        from searchlab.backend import compile
        from searchlab.workloads import workload

        start = time.perf_counter()
        small = workload("matmul", m=8, n=8, k=8)
        inputs = small.inputs(seed=0)
        wrong = small.check(compile(small.program)(*inputs.values()), inputs)
    except Exception as error:  # any failure here is the finding
        return "problem", "failed", f"{type(error).__name__}: {error}; nothing can be measured until this works."
    if wrong is not None:
        return "problem", "wrong result", f"{wrong}; code for this processor cannot be trusted."
    return "ok", f"compiled, ran and gave the right result in {(time.perf_counter() - start) * 1e3:.0f} ms", ""


def _package(module: str, packages: tuple[str, ...], extra: str, purpose: str) -> Callable[[Path], Found]:
    def check(root: Path) -> Found:
        if find_spec(module) is None:
            return "note", "not installed", f"`pip install 'searchlab[{extra}]'` adds {purpose}."
        versions = [v for name in packages if (v := _version(name)) != "unknown version"]
        return "ok", versions[0] if versions else "unknown version", ""

    return check


def _cuda(root: Path) -> Found:
    from searchlab.targets.cuda_devices import cuda_devices

    devices = cuda_devices()
    if devices.found:
        return "ok", f"{', '.join(d.name for d in devices.found)}, through {devices.found[0].package}", ""
    driver = (root / "proc/driver/nvidia/version").exists() or ctypes.util.find_library("cuda") is not None
    advice = f"Kernels for GPUs are emulated: {devices.missing}."
    if driver:
        advice += " pip install 'searchlab[cuda-bindings]' reaches the driver without a CUDA toolkit."
    return "note", "driver found, no device reached" if driver else "no GPU", advice


_CHECKS: dict[str, dict[str, Callable[[Path], Found]]] = {
    "machine": {
        "processor": _processor,
        "cores": _cores,
        "vectors": _vectors,
        "caches": _caches,
        "governor": _governor,
        "turbo": _turbo,
        "virtualisation": _virtual,
        "clock": _clock,
    },
    "disturbance": {"load": _load, "core lock": _lock},
    "resources": {"memory": _memory, "disk": _disk},
    "software": {
        "llvm": _llvm,
        "kernel": _kernel,
        "ray": _package("ray", ("ray",), "ray", "measuring on several machines"),
        "torch": _package("torch", ("torch",), "torch", "a library to compare with, and learned models"),
        "onnxruntime": _package("onnxruntime", ("onnxruntime",), "peers", "another library to compare with"),
        "xgboost": _package("xgboost", ("xgboost-cpu", "xgboost"), "models", "cost models of boosted trees"),
        "optuna": _package("optuna", ("optuna",), "bayesian", "Optuna's samplers as strategies"),
        "cuda": _cuda,
    },
}


def summary(checks: list[MachineCheck]) -> dict[str, Any]:
    """The number of checks per state, and whether measuring is possible at all."""
    counts = {state: sum(check.state == state for check in checks) for state in ("ok", "note", "warning", "problem")}
    return {**counts, "can_measure": counts["problem"] == 0}
