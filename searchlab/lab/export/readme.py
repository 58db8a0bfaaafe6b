"""The README of an exported kernel: what it is, and how it is called from Python and from C."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from searchlab.lab.export.code import Code


def readme(code: Code, title: str, about: Mapping[str, Any], missing: str) -> str:
    """The text of README.md."""
    return "\n\n".join(
        [
            f"# {title}",
            _origin(code, about),
            _files(missing),
            _python(code) if not missing else f"There is no shared library here: {missing}.",
            _c(code),
        ]
    )


def _origin(code: Code, about: Mapping[str, Any]) -> str:
    threads = f"{code.threads} thread{'s' * (code.threads > 1)}"
    lines = [f"A kernel for {code.target.cpu} ({code.target.arch}), {threads}, found by searchlab."]
    if seconds := about.get("seconds"):
        lines.append(f"Measured when it was found: {seconds * 1e3:.4g} ms.")
    if point := about.get("point"):
        lines.append(f"Point of the space: `{point}`.")
    return "\n".join(lines)


def _files(missing: str) -> str:
    rows = [
        ("kernel.py", "loader for Python: needs numpy only"),
        ("libkernel.so", "the kernel as a shared library"),
        ("kernel.o, kernel.h", "the kernel as an object file, and its C header"),
        ("kernel.ll, kernel.s", "the same as LLVM IR and as assembly, to be read"),
        ("program.txt", "the loops"),
        ("kernel.json", "arguments, target, where it comes from"),
    ]
    kept = [row for row in rows if not (missing and row[0] == "libkernel.so")]
    return "\n".join(["| file | holds |", "|---|---|", *(f"| {name} | {text} |" for name, text in kept)])


def _python(code: Code) -> str:
    names = ", ".join(a.name for a in code.inputs)
    packed = [a.name for a in code.inputs if a.packed is not None]
    lines = ["From Python:", "", "```python", "from kernel import load", "", "kernel = load()"]
    lines.append(f"{', '.join(a.name for a in code.outputs)} = kernel({names})")
    if packed:
        bound = ", ".join(f"{n}={n}" for n in packed)
        lines.append(f"fast = kernel.bind({bound})    # packed once, for inputs that stay the same")
    return "\n".join([*lines, "```"])


def _c(code: Code) -> str:
    lines = ["From C (`kernel.h` says what each argument is):", "", "```sh", "cc -O2 main.c kernel.o -o main -pthread"]
    text = "\n".join([*lines, "```"])
    if code.parallel:
        text += f"\n\nThe kernel brings its own thread pool of {code.threads - 1} workers, started at the first call."
    return text + "\n"
