"""Detection of this machine: its CPU, the cores available to this process, and the caches."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

# Small enough to be true of nearly every CPU of the last ten years; used where the system hides its caches.
CACHE_DEFAULTS = (32 << 10, 512 << 10, 2 << 20)

_CACHE_DIR = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class HostCpu:
    """This machine: LLVM's names, vector bits and registers, usable cores, bytes of L1, L2 and L3 per core."""

    arch: str
    triple: str
    cpu: str
    features: str
    vectors: tuple[int, int]
    cores: int
    caches: tuple[int, int, int]


def probe() -> HostCpu:
    """Detects this machine."""
    import llvmlite.binding as llvm  # slow to import, and a named target needs it only for its triple

    triple = llvm.get_process_triple()
    arch = {"arm64": "aarch64", "amd64": "x86_64"}.get(triple.split("-")[0], triple.split("-")[0])
    features = llvm.get_host_cpu_features()
    vectors = _vectors(arch, {name for name, on in features.items() if on})
    return HostCpu(arch, triple, llvm.get_host_cpu_name(), features.flatten(), vectors, _cores(), _caches())


def _vectors(arch: str, features: set[str]) -> tuple[int, int]:
    if arch != "x86_64":
        return 128, 32
    # Without VL the narrower forms reach only 16 registers; such CPUs (Knights Landing) are gone.
    if {"avx512f", "avx512vl"} <= features:
        return 512, 32
    return (256, 16) if "avx" in features else (128, 16)


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(cores, _quota(Path("/sys/fs/cgroup/cpu.max"), cores)))


def _quota(path: Path, default: int) -> int:
    # A container limited by quota still sees all cores; threads beyond the quota would only be throttled.
    try:
        quota, period = path.read_text().split()
        return default if quota == "max" else math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return default


def _caches(directory: Path = _CACHE_DIR) -> tuple[int, int, int]:
    found: dict[int, int] = {}
    for entry in sorted(directory.glob("index*")):
        try:
            if (entry / "type").read_text().strip() == "Instruction":
                continue
            level = int((entry / "level").read_text())
            size = _parse_size((entry / "size").read_text().strip())
            found[level] = size // max(1, _count_cpus((entry / "shared_cpu_list").read_text().strip()))
        except (OSError, ValueError):
            continue
    l1, l2, l3 = (found.get(level) or _sysconf_cache(level) or CACHE_DEFAULTS[level - 1] for level in (1, 2, 3))
    return l1, l2, l3


def _sysconf_cache(level: int) -> int:
    try:
        return max(0, os.sysconf(f"SC_LEVEL{level}{'_D' if level == 1 else '_'}CACHE_SIZE"))
    except (ValueError, OSError):
        return 0


def _parse_size(text: str) -> int:
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * scale


def _count_cpus(text: str) -> int:
    ranges = (part.partition("-") for part in text.split(","))
    return sum(int(last or first) - int(first) + 1 for first, _, last in ranges)
