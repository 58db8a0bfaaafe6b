"""Writes a program to a folder that can be used without searchlab or a compiler."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from searchlab.backend import Package, Standalone, backend_of
from searchlab.errors import ExportError
from searchlab.ir.program import Program
from searchlab.lab.export import gpu_loader, loader
from searchlab.lab.export.header import header
from searchlab.lab.export.readme import package_readme, readme
from searchlab.lab.records.identity import toolchain
from searchlab.runtime.standalone.linking import link
from searchlab.targets import Target

SCHEMA = 1
_LONGEST = 64


def identifier(text: str) -> str:
    """A text as a name of C, a file or a folder: `matmul(m=64, n=64)` is `matmul_m64_n64`."""
    found = re.sub(r"[^0-9A-Za-z]+", "_", text.replace("=", "")).strip("_") or "kernel"
    if len(found) > _LONGEST:
        found = f"{found[: _LONGEST - 9].rstrip('_')}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return f"k_{found}" if found[0].isdigit() else found


@dataclass(frozen=True)
class Exported:
    """An exported folder; `missing` is the reason why it lacks machine code that is ready to load, if so."""

    folder: Path
    code: Standalone | Package
    missing: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files in the folder."""
        return tuple(sorted(p.name for p in self.folder.iterdir()))


def export(
    program: Program,
    target: Target,
    folder: str | os.PathLike[str],
    title: str = "",
    about: Mapping[str, Any] | None = None,
) -> Exported:
    """Writes a program without free knobs; `title` is its readable name, `about` goes to kernel.json.

    An earlier export is overwritten; a folder with any other contents is refused.
    """
    title = title or program.name
    backend, name = backend_of(target), identifier(title)
    package = backend.package(name, program, target, title)
    if package is not None:
        return _packaged(package, program, target, _prepared(Path(folder)), title, about or {})
    code = backend.standalone(name, program, target)
    path = _prepared(Path(folder))
    _write(path / "program.txt", str(program))
    for name, text in code.listings.items():
        _write(path / name, text)
    _write(path / loader.OBJECT, code.object)
    _write(path / "kernel.h", header(code, title))
    _write(path / "kernel.py", Path(loader.__file__).read_text(encoding="utf-8"))
    missing = _library(code, path)
    described = _description(code, title, about or {}) | {"sha256": _checksums(path)}
    _write(path / loader.DESCRIPTION, json.dumps(described, indent=1) + "\n")
    _write(path / "README.md", readme(code, title, about or {}, missing))
    return Exported(path, code, missing)


def _packaged(
    package: Package, program: Program, target: Target, folder: Path, title: str, about: Mapping[str, Any]
) -> Exported:
    """Writes the files of another kind of machine."""
    files = {"program.txt": str(program), **package.files}
    if "kernels" in package.description:
        files["kernel.py"] = Path(gpu_loader.__file__).read_text(encoding="utf-8")
    for name, content in files.items():
        _write(folder / name, content)
    described = {
        "schema": SCHEMA,
        "function": package.name,
        "title": title,
        "inputs": [asdict(a) for a in package.inputs],
        "outputs": [asdict(a) for a in package.outputs],
        "threads": target.threads,
        "needs": [],
        "target": target.to_dict(),
        "program": program.hash,
        "versions": toolchain(target),
        **package.description,
        **about,
        "sha256": {name: _digest(folder / name) for name in package.files},
    }
    _write(folder / loader.DESCRIPTION, json.dumps(described, indent=1) + "\n")
    _write(folder / "README.md", package_readme(package, target, title, about))
    return Exported(folder, package, package.missing)


def _prepared(folder: Path) -> Path:
    if folder.exists() and not folder.is_dir():
        raise ExportError(f"{folder}: is a file; exporting needs a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / loader.DESCRIPTION).exists():
        raise ExportError(f"{folder}: contains files that are not an export; choose an empty or a new folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / loader.LIBRARY).unlink(missing_ok=True)  # a process may still have the old library loaded
    except OSError as e:
        raise ExportError(f"{folder}: cannot be written: {e.strerror}") from e
    return folder


def _library(code: Standalone, folder: Path) -> str:
    return code.linkable or link([folder / loader.OBJECT], folder / loader.LIBRARY)


def _checksums(folder: Path) -> dict[str, str]:
    """Checksums of the files that contain executable code."""
    files = [path for name in (loader.OBJECT, loader.LIBRARY) if (path := folder / name).exists()]
    return {path.name: _digest(path) for path in files}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _description(code: Standalone, title: str, about: Mapping[str, Any]) -> dict[str, Any]:
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
        "needs": code.needs,
        "permission": code.permission,
        "program": code.program.hash,
        "versions": toolchain(code.target),
        **about,
    }


def _write(path: Path, content: str | bytes) -> None:
    try:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as e:
        raise ExportError(f"{path}: cannot be written: {e.strerror}") from e
