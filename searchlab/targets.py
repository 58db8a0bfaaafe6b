"""What a machine is, as far as generated code and search spaces care: instruction set, vectors, cores, caches.

A `Target` is a plain value: printable, hashable, JSON-able, so it can key caches and travel to another machine.  The
environment variable SEARCHLAB_CPU caps what this machine is taken for, so that one machine stands for lesser ones.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from searchlab.errors import TargetError

_DTYPE_BITS = {
    "float64": 64, "float32": 32, "float16": 16, "bfloat16": 16,
    "int64": 64, "int32": 32, "int16": 16, "int8": 8, "uint64": 64, "uint32": 32, "uint16": 16, "uint8": 8, "bool": 8,
}  # fmt: skip

CAP = "SEARCHLAB_CPU"

_CACHE_DIR = Path("/sys/devices/system/cpu/cpu0/cache")
# Small enough to be true of nearly every CPU of the last ten years; used where the system hides its caches.
_CACHE_DEFAULTS = (32 << 10, 512 << 10, 2 << 20)

_V2 = "+64bit,+cmov,+cx8,+cx16,+fxsr,+mmx,+popcnt,+sahf,+sse,+sse2,+sse3,+sse4.1,+sse4.2,+ssse3"
_V3 = _V2 + ",+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave"
_V4 = _V3 + ",+avx512bw,+avx512cd,+avx512dq,+avx512f,+avx512vl"
_NEON = "+neon,+fp-armv8"
# name -> (arch, features, vector bits, vector registers); the name is LLVM's, the features make the needs checkable.
_CPUS = {
    "x86-64-v2": ("x86_64", _V2, 128, 16),
    "x86-64-v3": ("x86_64", _V3, 256, 16),
    "x86-64-v4": ("x86_64", _V4, 512, 32),
    "neoverse-n1": ("aarch64", _NEON, 128, 32),
    "apple-m1": ("aarch64", _NEON, 128, 32),
}


@dataclass(frozen=True, slots=True)
class Target:
    """A machine. Cache sizes are bytes per core: a cache shared by k cores counts as its k-th part.

    `cores` is what the process may use, `threads` what a kernel may use of it (1 <= threads <= cores).
    """

    arch: str
    triple: str
    cpu: str
    features: str
    vector_bits: int
    vector_registers: int
    cores: int
    threads: int
    l1: int
    l2: int
    l3: int

    def __post_init__(self) -> None:
        if not 1 <= self.threads <= self.cores:
            raise TargetError(f"{self.cpu}: threads must be 1 to {self.cores}, the number of cores, not {self.threads}")

    def lanes(self, dtype: str) -> int:
        """How many values of `dtype` one vector register holds."""
        if dtype not in _DTYPE_BITS:
            raise TargetError(f"unknown dtype {dtype!r}; known: {', '.join(_DTYPE_BITS)}")
        return self.vector_bits // _DTYPE_BITS[dtype]

    def with_threads(self, threads: int) -> Target:
        """The same machine with kernels limited to `threads` threads."""
        return replace(self, threads=threads)

    def enabled_features(self) -> frozenset[str]:
        """The CPU features generated code may rely on (those LLVM is told with a plus sign)."""
        return frozenset(feature[1:] for feature in self.features.split(",") if feature.startswith("+"))

    def fingerprint(self) -> str:
        """Twelve hex digits that depend on all that code depends on: not on the cores that this process may use."""
        fields_of_code = {name: value for name, value in self.to_dict().items() if name != "cores"}
        text = json.dumps(fields_of_code, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """A dictionary of plain values, for JSON; `from_dict` is the inverse."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Target:
        """The target `to_dict` described; unknown and missing fields are refused."""
        names = {field.name for field in fields(cls)}
        if wrong := names.symmetric_difference(data):
            raise TargetError(f"target description: missing or unknown {sorted(wrong)}; expected {sorted(names)}")
        return cls(**data)

    def __str__(self) -> str:
        caches = ", ".join(f"L{i} {_bytes(size)}" for i, size in enumerate((self.l1, self.l2, self.l3), 1))
        vectors = f"{self.vector_registers} x {self.vector_bits}-bit vectors"
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        return f"{self.cpu} ({self.arch}): {vectors}, {threads} on {cores}, {caches}"


def detect(threads: int | None = None) -> Target:
    """This machine, no more than SEARCHLAB_CPU if that is set; `threads` defaults to every core the process may use."""
    host = _capped(cap())
    return host if threads is None else host.with_threads(threads)


def cap() -> str:
    """The CPU that SEARCHLAB_CPU names; empty if this machine is taken as it is."""
    name = os.environ.get(CAP, "").strip()
    return "" if name == "native" else name


def offered() -> tuple[str, ...]:
    """The named CPUs whose code this machine can run, which are those that it can be capped to."""
    return tuple(name for name in _CPUS if not _lacks(name))


def parse(spec: str | Mapping[str, Any] | Target) -> Target:
    """The target a user means: `"native"`, `"native:threads=2"`, `"x86-64-v3"`, or `{"native": {"threads": 2}}`.

    A named CPU has as many cores as it is given threads, one by default, so its description is the same everywhere.
    """
    if isinstance(spec, Target):
        return spec
    name, options = _split(spec)
    if unknown := set(options) - {"threads"}:
        raise TargetError(f"target {name!r}: unknown option {sorted(unknown)[0]!r}; known: threads")
    threads = _thread_count(name, options["threads"]) if "threads" in options else None
    if name == "native":
        return detect(threads)
    if name not in _CPUS:
        close = difflib.get_close_matches(name, known(), n=1, cutoff=0.0)
        raise TargetError(f"unknown target {name!r}; did you mean {close[0]!r}? known: {', '.join(known())}")
    return _named(name, threads or 1)


def known() -> tuple[str, ...]:
    """The names `parse` understands."""
    return ("native", *_CPUS)


def _split(spec: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(spec, str):
        name, _, rest = spec.partition(":")
        pairs = [item.partition("=") for item in rest.split(",") if item]
        return name.strip(), {key.strip(): value.strip() for key, _, value in pairs}
    if len(spec) != 1:
        raise TargetError(f"a target is one name with its options, got {dict(spec)!r}")
    ((name, options),) = spec.items()
    return name, dict(options or {})


def _thread_count(name: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise TargetError(f"target {name!r}: threads must be an integer, got {value!r}") from None


def _named(name: str, threads: int) -> Target:
    arch, features, bits, registers = _CPUS[name]
    host = _host()  # its triple only, which no cap changes
    triple = host.triple if host.arch == arch else f"{arch}-unknown-linux-gnu"
    l1, l2, l3 = _CACHE_DEFAULTS
    return Target(arch, triple, name, features, bits, registers, threads, threads, l1, l2, l3)


@cache
def _capped(name: str) -> Target:
    """This machine with the instructions, vectors and registers of a named CPU, but its own cores and caches."""
    host = _host()
    if not name:
        return host
    if name not in _CPUS:
        close = difflib.get_close_matches(name, offered(), n=1, cutoff=0.0)
        hint = f"; did you mean {close[0]!r}?" if close else ";"
        raise TargetError(f"{CAP}={name}: unknown CPU{hint} accepted here: native, {', '.join(offered())}")
    if lacks := _lacks(name):
        accepted = ", ".join(("native", *offered()))
        raise TargetError(f"{CAP}={name}: this {host.cpu} lacks {', '.join(lacks)}; accepted here: {accepted}")
    _, features, bits, registers = _CPUS[name]
    return replace(host, cpu=name, features=features, vector_bits=bits, vector_registers=registers)


def _lacks(name: str) -> list[str]:
    """What code for a named CPU needs and this machine does not have."""
    arch, features, _, _ = _CPUS[name]
    host = _host()
    if arch != host.arch:
        return [f"the instructions of {arch}"]
    return sorted({f[1:] for f in features.split(",")} - host.enabled_features())


@cache
def _host() -> Target:
    """This machine as it is."""
    import llvmlite.binding as llvm

    triple = llvm.get_process_triple()
    arch = {"arm64": "aarch64", "amd64": "x86_64"}.get(triple.split("-")[0], triple.split("-")[0])
    features = llvm.get_host_cpu_features()
    bits, registers = _vectors(arch, {name for name, on in features.items() if on})
    cores = _cores()
    l1, l2, l3 = _caches()
    return Target(arch, triple, llvm.get_host_cpu_name(), features.flatten(), bits, registers, cores, cores, l1, l2, l3)


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
    l1, l2, l3 = (found.get(level) or _sysconf_cache(level) or _CACHE_DEFAULTS[level - 1] for level in (1, 2, 3))
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


def _bytes(size: int) -> str:
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.4g} {unit}"
    return f"{size} B"
