"""Serialisation of programs and their parts as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from searchlab.errors import IRError
from searchlab.ir.expr import And, Binary, Call, Cast, Compare, Const, Load, Lookup, Poly, Select, Var
from searchlab.ir.loopkind import KindChoice
from searchlab.ir.program import Layout, Program
from searchlab.ir.stmt import KINDS, Ahead, Buffer, Iter

_CLASSES = {
    c.__name__: c
    for c in (
        Const, Var, Poly, Binary, Compare, And, Select, Cast, Call, Load, Lookup, Buffer, Iter, Ahead, Layout, Program,
        *KINDS,
    )
}  # fmt: skip


def encode(value: Any) -> Any:
    """IR values as plain JSON data: a node is a list headed by its class name, a tuple is a list headed by 'tuple'."""
    if type(value).__name__ in _CLASSES:
        # what few programs have is left out of the others, whose text stays as it was
        fields = (
            f.name for f in dataclasses.fields(value) if f.name != "trace" and (f.name != "updates" or value.updates)
        )
        return [type(value).__name__, *(encode(getattr(value, name)) for name in fields)]
    if isinstance(value, KindChoice):
        return str(value)
    if isinstance(value, (tuple, list)):
        return ["tuple", *(encode(v) for v in value)]
    if isinstance(value, Mapping):
        return {k: encode(v) for k, v in value.items()}
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if hasattr(value, "__index__"):
        return value.__index__()  # a numpy integer
    raise IRError(f"{value!r} cannot be written as JSON")


def decode(data: Any) -> Any:
    """The IR values that `encode` wrote."""
    if isinstance(data, list):
        head, *rest = data
        if head == "tuple":
            return tuple(decode(v) for v in rest)
        if head not in _CLASSES:
            raise IRError(f"unknown node '{head}'; known: {', '.join(_CLASSES)}")
        parts = [decode(v) for v in rest]
        if head == "Loop":  # its last field holds the annotations
            parts[-1] = tuple((key, KindChoice.read(note) if key == "kinds" else note) for key, note in parts[-1])
        return _CLASSES[head](*parts)
    if isinstance(data, dict):
        return {k: decode(v) for k, v in data.items()}
    return data


def to_json(program: Program) -> str:
    """The program (without its trace) as text that any process can read back."""
    return json.dumps(encode(program), separators=(",", ":"))


def from_json(text: str) -> Program:
    """The program that `to_json` wrote."""
    try:
        program = decode(json.loads(text))
    except (ValueError, TypeError) as e:
        raise IRError(f"not a program in JSON: {e}") from e
    if not isinstance(program, Program):
        raise IRError("not a program in JSON: it holds another value")
    return program
