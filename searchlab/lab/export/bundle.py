"""Writing a program to a folder that needs neither searchlab nor a compiler to be used."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from searchlab.errors import ExportError
from searchlab.ir.program import Program
from searchlab.lab.export import loader
from searchlab.lab.export.code import ExportCode, identifier
from searchlab.lab.export.header import header
from searchlab.lab.export.linking import link
from searchlab.lab.export.readme import readme
from searchlab.targets import CpuTarget, Target, cpu_of, detect

SCHEMA = 1


@dataclass(frozen=True)
class Exported:
    """A folder that was written; `missing` says why it holds no shared library, if it does not."""

    folder: Path
    code: ExportCode
    missing: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(sorted(p.name for p in self.folder.iterdir()))


def export(
    program: Program,
    target: Target,
    folder: str | os.PathLike[str],
    title: str = "",
    about: Mapping[str, Any] | None = None,
) -> Exported:
    """Writes a program whose knobs have become numbers; `title` names it for people, `about` goes to kernel.json.

    A folder that was exported before is written anew; one that holds anything else is left alone.
    """
    title = title or program.name
    code = ExportCode(identifier(title), program, cpu_of(target))
    path = _prepared(Path(folder))
    _write(path / "program.txt", str(program))
    _write(path / "kernel.ll", code.optimized)
    _write(path / "kernel.s", code.assembly)
    _write(path / loader.OBJECT, code.object)
    _write(path / "kernel.h", header(code, title))
    _write(path / "kernel.py", Path(loader.__file__).read_text(encoding="utf-8"))
    missing = _library(code, path)
    described = _description(code, title, about or {}) | {"sha256": _checksums(path)}
    _write(path / loader.DESCRIPTION, json.dumps(described, indent=1) + "\n")
    _write(path / "README.md", readme(code, title, about or {}, missing))
    return Exported(path, code, missing)


def _prepared(folder: Path) -> Path:
    if folder.exists() and not folder.is_dir():
        raise ExportError(f"{folder}: is a file; exporting needs a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / loader.DESCRIPTION).exists():
        raise ExportError(f"{folder}: contains files that are not an export; choose an empty or a new folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / loader.LIBRARY).unlink(missing_ok=True)  # a process may still have the old one loaded
    except OSError as e:
        raise ExportError(f"{folder}: cannot be written: {e.strerror}") from e
    return folder


def _library(code: ExportCode, folder: Path) -> str:
    host = detect()
    if code.target.arch != host.arch:
        return f"code for {code.target.arch} is linked on such a machine, this one is {host.arch}"
    return link(folder / loader.OBJECT, folder / loader.LIBRARY)


def _checksums(folder: Path) -> dict[str, str]:
    """Of the files whose code is run."""
    files = [path for name in (loader.OBJECT, loader.LIBRARY) if (path := folder / name).exists()]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _description(code: ExportCode, title: str, about: Mapping[str, Any]) -> dict[str, Any]:
    from searchlab.lab.records.identity import toolchain

    shared, stride = code.scratch
    return {
        "schema": SCHEMA,
        "function": code.name,
        "title": title,
        "inputs": [asdict(a) for a in code.inputs],
        "outputs": [asdict(a) for a in code.outputs],
        "threads": code.threads,
        "scratch": {"shared": shared, "per_thread": stride},
        "target": code.target.to_dict(),
        "needs": _needs(code.target),
        "program": code.program.hash,
        "versions": toolchain(),
        **about,
    }


def _needs(target: CpuTarget) -> list[str]:
    """The vector instructions that the code may use, as far as Linux names them in the same way."""
    if target.arch != "x86_64":
        return []
    return sorted(f for f in target.enabled_features() if f in ("fma", "f16c") or re.match(r"avx(?!10|.*-)", f))


def _write(path: Path, content: str | bytes) -> None:
    try:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as e:
        raise ExportError(f"{path}: cannot be written: {e.strerror}") from e
