"""The C header of an exported kernel: prototypes, and the requirements on callers."""

from __future__ import annotations

from math import prod

from searchlab.backend import Argument, Standalone
from searchlab.dtype import BOOL, DTYPES, HALVES


def header(code: Standalone, title: str) -> str:
    """The text of kernel.h."""
    guard = f"{code.name.upper()}_H"
    arrays = ", ".join([*(_input(a) for a in code.inputs), *(f"{DTYPES[a.dtype].c} *{a.name}" for a in code.outputs)])
    parts = [
        f"/* {title}\n * for {_target(code)}\n */",
        f"#ifndef {guard}\n#define {guard}",
        "#include <stdint.h>",
        '#ifdef __cplusplus\nextern "C" {\n#endif',
        _about_arrays(code),
        f"int {code.name}({arrays});",
        "/* The same with scratch memory from the caller: NAME_scratch(threads) bytes, aligned to 64 bytes.\n"
        " * Concurrent calls need separate scratch memory. */".replace("NAME", code.name),
        f"void {code.name}_with({arrays}, void *scratch, int64_t threads);",
        f"int64_t {code.name}_scratch(int64_t threads);",
        *([_permission(code)] if code.permission else []),
        *(_packing(code.name, a) for a in code.inputs if a.packed is not None),
        "#ifdef __cplusplus\n}\n#endif",
        f"#endif /* {guard} */",
    ]
    return "\n\n".join(parts) + "\n"


def _input(a: Argument) -> str:
    return f"const {DTYPES[a.held or a.dtype].c} *{a.name}{'_packed' if a.packed is not None else ''}"


def _target(code: Standalone) -> str:
    cores = f"{code.threads} thread{'s' * (code.threads > 1)}"
    return f"{code.target.name} ({code.platform}), {cores}; other CPUs may lack instructions it uses"


def _about_arrays(code: Standalone) -> str:
    lines = ["/* Arrays are dense and row-major; outputs overlap nothing else."]
    for a in code.inputs:
        lines.append(f"   {a.name:<8} in   {_describe(a)}")
    for a in code.outputs:
        lines.append(f"   {a.name:<8} out  {_describe(a)}")
    lines += [
        "   Alignment: that of the elements is enough; a multiple of 64 bytes is fastest.",
        f"   {_threads(code)}",
        f"   {_scratch(code)} */",
    ]
    return "\n".join(lines)


def _describe(a: Argument) -> str:
    shape = DTYPES[a.dtype].c + "".join(f"[{n}]" for n in a.shape) + _meaning(a.dtype)
    if a.packed is None:
        return shape
    held = "" if a.held in (None, a.dtype) else f"{a.held} "
    return f"{shape}, passed packed as {held}{''.join(f'[{n}]' for n in a.packed)} (see below)"


def _meaning(dtype: str) -> str:
    """What the elements are, where their C type does not say so."""
    return f" (the bits of {dtype})" if dtype in HALVES else " (0 or 1)" if dtype == BOOL else ""


def _threads(code: Standalone) -> str:
    if not code.parallel:
        return "Runs in the calling thread; may be called from several threads at once."
    return (
        f"Uses {code.threads} threads: the caller and workers that sleep between calls. Calls from several threads\n"
        "   at once are safe; one of them has the workers, the others run alone."
    )


def _permission(code: Standalone) -> str:
    name = code.name
    return (
        f"/* The kernel uses {code.permission}, which the system must permit. The code asks when it is loaded; this\n"
        f" * asks again: 0, or EOPNOTSUPP, which {name} then returns without running. {name}_with\n"
        " * does not check. */\n"
        f"int {name}_permitted(void);"
    )


def _scratch(code: Standalone) -> str:
    shared, stride = code.scratch
    total = shared + stride * code.threads
    if not total:
        return "Needs no scratch memory. Returns 0."
    return f"Allocates {total} bytes per call. Returns 0, or ENOMEM if that much memory is not available."


def _packing(name: str, a: Argument) -> str:
    assert a.packed is not None
    size = "".join(f"[{n}]" for n in a.packed)
    given, held = DTYPES[a.dtype].c, DTYPES[a.held or a.dtype].c
    return (
        f"/* Brings {a.name} into the layout {size} that the kernel reads ({prod(a.packed)} elements), once for\n"
        f" * as long as {a.name} stays the same. */\n"
        f"void {name}_pack_{a.name}(const {given} *{a.name}, {held} *{a.name}_packed);"
    )
