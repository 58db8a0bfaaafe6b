"""Reading of ONNX models: files, bytes and models; attributes of nodes, functions of operators, values of nodes.

The package onnx is imported here, and only when a model is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from searchlab.dtype import DTYPES
from searchlab.errors import GraphError
from searchlab.graph.onnx_import.onnx_known import KnownTensor, known_array
from searchlab.graph.operator import Array

LARGEST = 2**31 - 1  # bytes that protocol buffers serialise; a larger model is checked by its file


def package(name: str) -> Any:
    """onnx, or a module of it, without types: whether it has any depends on its version."""
    try:
        return import_module(name)
    except ImportError:
        raise GraphError("from_onnx needs the package onnx: pip install 'searchlab[onnx]'") from None


def read_model(given: Any) -> Any:
    """The model of a path, of the bytes of a file, or as it is; refused if it is not well-formed."""
    onnx, DecodeError = package("onnx"), package("google.protobuf.message").DecodeError
    path = Path(given) if isinstance(given, (str, os.PathLike)) else None
    try:
        if path is not None:
            model = onnx.load(os.fspath(path))
        else:
            model = onnx.load_model_from_string(bytes(given)) if isinstance(given, (bytes, bytearray)) else given
        if not isinstance(model, onnx.ModelProto):
            raise GraphError(f"from_onnx takes a path, bytes or an onnx.ModelProto, not {type(given).__name__}")
        if path is not None or model.ByteSize() < LARGEST:
            onnx.checker.check_model(os.fspath(path) if path is not None else model)
    except FileNotFoundError:
        raise GraphError(f"there is no file {path}") from None
    except DecodeError:
        raise GraphError(f"{path or 'the given bytes'}: not an ONNX model") from None
    except onnx.checker.ValidationError as e:
        raise GraphError(f"{path or 'the model'}: onnx refuses it: {e}") from None
    return model


def dtype_of_type(number: int, what: str) -> str:
    """The dtype that ONNX has a number for."""
    try:
        name = str(package("onnx.helper").tensor_dtype_to_np_dtype(number).name)
    except (KeyError, ValueError):
        name = package("onnx").TensorProto.DataType.Name(number)
    if name not in DTYPES:
        raise GraphError(f"{what} has dtype {name}; graphs have {', '.join(DTYPES)}")
    return name


def known_tensor(proto: Any, name: str) -> KnownTensor:
    """An initialiser, or a tensor among attributes."""
    return known_array(package("onnx.numpy_helper").to_array(proto), name)


def attributes_of(node: Any, outer: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a node by name; `outer` has those of the function around it, which they may refer to."""
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            found[attribute.name] = _value(attribute)
        elif attribute.ref_attr_name in outer:
            found[attribute.name] = outer[attribute.ref_attr_name]
    return found


def default_attributes(function: Any) -> dict[str, Any]:
    """The values that attributes of a function have if a node does not give them."""
    return {attribute.name: _value(attribute) for attribute in function.attribute_proto}


def _value(attribute: Any) -> Any:
    value = package("onnx.helper").get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value


def function_of(operator: str, domain: str, opset: int) -> Any:
    """The function of simpler operators that ONNX defines an operator by, or None."""
    defs = package("onnx.defs")
    try:
        schema = defs.get_schema(operator, opset, domain)
    except defs.SchemaError:
        return None
    return schema.function_body if schema.has_function else None


def evaluated(
    node: Any, operands: Sequence[Array | None], attributes: Mapping[str, Any], opsets: Mapping[str, int]
) -> list[Array]:
    """The results of a node on arrays, by the reference evaluator of onnx."""
    helper, ReferenceEvaluator = package("onnx.helper"), package("onnx.reference").ReferenceEvaluator
    names = [f"x{number}" if x is not None else "" for number, x in enumerate(operands)]
    plain = helper.make_node(node.op_type, names, list(node.output), domain=node.domain, **attributes)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    given = [name for name in names if name]
    function = helper.make_function("searchlab", "known", given, [o for o in node.output if o], [plain], imports)
    feeds = {name: x for name, x in zip(names, operands) if name}
    made: list[Array] = ReferenceEvaluator(function).run(None, feeds, attributes={})
    return made
