"""CPUs as targets: instruction set, vectors, cores and caches, of this machine or of a named one.

The environment variable SEARCHLAB_CPU limits the instruction set used here, so that one machine can act as lesser ones.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

from searchlab.dtype import DTYPES
from searchlab.errors import TargetError
from searchlab.targets import host
from searchlab.targets.target import Target, kinds

CAP = "SEARCHLAB_CPU"
NATIVE = "native"

_V2 = "+64bit,+cmov,+cx8,+cx16,+fxsr,+mmx,+popcnt,+sahf,+sse,+sse2,+sse3,+sse4.1,+sse4.2,+ssse3"
_V3 = _V2 + ",+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave"
_V4 = _V3 + ",+avx512bw,+avx512cd,+avx512dq,+avx512f,+avx512vl"
_NEON = "+neon,+fp-armv8"
_DOT = _NEON + ",+dotprod,+fullfp16"
_INT8 = _DOT + ",+i8mm,+bf16"
# name -> (arch, features, vector bits, vector registers); the name is LLVM's, the features are what can be checked.
_CPUS = {
    "x86-64-v2": ("x86_64", _V2, 128, 16),
    "x86-64-v3": ("x86_64", _V3, 256, 16),
    "x86-64-v4": ("x86_64", _V4, 512, 32),
    "neoverse-n1": ("aarch64", _NEON, 128, 32),
    "apple-m1": ("aarch64", _NEON, 128, 32),
}
# CPUs of other architectures by the name of these, `{arm: cortex-a72}`: code for them is compiled and exported here.
# Vectors are those of NEON, whose length is fixed; longer ones of SVE are not used.
_ARM = {
    **{name: cpu for name, cpu in _CPUS.items() if cpu[0] == "aarch64"},
    "cortex-a53": ("aarch64", _NEON, 128, 32),
    "cortex-a72": ("aarch64", _NEON, 128, 32),
    "cortex-a76": ("aarch64", _DOT, 128, 32),
    "cortex-a78": ("aarch64", _DOT, 128, 32),
    "neoverse-n2": ("aarch64", _INT8, 128, 32),
    "neoverse-v1": ("aarch64", _INT8, 128, 32),
}
WASM = "wasm32"
_GENERIC = "generic"  # LLVM's name of a processor without one
_WASM = {_GENERIC: (WASM, "+simd128,+bulk-memory,+sign-ext,+nontrapping-fptoint,+mutable-globals", 128, 16)}
_ARCHITECTURES = {"arm": _ARM, "wasm": _WASM}
_EVERY = {**_CPUS, **_ARM, **_WASM}


@dataclass(frozen=True, slots=True)
class CpuTarget(Target):
    """A CPU. Cache sizes are bytes per core: a cache shared by k cores counts as its k-th part.

    `cores` is the number available to the process, `threads` the number a kernel may use (1 <= threads <= cores).
    """

    kind: ClassVar[str] = "cpu"
    backend: ClassVar[str] = "searchlab.runtime.cpu_backend:CpuBackend"
    of_process: ClassVar[frozenset[str]] = frozenset({"cores"})

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

    @property
    def name(self) -> str:
        """LLVM's name of the CPU; where it has none, that of the architecture."""
        return self.arch if self.cpu == _GENERIC else self.cpu

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """This machine, and CPUs whose description is the same everywhere."""
        return (NATIVE, *_CPUS, *_ARCHITECTURES)

    @classmethod
    def named(cls, name: str, options: Mapping[str, Any]) -> CpuTarget:
        """This machine or a named CPU with a number of threads.

        A named CPU has as many cores as threads, one by default, so its description is the same everywhere.
        """
        known = ("cpu", "threads") if name in _ARCHITECTURES else ("threads",)
        if unknown := set(options) - set(known):
            told = f"unknown option {sorted(unknown)[0]!r}; known: {', '.join(known)}"
            raise TargetError(f"target {name!r}: {told}")
        if name in _ARCHITECTURES:
            name = _processor(name, options.get("cpu"))
        threads = _thread_count(name, options["threads"]) if "threads" in options else None
        if name == _GENERIC and threads not in (None, 1):
            raise TargetError(f"target 'wasm': kernels run in one thread, not in {threads}")
        return detect(threads) if name == NATIVE else _named(name, threads or 1)

    def lanes(self, dtype: str) -> int:
        """How many values of `dtype` one vector register holds."""
        if dtype not in DTYPES:
            raise TargetError(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")
        return self.vector_bits // DTYPES[dtype].bits

    def with_threads(self, threads: int) -> CpuTarget:
        """The same machine with kernels limited to `threads` threads."""
        return replace(self, threads=threads)

    def enabled_features(self) -> frozenset[str]:
        """The CPU features that generated code may rely on (those passed to LLVM with a plus sign)."""
        return frozenset(feature[1:] for feature in self.features.split(",") if feature.startswith("+"))

    def __str__(self) -> str:
        caches = ", ".join(f"L{i} {_bytes(size)}" for i, size in enumerate((self.l1, self.l2, self.l3), 1))
        vectors = f"{self.vector_registers} x {self.vector_bits}-bit vectors"
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        return f"{self.name} ({self.arch}): {vectors}, {threads} on {cores}, {caches}"


kinds.add(CpuTarget, CpuTarget.kind)


def cpu_of(target: Target) -> CpuTarget:
    """The target as a CPU, for code that supports nothing else."""
    if not isinstance(target, CpuTarget):
        raise TargetError(f"{target.name} is a target of kind {target.kind!r}; this works for CPUs only")
    return target


def detect(threads: int | None = None) -> CpuTarget:
    """This machine, limited to SEARCHLAB_CPU if set; `threads` defaults to all cores that the process may use."""
    found = _capped(cap())
    return found if threads is None else found.with_threads(threads)


def cap() -> str:
    """The CPU named by SEARCHLAB_CPU; empty if this machine is not limited."""
    name = os.environ.get(CAP, "").strip()
    return "" if name == NATIVE else name


def offered() -> tuple[str, ...]:
    """The named CPUs whose code this machine can run, and that it can therefore be limited to."""
    return tuple(name for name in _CPUS if not _lacks(name))


@cache
def _host() -> CpuTarget:
    """This machine without any limit."""
    found = host.probe()
    return CpuTarget(
        found.arch, found.triple, found.cpu, found.features, *found.vectors, found.cores, found.cores, *found.caches
    )


@cache
def _capped(name: str) -> CpuTarget:
    """This machine with the instructions, vectors and registers of a named CPU, but its own cores and caches."""
    whole = _host()
    if not name:
        return whole
    if name not in _CPUS:
        close = difflib.get_close_matches(name, offered(), n=1, cutoff=0.0)
        hint = f"; did you mean {close[0]!r}?" if close else ";"
        raise TargetError(f"{CAP}={name}: unknown CPU{hint} accepted here: native, {', '.join(offered())}")
    if lacks := _lacks(name):
        accepted = ", ".join((NATIVE, *offered()))
        raise TargetError(f"{CAP}={name}: this {whole.cpu} lacks {', '.join(lacks)}; accepted here: {accepted}")
    _, features, bits, registers = _CPUS[name]
    return replace(whole, cpu=name, features=features, vector_bits=bits, vector_registers=registers)


def _lacks(name: str) -> list[str]:
    """The features that code for a named CPU requires and this machine lacks."""
    arch, features, _, _ = _CPUS[name]
    whole = _host()
    if arch != whole.arch:
        return [f"the instructions of {arch}"]
    return sorted({f[1:] for f in features.split(",")} - whole.enabled_features())


def _processor(architecture: str, name: Any) -> str:
    """The name of a processor of an architecture, the first of its list by default."""
    names = _ARCHITECTURES[architecture]
    if name is None:
        return next(iter(names))
    if name not in names:
        raise TargetError(f"target {architecture!r}: unknown CPU {name!r}; known: {', '.join(names)}")
    return str(name)


def _named(name: str, threads: int) -> CpuTarget:
    arch, features, bits, registers = _EVERY[name]
    whole = _host()  # for its triple only, which no limit changes
    system = "unknown" if arch == WASM else "linux-gnu"
    triple = whole.triple if whole.arch == arch else f"{arch}-unknown-{system}"
    return CpuTarget(arch, triple, name, features, bits, registers, threads, threads, *host.CACHE_DEFAULTS)


def _thread_count(name: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise TargetError(f"target {name!r}: threads must be an integer, got {value!r}") from None


def _bytes(size: int) -> str:
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.4g} {unit}"
    return f"{size} B"
