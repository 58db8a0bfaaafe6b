"""The identity of a measurement: the program, its inputs, the machine, the compiler and the timing protocol."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from searchlab.lab.records.text import digest

if TYPE_CHECKING:
    from searchlab.backend import Backend
    from searchlab.measure.job import Job
    from searchlab.targets import Target

SOURCES = (".py", ".ll")  # the suffixes of files that machine code is made from


def reuse_key(
    program: str, task: str, seed: int, target: str, toolchain: Mapping[str, Any], protocol: Mapping[str, Any]
) -> str:
    """Sixteen hex digits; measurements with equal keys are interchangeable."""
    return digest([program, task, seed, target, toolchain, protocol])


def job_key(job: Job) -> str:
    """The key of measurements of this job."""
    target, protocol = fingerprint(job.target), asdict(job.protocol)
    return reuse_key(program_hash(job), job.workload.key, job.seed, target, toolchain(job.target), protocol)


def program_hash(job: Job) -> str:
    """The hash of the program that a job measures, built or not."""
    if job.program is not None:
        return job.program.hash
    assert job.artifact is not None  # a job has either a program or an artifact
    return job.artifact.program.hash


@lru_cache(maxsize=64)
def fingerprint(target: Target) -> str:
    """The target's fingerprint, cached because it is slow to compute."""
    return target.fingerprint()


def toolchain(target: Target | None = None) -> dict[str, str]:
    """Versions of everything that turns a program into code for a target, by default this machine.

    The version of searchlab would not reveal a modified code generator, so its sources are hashed, too.
    """
    from searchlab.backend import backend_of  # slow to import, and not needed to read records
    from searchlab.targets import detect

    return _toolchain(backend_of(target or detect()))


@cache
def _toolchain(backend: Backend) -> dict[str, str]:
    return {"searchlab": version("searchlab"), "codegen": _sources(*backend.sources()), **backend.versions()}


def version(package: str) -> str:
    """The version of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return "0+unknown"


def _sources(*places: Path) -> str:
    found = hashlib.sha256()
    files = (path for place in places for path in (place.rglob("*.*") if place.is_dir() else (place,)))
    for path in sorted(path for path in files if path.suffix in SOURCES):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:12]
