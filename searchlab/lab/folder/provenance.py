"""The provenance of a run: the machine, package versions, and the revision of the surrounding repository."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from itertools import takewhile
from pathlib import Path
from typing import Any

from searchlab.doctor import examine
from searchlab.targets import detect

_PACKAGES = (
    "searchlab", "numpy", "scipy", "llvmlite", "torch", "onnxruntime", "xgboost-cpu", "xgboost", "optuna", "ray",
    "pydantic",
)  # fmt: skip


@cache
def machine() -> dict[str, Any]:
    """The processor with its caches and vector width, and the doctor's findings."""
    target = detect()
    checks = takewhile(lambda check: check.group == "machine", examine())
    return {
        **target.to_dict(),
        "fingerprint": target.fingerprint(),
        "host": platform.node(),
        "system": platform.platform(),
        **{check.name: check.value for check in checks if check.name not in ("cores", "caches")},
    }


def versions() -> dict[str, str]:
    """The versions of installed packages that affect results."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def revision(folder: Path | None = None) -> str:
    """The commit of the repository that contains a folder, with a plus sign if files differ; empty if there is none."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return ""
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}+" if changed else commit


def _git(folder: Path | None, *words: str) -> str:
    settings = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    command = ["git", *words]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=10, env=settings)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
