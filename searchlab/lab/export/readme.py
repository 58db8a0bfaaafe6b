"""The README of an exported kernel: a description, and usage from Python and from C."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from searchlab.backend import Argument, Package, Standalone
from searchlab.dtype import DTYPES
from searchlab.targets import Target


def readme(code: Standalone, title: str, about: Mapping[str, Any], missing: str) -> str:
    """The text of README.md."""
    return "\n\n".join(
        [
            f"# {title}",
            _origin(_about_code(code), about),
            _files(missing),
            _python(code) if not missing else f"There is no shared library here: {missing}.",
            _c(code),
        ]
    )


def package_readme(package: Package, target: Target, title: str, about: Mapping[str, Any]) -> str:
    """The same for machines whose code is no C library."""
    rows = {**package.about, "program.txt": "the loops", "kernel.json": "arguments, target, origin"}
    first = f"A kernel for {target.name}, found by searchlab."
    parts = [f"# {title}", _origin(first, about), _table(rows.items())]
    if package.missing:
        parts.append(f"Note: {package.missing}.")
    return "\n\n".join([*parts, package.usage]) + "\n"


def _about_code(code: Standalone) -> str:
    threads = f"{code.threads} thread{'s' * (code.threads > 1)}"
    return f"A kernel for {code.target.name} ({code.architecture}), {threads}, found by searchlab."


def _origin(first: str, about: Mapping[str, Any]) -> str:
    lines = [first]
    if seconds := about.get("seconds"):
        lines.append(f"Measured when it was found: {seconds * 1e3:.4g} ms.")
    if about.get("origin") == "default":
        lines.append("It is the default schedule, which was faster than what the search found.")
    elif point := about.get("point"):
        lines.append(f"Point of the space: `{point}`.")
    return "\n".join(lines)


def _files(missing: str) -> str:
    rows = [
        ("kernel.py", "loader for Python: needs numpy only"),
        ("libkernel.so", "the kernel as a shared library"),
        ("kernel.o, kernel.h", "the kernel as an object file, and its C header"),
        ("kernel.ll, kernel.s", "the same as LLVM IR and as assembly, for reading"),
        ("program.txt", "the loops"),
        ("kernel.json", "arguments, target, origin"),
    ]
    kept = [row for row in rows if not (missing and row[0] == "libkernel.so")]
    return _table(kept)


def _table(rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join(["| file | holds |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows)])


def _python(code: Standalone) -> str:
    names = ", ".join(a.name for a in code.inputs)
    packed = [a.name for a in code.inputs if a.packed is not None]
    lines = ["From Python:", "", "```python", "from kernel import load", "", "kernel = load()"]
    lines.append(f"{', '.join(a.name for a in code.outputs)} = kernel({names})")
    if packed:
        bound = ", ".join(f"{n}={n}" for n in packed)
        lines.append(f"fast = kernel.bind({bound})    # packed once, for inputs that stay the same")
    return "\n".join([*lines, "```"])


def _c(code: Standalone) -> str:
    lines = ["From C (`kernel.h` says what each argument is):", "", "```c", *_main(code), "```", ""]
    lines += ["```sh", "cc -O2 main.c kernel.o -o main -pthread", "```"]
    text = "\n".join(lines)
    if code.parallel:
        workers = "a worker" if code.threads == 2 else f"{code.threads - 1} workers"
        text += f"\n\nThe kernel brings its own thread pool: {workers} beside the caller, started at the first call."
    return text + "\n"


def _main(code: Standalone) -> list[str]:
    """A program that calls the kernel on arrays of zeros."""
    packed = [a for a in code.inputs if a.packed is not None]
    arrays = [*((a.name, a.dtype, a.shape) for a in (*code.inputs, *code.outputs))]
    arrays += [(f"{a.name}_packed", a.held or a.dtype, a.packed) for a in packed if a.packed is not None]
    lines = ["#include <stdlib.h>", '#include "kernel.h"', "", "int main(void) {"]
    for name, dtype, shape in arrays:
        lines.append(f"    static _Alignas(64) {DTYPES[dtype].c} {name}{''.join(f'[{n}]' for n in shape)};")
    lines += [
        "    /* fill the inputs */",
        *(f"    {code.name}_pack_{a.name}({_at(a)}, {_at(a, True)});" for a in packed),
    ]
    passed = ", ".join([*(_at(a, a.packed is not None) for a in code.inputs), *(_at(a) for a in code.outputs)])
    return [*lines, f"    return {code.name}({passed});", "}"]


def _at(a: Argument, packed: bool = False) -> str:
    shape = a.packed if packed and a.packed is not None else a.shape
    return f"&{a.name}{'_packed' * packed}{'[0]' * len(shape)}"
