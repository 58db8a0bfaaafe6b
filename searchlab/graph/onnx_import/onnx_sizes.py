"""Symbolic dimensions of a model as sizes of the graph.

A dimension may have a number, a text (`dim_param`) or nothing. A text that is a name is a size of that name; one that
is arithmetic on such names, as exporters write for results and caches (`past + 1`), is that expression. Any other text,
and nothing, is a size of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from searchlab.errors import GraphError
from searchlab.graph.building import Bounds
from searchlab.graph.symbols import SizeRange
from searchlab.graph.torch_import.importing import constant_name
from searchlab.ir.expr import Expr, Var, index, size
from searchlab.ir.walk import variables
from searchlab.registry import nearest

GivenSizes = Mapping[str, "int | Expr | Bounds"]

_OPERATIONS: dict[type[ast.operator], Callable[[Expr, Expr], Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
}


class OnnxSizes:
    """The sizes that the inputs of a model have; `given` fixes or bounds them by name."""

    def __init__(self, inputs: Iterable[Any], given: GivenSizes) -> None:
        self._plain: dict[str, Expr] = {}
        self.ranges: dict[Var, SizeRange] = {}
        dims = [dim for info in inputs for dim in info.type.tensor_type.shape.dim]
        for text in (dim.dim_param for dim in dims if dim.WhichOneof("value") == "dim_param"):
            if text.isidentifier():
                self._plain[text] = self._size(text, given)
        names = sorted(self._plain)
        for name in given:
            if name not in self._plain:
                raise GraphError(f"the model has no dimension '{name}'{nearest(name, names)}")

    def _size(self, name: str, given: GivenSizes) -> Expr:
        known = given.get(name)
        if isinstance(known, (int, Expr)):
            return index(known)
        if known is not None:
            self.ranges[size(name)] = known if isinstance(known, SizeRange) else SizeRange(*known)
        return size(name)

    def shape(self, info: Any, name: str) -> tuple[Expr, ...]:
        """The shape of an input, whose name in the graph is given."""
        if not info.type.tensor_type.HasField("shape"):
            raise GraphError(f"the input '{info.name}' has no shape; its rank at least must be known")
        return tuple(self._extent(d, f"{name}_{axis}") for axis, d in enumerate(info.type.tensor_type.shape.dim))

    def _extent(self, dim: Any, otherwise: str) -> Expr:
        kind = dim.WhichOneof("value")
        if kind == "dim_value":
            return index(dim.dim_value)
        if kind != "dim_param" or not dim.dim_param:
            return size(otherwise)
        found = self._plain.get(dim.dim_param)
        return self._expression(dim.dim_param) if found is None else found

    def _expression(self, text: str) -> Expr:
        try:
            made = self._read(ast.parse(text, mode="eval").body)
        except (SyntaxError, KeyError):
            made = index(0)
        return made if variables(made) else size(constant_name(text, set()))

    def _read(self, node: ast.expr) -> Expr:
        if isinstance(node, ast.BinOp):
            return _OPERATIONS[type(node.op)](self._read(node.left), self._read(node.right))
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return index(node.value)
        return self._plain[ast.unparse(node)]
