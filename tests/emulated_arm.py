"""Kernels for ARM on any machine: exported, linked with a small C program, and run by an emulator of user programs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from searchlab.backend import Argument
from searchlab.dtype import DTYPES
from searchlab.ir.program import Program
from searchlab.lab.export.header import header
from searchlab.runtime.standalone.code import CpuStandalone
from searchlab.targets import CpuTarget, cpu_of
from searchlab.targets.target import parse

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
MISSING = [tool for tool in (COMPILER, EMULATOR) if shutil.which(tool) is None]
INSTALL = "apt-get install qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
Arrays = dict[str, np.ndarray]


def arm(*features: str, threads: int = 1) -> CpuTarget:
    """A CPU of ARM with further features."""
    target = cpu_of(parse("neoverse-n1"))
    more = ",".join([target.features, *(f"+{f}" for f in features)])
    return replace(target, features=more, cores=threads, threads=threads)


class EmulatedKernel:
    """A program for ARM; a call runs it in a process of its own."""

    def __init__(self, program: Program, target: CpuTarget, folder: Path) -> None:
        self.code, self.folder = CpuStandalone("kernel", program, target), folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kernel.h").write_text(header(self.code, program.name))
        (folder / "kernel.o").write_bytes(self.code.object)
        (folder / "main.c").write_text(main_text(self.code.inputs, self.code.outputs))
        command = [COMPILER, "-static", "-O1", "-Werror", "main.c", "kernel.o", "-o", "main", "-pthread"]
        subprocess.run(command, cwd=folder, check=True)

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """The outputs, by name."""
        given = b"".join(np.ascontiguousarray(inputs[a.name]).tobytes() for a in self.code.inputs)
        command = [EMULATOR, "-cpu", "max", str(self.folder / "main")]
        done = subprocess.run(command, input=given, capture_output=True, timeout=120)
        assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr.decode()}"
        made, outputs = done.stdout, {}
        for a in self.code.outputs:
            size = int(np.prod(a.shape, dtype=int)) * DTYPES[a.dtype].bits // 8
            held = "uint16" if a.dtype == "bfloat16" else a.dtype
            outputs[a.name], made = np.frombuffer(made[:size], held).reshape(a.shape), made[size:]
        assert not made
        return outputs


def main_text(inputs: Sequence[Argument], outputs: Sequence[Argument]) -> str:
    """A program that reads the inputs, in order, from its standard input and writes the outputs."""
    lines = ['#include "kernel.h"', "#include <stdio.h>", "int main(void) {"]
    for a in (*inputs, *outputs):
        lines.append(f"  static _Alignas(64) {DTYPES[a.dtype].c} {a.name}[{np.prod(a.shape, dtype=int)}];")
    for a in inputs:
        lines.append(f"  if (fread({a.name}, sizeof {a.name}, 1, stdin) != 1) return 2;")
        if a.packed is not None:
            held = DTYPES[a.held or a.dtype].c
            lines.append(f"  static _Alignas(64) {held} {a.name}_there[{np.prod(a.packed, dtype=int)}];")
            lines.append(f"  kernel_pack_{a.name}({a.name}, {a.name}_there);")
    passed = [f"{a.name}{'_there' if a.packed is not None else ''}" for a in (*inputs, *outputs)]
    lines.append(f"  if (kernel({', '.join(passed)}) != 0) return 3;")
    lines += [f"  if (fwrite({a.name}, sizeof {a.name}, 1, stdout) != 1) return 4;" for a in outputs]
    return "\n".join([*lines, "  return 0;", "}", ""])
