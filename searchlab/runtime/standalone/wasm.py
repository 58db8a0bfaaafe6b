"""A program as a WebAssembly module, with a script that calls it from JavaScript and a page that runs and times it.

LLVM makes the object file; LLD's `wasm-ld` links it, which Debian has in the package lld.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
from importlib import resources
from math import prod
from pathlib import Path

from searchlab.backend import Argument, Package
from searchlab.dtype import DTYPES
from searchlab.errors import ExportError
from searchlab.runtime.standalone.code import CpuStandalone

MODULE, SCRIPT, PAGE = "kernel.wasm", "kernel.js", "index.html"
_VERSIONS = range(30, 12, -1)
# arrays of JavaScript that hold elements; others are held as bytes
_VIEWS = {
    "float32": "Float32Array",
    "float64": "Float64Array",
    "int8": "Int8Array",
    "uint8": "Uint8Array",
    "int32": "Int32Array",
    "int64": "BigInt64Array",
    "bool": "Uint8Array",
    "bfloat16": "Uint16Array",
}


def wasm_package(code: CpuStandalone, title: str) -> Package:
    """The files of an export for WebAssembly."""
    module = linked(code)
    form = {
        "title": title,
        "function": code.name,
        "inputs": [_form(a) for a in code.inputs],
        "outputs": [_form(a) for a in code.outputs],
    }
    encoded = base64.b64encode(module).decode()
    shared, stride = code.scratch
    given = {"FORM": json.dumps(form), "MODULE": json.dumps(encoded), "SCRATCH": str(max(1, shared + stride))}
    script = re.sub(r"\b(FORM|MODULE|SCRATCH)\b", lambda found: given[found[1]], _template("kernel.js"))
    page = _template("index.html").replace("TITLE", _escaped(title))
    about = {
        MODULE: "the kernel as a WebAssembly module, with vectors of 128 bits",
        SCRIPT: "the same with a loader, for browsers and for node",
        PAGE: "a page that runs and times it in a browser: open the file",
        "kernel.ll": "the same as LLVM IR, for reading",
    }
    files: dict[str, str | bytes] = {MODULE: module, SCRIPT: script, PAGE: page, "kernel.ll": code.optimized}
    return Package(code.name, code.inputs, code.outputs, files, about, _usage(code))


def linked(code: CpuStandalone) -> bytes:
    """The module: entry points with scratch memory of the caller, packing, and where free memory begins."""
    tool = find_linker()
    if tool is None:
        raise ExportError("wasm-ld is not found, which links WebAssembly modules: install LLD (apt-get install lld)")
    entries = [f"{code.name}_with", *(f"{code.name}_pack_{a.name}" for a in code.inputs if a.packed is not None)]
    with tempfile.TemporaryDirectory(prefix="searchlab-wasm-") as folder:
        source, made = Path(folder, "kernel.o"), Path(folder, MODULE)
        source.write_bytes(code.object)
        exports = [f"--export={name}" for name in ("__heap_base", *entries)]
        command = [tool, "--no-entry", "--gc-sections", "--strip-all", *exports, str(source), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise ExportError(f"{code.program.name}: {_reason(done.stderr)}")
        return made.read_bytes()


def find_linker() -> str | None:
    """`wasm-ld`, under its own name or with the version of LLVM."""
    names = ("wasm-ld", *(f"wasm-ld-{n}" for n in _VERSIONS))
    return next((found for name in names if (found := shutil.which(name)) is not None), None)


def _reason(said: str) -> str:
    missing = sorted(set(re.findall(r"undefined symbol: (\w+)", said)))
    if missing:
        return f"WebAssembly lacks what the code needs ({', '.join(missing)}); use another element type"
    return f"wasm-ld failed: {' '.join(said.split())[:300]}"


def _form(a: Argument) -> dict[str, object]:
    packed = None if a.packed is None else prod(a.packed) * DTYPES[a.held or a.dtype].bytes
    return {
        "name": a.name,
        "dtype": a.dtype,
        "shape": list(a.shape),
        "length": prod(a.shape),
        "bytes": prod(a.shape) * DTYPES[a.dtype].bytes,
        "packed": packed,
        "view": _VIEWS.get(a.dtype, "Uint8Array"),
    }


def _usage(code: CpuStandalone) -> str:
    given, made = (", ".join(a.name for a in arrays) for arrays in (code.inputs, code.outputs))
    return f"""Open `{PAGE}` in a browser: it runs the kernel on random arrays and shows its times.

From JavaScript, in a browser after `<script src="{SCRIPT}"></script>`, or in node:

```js
const {{ load }} = require("./{SCRIPT}");    // in browsers: kernel.load

load().then((kernel) => {{
  const [{made}] = kernel.run({given});    // typed arrays, row-major
}});
```"""


def _template(name: str) -> str:
    return resources.files(__package__).joinpath("web", name).read_text(encoding="utf-8")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
