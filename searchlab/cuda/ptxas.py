"""NVIDIA's assembler: what one kernel needs of a multiprocessor, and its machine code, from PTX and an architecture.

    made = assemble(kernel.text, "sm_80")       # raises BuildError where ptxas is missing or refuses the text
    made.registers, made.spills, made.shared, made.cubin

`ptxas` is looked for on PATH, then in the toolkit that CUDA_HOME or CUDA_PATH names, then in wheels (nvidia-cuda-nvcc).
It runs anywhere, without a GPU and without a driver.  `find_ptxas()` is None where there is none.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from searchlab.errors import BuildError

_NAME = "ptxas"
_HOMES = ("CUDA_HOME", "CUDA_PATH")
_SECONDS = 120  # for one kernel: unrolled ones have taken ten
_COUNTS = {
    "stack": r"(\d+) bytes stack frame",
    "spill_stores": r"(\d+) bytes spill stores",
    "spill_loads": r"(\d+) bytes spill loads",
    "registers": r"Used (\d+) registers",
    "barriers": r"used (\d+) barriers",
    "shared": r"(\d+) bytes smem",
}


@dataclass(frozen=True)
class AssembledKernel:
    """A kernel as machine code, and what it uses: registers and bytes of stack of a thread, shared bytes of a block.

    `shared` is what the PTX declares; memory that is asked for at launch is not in it.  Spills are bytes that a thread
    writes to and reads from memory because registers do not suffice.
    """

    entry: str
    arch: str
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int
    barriers: int
    cubin: bytes

    @property
    def spills(self) -> int:
        """Bytes written and read because registers do not suffice."""
        return self.spill_stores + self.spill_loads


def find_ptxas() -> Path | None:
    """The assembler of this machine."""
    return _found(os.environ.get("PATH", ""), *(os.environ.get(name, "") for name in _HOMES))


@cache
def _found(path: str, *homes: str) -> Path | None:
    folders = [Path(home, "bin") for home in homes if home]
    wheels = find_spec("nvidia")
    for root in wheels.submodule_search_locations or () if wheels else ():
        folders += sorted(Path(root).glob("*/bin"))
    places = os.pathsep.join([path, *map(str, folders)])
    found = shutil.which(_NAME, path=places)
    return Path(found) if found else None


def assemble(text: str, arch: str) -> AssembledKernel:
    """The only kernel of a PTX module as machine code for an architecture, which must be no older than its target."""
    tool = find_ptxas()
    if tool is None:
        raise BuildError(
            "ptxas is not found: install the CUDA toolkit and put it on PATH or into CUDA_HOME, or the wheel "
            "nvidia-cuda-nvcc"
        )
    with tempfile.TemporaryDirectory(prefix="searchlab-ptxas-") as folder:
        source, made = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(text)
        said = _run([str(tool), "--verbose", f"--gpu-name={arch}", str(source), f"--output-file={made}"], text, arch)
        cubin = made.read_bytes()
    entries = re.findall(r"Compiling entry function '(\w+)'", said)
    if len(entries) != 1:
        raise BuildError(f"a PTX module with one kernel is needed, this one has {len(entries)}: {', '.join(entries)}")
    counts = {name: _count(pattern, said) for name, pattern in _COUNTS.items()}
    return AssembledKernel(entries[0], arch, **counts, cubin=cubin)


def _run(command: list[str], text: str, arch: str) -> str:
    """What the assembler says of a kernel that it accepts."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise BuildError(f"ptxas did not finish a kernel for {arch} within {_SECONDS} s") from None
    if done.returncode:
        raise BuildError(f"ptxas refuses the kernel for {arch}: {_explained(done.stdout + done.stderr, text)}")
    return done.stdout + done.stderr


def _explained(said: str, text: str) -> str:
    """The first error with the line that it is about."""
    located = re.search(r"line (\d+); (?:error|fatal)\s*:\s*(.*)", said)
    if located is None:
        plain = re.search(r"(?:error|fatal)\s*:\s*(.*)", said)
        return plain[1] if plain else " ".join(said.split())
    lines, number = text.splitlines(), int(located[1])
    source = lines[number - 1].strip() if number <= len(lines) else "end of text"
    return f"{located[2]} (line {number}: {source})"


def _count(pattern: str, said: str) -> int:
    found = re.search(pattern, said)
    return int(found[1]) if found else 0
