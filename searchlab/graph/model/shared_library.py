"""A model as one shared library: kernels, byte code, machine, thread pool and constants, with a description at its end.

Loaders of libraries ignore what follows the sections of a file, so the same file is called from C and loaded by
`load_model`, which reads the description before any code is loaded.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from searchlab.errors import ExportError, GraphError
from searchlab.graph.annotations import ObjectType, ShapeType, TensorType, TupleType
from searchlab.graph.graph_json import decode_value, encode_value
from searchlab.graph.model.elf_data import rounded, write_data_object
from searchlab.graph.model.library_code import CONSTANTS, library_ir, prefix_of
from searchlab.graph.model.model_function import FunctionFacts
from searchlab.graph.model.model_parts import ModelParts, facts_of
from searchlab.graph.vm.bytecode import Check
from searchlab.graph.vm.call_sites import ArraySpec, CallFacts, LibrarySite, NumberSpec, ShapeSpec, Word64
from searchlab.llvm.jit import compile_ir
from searchlab.runtime.standalone.cpu_needs import cpu_needs
from searchlab.runtime.standalone.linking import link
from searchlab.targets import detect
from searchlab.wholefile import replace_file

FORMAT = 1
MAGIC = b"searchlab model\n"
FOOTER = struct.Struct("<32sQQ16s")  # SHA-256 of everything before, bytes of the library, of the description, a magic
_CLASSES: dict[str, type] = {
    c.__name__: c
    for c in (
        ObjectType, TensorType, ShapeType, TupleType, LibrarySite, ArraySpec, ShapeSpec, NumberSpec, Word64, CallFacts,
        Check,
    )
}  # fmt: skip


def write_library(parts: ModelParts, path: Path, name: str) -> None:
    """Writes a model; `name` is what its C functions are called by."""
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise ExportError(f"'{name}' is not a C identifier: use letters, digits and underscores")
    for function in parts.functions:
        if len(parts.functions) > 1 and not re.fullmatch(r"\w+", function, re.ASCII):
            raise ExportError(f"the function '{function}' cannot be part of a C identifier")
    if parts.target.arch != (host := detect()).arch:
        raise ExportError(f"code for {parts.target.arch} is linked on such a machine, this one is {host.arch}")
    with tempfile.TemporaryDirectory() as folder:
        library = _linked(parts, Path(folder), name).read_bytes()
    about = json.dumps(_description(parts, name), separators=(",", ":")).encode()
    digest = hashlib.sha256(library)
    digest.update(about)
    footer = FOOTER.pack(digest.digest(), len(library), len(about), MAGIC)

    def write(file: Any) -> None:
        for part in (library, about, footer):
            file.write(part)

    try:
        replace_file(path, write, sync=False)
    except OSError as e:
        raise ExportError(f"{path}: cannot be written: {e.strerror}") from e


def _linked(parts: ModelParts, folder: Path, name: str) -> Path:
    offsets, at = {}, 0
    for key, array in parts.constants.items():
        offsets[key] = at
        at += rounded(array.nbytes)
    objects = [folder / "model.o", folder / "constants.o"]
    ir = library_ir(name, parts.functions, offsets, parts.target, parts.parallel)
    objects[0].write_bytes(compile_ir(ir, parts.target, pipeline=("O2",)))
    with objects[1].open("wb") as file:
        blocks = (memoryview(np.ascontiguousarray(a).reshape(-1).view(np.uint8).data) for a in parts.constants.values())
        write_data_object(file, parts.target.arch, CONSTANTS, blocks)
    for symbol, kernel in parts.kernels.items():
        objects.append(folder / f"{symbol}.o")
        objects[-1].write_bytes(kernel.code)
    exports = folder / "exports"
    exports.write_text(f"{{ global: {name}_*; local: *; }};\n", encoding="utf-8")
    if problem := link(objects, folder / "model.so", exports):
        raise ExportError(f"the model cannot be linked: {problem}")
    return folder / "model.so"


def _description(parts: ModelParts, name: str) -> dict[str, Any]:
    tiles = "amx-tile" in parts.target.enabled_features()
    return {
        "format": FORMAT,
        "name": name,
        "target": parts.target.to_dict(),
        "needs": cpu_needs(parts.target, tiles),
        "functions": [_facts_to_json(facts_of(f)) for f in parts.functions.values()],
    }


def _facts_to_json(facts: FunctionFacts) -> dict[str, Any]:
    return {
        "name": facts.name,
        "parameters": encode_value(facts.parameters, _CLASSES),
        "result": encode_value(facts.result, _CLASSES),
        "storages": list(facts.storages),
        "libraries": encode_value(facts.libraries, _CLASSES),
        "symbols": dict(facts.symbols),
        "calls": encode_value(facts.calls, _CLASSES),
        "checks": [[pc, encode_value(check, _CLASSES)] for pc, check in facts.checks.items()],
    }


def facts_from_json(data: dict[str, Any]) -> FunctionFacts:
    """What a description says of a function."""
    parameters, result, libraries, calls = (
        decode_value(data[key], _CLASSES) for key in ("parameters", "result", "libraries", "calls")
    )
    checks = {int(pc): decode_value(check, _CLASSES) for pc, check in data["checks"]}
    return FunctionFacts(
        data["name"], parameters, result, tuple(data["storages"]), libraries, data["symbols"], calls, checks
    )


def read_description(path: Path) -> dict[str, Any]:
    """The description of a model in a file, whose contents are compared with their checksum."""
    try:
        with path.open("rb") as file:
            content = file.read()
    except OSError as e:
        raise GraphError(f"{path}: cannot be read: {e.strerror}") from e
    if len(content) < FOOTER.size or content[-len(MAGIC) :] != MAGIC:
        raise GraphError(f"{path}: not a model that searchlab has saved, or only a part of one")
    digest, library, about, _ = FOOTER.unpack(content[-FOOTER.size :])
    body = memoryview(content)[: -FOOTER.size]
    if len(body) != library + about or hashlib.sha256(body).digest() != digest:
        raise GraphError(f"{path}: damaged: its checksum is not that of its contents; save the model again")
    found = json.loads(bytes(body[library:]))
    if found.get("format") != FORMAT:
        raise GraphError(f"{path}: its format is {found.get('format')!r}; this version reads {FORMAT}")
    return dict(found)


def model_symbol(name: str, function: str, functions: int) -> str:
    """The symbol of the data of a function."""
    return f"{prefix_of(name, function, functions)}_model"
