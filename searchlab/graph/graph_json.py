"""Graphs as files: everything but the constants as JSON, the constants as arrays beside it.

`save_graph` writes one .npz archive with the JSON and all arrays, which any numpy reads without executing anything.
"""

from __future__ import annotations

import dataclasses
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.errors import GraphError, SearchLabError
from searchlab.graph.annotations import ObjectType, ShapeType, TensorType, TupleType
from searchlab.graph.calls import (
    BranchCall,
    Extents,
    FunctionCall,
    ItemCall,
    LibraryCall,
    MatchCast,
    OperatorCall,
    ProgramCall,
    Scalar,
    TupleCall,
)
from searchlab.graph.functions import Binding, Constant, GraphFunction, GraphModule, GraphParameter
from searchlab.graph.operator import GraphOperator, operator_named
from searchlab.graph.symbols import SizeRange
from searchlab.graph.wellformed import verify_graph
from searchlab.ir.expr import Expr, Var
from searchlab.ir.jsonform import decode, encode
from searchlab.ir.program import Program
from searchlab.registry import nearest

FORMAT = 1
_ENTRY = "graph.json"  # the archive's entry that is no constant: names of constants have no dots
_CLASSES = {
    c.__name__: c
    for c in (
        ObjectType, TensorType, ShapeType, TupleType, Scalar, Extents, OperatorCall, ProgramCall, LibraryCall,
        FunctionCall, BranchCall, MatchCast, TupleCall, ItemCall, Binding, GraphParameter, SizeRange,
    )
}  # fmt: skip


def graph_to_json(module: GraphModule) -> str:
    """The module without the contents of its constants."""
    constants = {name: [c.dtype, list(c.array.shape)] for name, c in module.constants.items()}
    programs = {name: encode(program) for name, program in module.programs.items()}
    functions = [_function(f) for f in module]
    whole = {"format": FORMAT, "constants": constants, "programs": programs, "functions": functions}
    return json.dumps(whole, separators=(",", ":"))


def graph_from_json(text: str, constants: Mapping[str, npt.NDArray[Any]] | None = None) -> GraphModule:
    """The module that `graph_to_json` wrote, with its constants; verified, whatever the text says."""
    try:
        data = json.loads(text)
        if data.get("format") != FORMAT:
            raise GraphError(f"its format is {data.get('format')!r}; this version reads {FORMAT}")
        held = {name: _constant(name, form[0], form[1], constants or {}) for name, form in data["constants"].items()}
        programs = {name: decode(form) for name, form in data["programs"].items()}
        functions = {form["name"]: _read_function(form) for form in data["functions"]}
        if not all(isinstance(p, Program) for p in programs.values()):
            raise GraphError("a program is none")
        module = GraphModule(functions, programs, held)
        verify_graph(module)
    except SearchLabError as e:
        raise GraphError(f"not a graph in JSON: {e}") from e
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as e:
        raise GraphError(f"not a graph in JSON: {type(e).__name__}: {e}") from e
    return module


def save_graph(module: GraphModule, path: str | Path) -> Path:
    """Writes the module with its constants to an archive, `path` with the suffix .npz."""
    target = Path(path).with_suffix(".npz")
    arrays = {name: c.array for name, c in module.constants.items()}
    np.savez(target, **{_ENTRY: np.frombuffer(graph_to_json(module).encode(), np.uint8), **arrays})  # type: ignore[arg-type]
    return target


def load_graph(path: str | Path) -> GraphModule:
    """The module that `save_graph` wrote."""
    target = Path(path).with_suffix(".npz")
    try:
        with np.load(target, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile) as e:
        raise GraphError(f"{target}: cannot be read: {e}") from e
    if _ENTRY not in arrays:
        raise GraphError(f"{target}: an archive without {_ENTRY}, which a graph has")
    try:
        return graph_from_json(arrays.pop(_ENTRY).tobytes().decode(), arrays)
    except GraphError as e:
        raise GraphError(f"{target}: {e}") from e


def _constant(name: str, dtype: str, shape: list[int], arrays: Mapping[str, npt.NDArray[Any]]) -> Constant:
    if name not in arrays:
        raise GraphError(f"the constant '{name}' is missing{nearest(name, arrays, 'given')}")
    if arrays[name].shape != tuple(shape):
        raise GraphError(f"the constant '{name}' has shape {arrays[name].shape}, expected {tuple(shape)}")
    return Constant(arrays[name], dtype)


def _function(f: GraphFunction) -> dict[str, Any]:
    ranges = [[encode(symbol), encode_value(known)] for symbol, known in f.ranges.items()]
    return {
        "name": f.name,
        "parameters": [encode_value(p) for p in f.parameters],
        "bindings": [encode_value(b) for b in f.bindings],
        "result": f.result,
        "ranges": ranges,
    }


def _read_function(data: dict[str, Any]) -> GraphFunction:
    parameters, bindings = (tuple(decode_value(part) for part in data[key]) for key in ("parameters", "bindings"))
    for part, wanted in [*((p, GraphParameter) for p in parameters), *((b, Binding) for b in bindings)]:
        if not isinstance(part, wanted):
            raise GraphError(f"{data['name']}: {part!r} is not a {wanted.__name__}")
    ranges = {decode(symbol): decode_value(known) for symbol, known in data["ranges"]}
    if not all(isinstance(v, Var) and isinstance(r, SizeRange) for v, r in ranges.items()):
        raise GraphError(f"{data['name']}: its ranges are not those of symbols")
    return GraphFunction(data["name"], parameters, bindings, data["result"], ranges)


def encode_value(value: Any, classes: Mapping[str, type] = _CLASSES) -> Any:
    """A value of a graph as plain data: a list headed by its class; operators by name, expressions as the IR does."""
    if isinstance(value, GraphOperator):
        return ["operator", value.name, {name: encode_value(v, classes) for name, v in value.attributes()}]
    if type(value).__name__ in classes:
        return [
            type(value).__name__,
            *(encode_value(getattr(value, f.name), classes) for f in dataclasses.fields(value)),
        ]
    if isinstance(value, Expr):
        return ["expr", encode(value)]
    if isinstance(value, (tuple, list)):
        return ["tuple", *(encode_value(v, classes) for v in value)]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise GraphError(f"{value!r} cannot be written as JSON")


def decode_value(data: Any, classes: Mapping[str, type] = _CLASSES) -> Any:
    """The value that `encode_value` wrote."""
    if not isinstance(data, list):
        return data
    head, *rest = data
    if head == "operator":
        name, attributes = rest
        return operator_named(name, **{key: decode_value(v, classes) for key, v in attributes.items()})
    if head == "expr":
        return decode(rest[0])
    parts = [decode_value(part, classes) for part in rest]
    if head == "tuple":
        return tuple(parts)
    if head not in classes:
        raise GraphError(f"unknown node '{head}'; known: {', '.join(classes)}")
    return classes[head](*parts)
