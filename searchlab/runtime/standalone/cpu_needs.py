"""Which features of a CPU code needs, and which this one has, by the names that Linux gives them: without LLVM."""

from __future__ import annotations

import re
from pathlib import Path

from searchlab.targets import CpuTarget

_TILES = ("amx-tile", "amx-int8", "amx-bf16")


def cpu_needs(target: CpuTarget, tiles: bool) -> list[str]:
    """The vector extensions that code may use, of those that Linux names as LLVM does; tiles if it uses them."""
    if target.arch != "x86_64":
        return []
    features = target.enabled_features()
    named = [f.replace("-", "") for f in _TILES if f in features and tiles]
    return sorted([*named, *(f for f in features if f in ("fma", "f16c") or re.match(r"avx(?!10|.*-)", f))])


def cpu_flags() -> frozenset[str]:
    """The features in /proc/cpuinfo, without underscores; empty if the file does not exist."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    return frozenset(flag.replace("_", "") for line in lines if line.startswith("flags") for flag in line.split())
