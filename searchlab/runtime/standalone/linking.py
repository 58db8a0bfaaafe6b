"""From object files to a shared library, with any linker that the machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

# Compilers know the location of the C library; a bare linker leaves its symbols to the process that loads the library.
COMPILERS, LINKERS = ("cc", "gcc", "clang"), ("ld.lld", "ld")


def linker() -> list[str] | None:
    """The link command without its files; None if no linker is found."""
    # Worker threads stay inside the code, so a loaded library is never unloaded.
    for name in filter(None, (os.environ.get("CC"), *COMPILERS)):
        if (found := shutil.which(name)) is not None:
            return [found, "-shared", "-pthread", "-Wl,-z,nodelete"]
    for name in LINKERS:
        if (found := shutil.which(name)) is not None:
            return [found, "-shared", "-z", "nodelete"]
    return None


def link(objects: Sequence[Path], library: Path, exports: Path | None = None) -> str:
    """Links a library; returns "" or the reason why it failed.  `exports` is a version script: what others may see."""
    command = linker()
    if command is None:
        return f"no linker found ({', '.join((*COMPILERS, *LINKERS))}): install one, or give CC"
    if exports is not None:
        flag = f"--version-script={exports}"
        command.append(flag if Path(command[0]).name in LINKERS else f"-Wl,{flag}")
    done = subprocess.run([*command, "-o", str(library), *map(str, objects)], capture_output=True, text=True)
    if done.returncode:
        library.unlink(missing_ok=True)
        return f"{command[0]} failed: {' '.join(done.stderr.split())[:300]}"
    return ""
