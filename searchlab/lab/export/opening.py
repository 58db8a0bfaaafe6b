"""`searchlab.load`: a callable from an export folder or from the best program of a run."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, create_model

from searchlab import jsonfile
from searchlab.backend import ObjectCode, backend_of, compile
from searchlab.errors import BuildError, ExportError
from searchlab.lab.export import gpu_loader, loader
from searchlab.targets import Target, class_of


def load(path: str | os.PathLike[str], task: str | None = None) -> Any:
    """Loads a kernel that is called with arrays: of an export folder, or the best of a run folder.

    A run with several tasks needs `task`: a label, or an unambiguous part of one.  A family of sizes is one kernel for
    all of them.
    """
    folder = Path(path)
    if (folder / loader.DESCRIPTION).is_file():
        if task is not None:
            raise ExportError(f"{folder} is the export of one kernel: leave out task={task!r}")
        return exported(folder)
    if (folder / "manifest.json").is_file():
        from searchlab.lab.export.finding import best_program
        from searchlab.lab.export.tuned_families import tuned_family

        if (family := tuned_family(folder, task)) is not None:
            return family.kernel
        found = best_program(folder, task)
        return compile(found.program, found.target)
    what = "holds neither kernel.json nor manifest.json" if folder.is_dir() else "does not exist"
    raise ExportError(f"{folder} {what}; expected a folder of `searchlab best --export` or of `searchlab run`")


def exported(folder: Path) -> loader.ExportedKernel | gpu_loader.ExportedGpuKernel:
    """The kernel of an export folder, from its object file if it has no shared library."""
    path = folder / loader.DESCRIPTION
    try:
        about = loader.description(folder)
        jsonfile.parse(path.read_bytes(), _form(about.get("target")))
        target = Target.from_dict(about["target"])
        backend = backend_of(target)
        backend.require(target)
        if "kernels" in about:
            return _on_gpu(folder, target)
        if (folder / loader.LIBRARY).is_file():
            return loader.load(folder)
        code = backend.open_standalone(loader.checked(folder / loader.OBJECT, about), target)
    except OSError as e:
        if not e.filename:  # this CPU cannot run it
            raise
        raise ExportError(f"{e.filename} cannot be read: {e.strerror}; export the kernel again") from e
    except ValueError as e:
        what = str(e) if str(folder) in str(e) else f"{path} is damaged: {e}; export the kernel again"
        raise ExportError(what) from e
    try:
        return _from_object(about, code)
    except BuildError as e:
        raise ExportError(f"{folder / loader.OBJECT} is damaged: {e}; export the kernel again") from e


def _on_gpu(folder: Path, target: Target) -> gpu_loader.ExportedGpuKernel:
    if backend_of(target).emulated:
        raise ExportError(f"{folder} is code for {target.name}, and this machine has no GPU (searchlab list targets)")
    return gpu_loader.load(folder)


def _form(target: object) -> type[BaseModel]:
    """The form of the kernel.json fields that its own loader does not use: a target with the fields of its kind."""
    return create_model("Description", target=(class_of(target if isinstance(target, dict) else {}), ...))


def _from_object(about: dict[str, Any], code: ObjectCode) -> loader.ExportedKernel:
    name = about["function"]
    symbols = [f"{name}_with", f"{name}_scratch"]
    symbols += [f"{name}_pack_{a['name']}" for a in about["inputs"] if a["packed"] is not None]
    addresses = {symbol: code.address(symbol) for symbol in symbols}
    if about["threads"] > 1:
        # the dynamic loader would do this itself; from then on workers stay inside the code
        ctypes.CFUNCTYPE(None)(code.address(f"{name}_setup"))()
        code.keep()
    return loader.ExportedKernel(about, addresses.__getitem__, code)
