"""`from_onnx`: an ONNX model as a function of a graph, node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from searchlab.errors import GraphError
from searchlab.graph.building import GraphBuilder, GraphValue
from searchlab.graph.functions import GraphModule
from searchlab.graph.onnx_import.onnx_conversion import ONNX_CONVERTERS, OnnxResults, OnnxStep, call_converter
from searchlab.graph.onnx_import.onnx_known import Constants, KnownTensor, OnnxValue, known_array
from searchlab.graph.onnx_import.onnx_model import (
    attributes_of,
    default_attributes,
    dtype_of_type,
    evaluated,
    function_of,
    known_tensor,
    read_model,
)
from searchlab.graph.onnx_import.onnx_size_arithmetic import SIZE_FUNCTIONS
from searchlab.graph.onnx_import.onnx_sizes import GivenSizes, OnnxSizes
from searchlab.graph.symbols import SizeFacts
from searchlab.graph.torch_import.importing import constant_name

# What makes large tensors from few numbers is left to the graph; what is random would be fixed for ever.
KEPT = frozenset({
    "ConstantOfShape", "Expand", "Tile", "EyeLike", "RandomNormal", "RandomUniform", "RandomNormalLike",
    "RandomUniformLike", "Bernoulli", "Multinomial",
})  # fmt: skip


def from_onnx(
    model: Any, *, name: str = "main", sizes: GivenSizes | None = None, into: GraphModule | None = None
) -> GraphModule:
    """An ONNX model (a path, the bytes of a file, or an `onnx.ModelProto`) as the function `name` of a graph.

    Initialisers are constants, symbolic dimensions are sizes under their own names. `sizes` says more of these: a
    number, the least and the largest one (None: no limit), or an expression of other sizes: `size("rows") * 16`.
    `into` is a module that the function is added to; weights of the same names are shared.
    """
    return _OnnxImporter(read_model(model), name, sizes or {}, into).built()


@dataclass(frozen=True)
class _NodeScope:
    """Values by name, of a graph or of the body of a function; None is an optional operand that is left out."""

    values: dict[str, OnnxValue | None]
    attributes: Mapping[str, Any]
    opsets: Mapping[str, int]
    lost: set[str] = field(default_factory=set)  # what could not be made, since an operator is not covered


class _OnnxImporter:
    """Walks the nodes of a model and writes a function."""

    def __init__(self, model: Any, name: str, given: GivenSizes, into: GraphModule | None) -> None:
        self.graph = model.graph
        self.title = f"ONNX model '{model.graph.name}'"
        self.functions = {(f.domain, f.name): f for f in model.functions}
        self.opsets = {entry.domain.replace("ai.onnx", ""): entry.version for entry in model.opset_import}
        held = {tensor.name for tensor in self.graph.initializer}
        self.inputs = [info for info in self.graph.input if info.name not in held]
        self.sizes = OnnxSizes(self.inputs, given)
        self.b = GraphBuilder(name, into, self.sizes.ranges)
        self.held = list(into.constants) if into is not None else []
        self.constants = Constants(self.b, self.held)
        self.facts = SizeFacts(self.sizes.ranges)
        self.missing: list[str] = []

    def built(self) -> GraphModule:
        """The module with the function."""
        scope = _NodeScope({}, {}, self.opsets)
        taken = set(self.held)
        for info in self.inputs:
            scope.values[info.name] = self._input(info, constant_name(info.name, taken))
        self._walk(self.graph, scope)
        if self.missing:
            several = "an operator is" if len(self.missing) == 1 else f"{len(self.missing)} operators are"
            raise GraphError(f"{self.title}: {several} not covered: {'; '.join(self.missing)}")
        results = [scope.values[info.name] for info in self.graph.output]
        return self.b.build(*(self._result(value) for value in results if value is not None))

    def _input(self, info: Any, name: str) -> GraphValue:
        if info.type.WhichOneof("value") != "tensor_type":
            raise GraphError(f"{self.title}: the input '{info.name}' is not a tensor")
        dtype = dtype_of_type(info.type.tensor_type.elem_type, f"{self.title}: the input '{info.name}'")
        return self.b.input(name, self.sizes.shape(info, name), dtype)

    def _result(self, value: OnnxValue) -> GraphValue:
        return self.constants.tensor(value) if isinstance(value, KnownTensor) else value

    # --- nodes --------------------------------------------------------------------------------------------------------

    def _walk(self, graph: Any, scope: _NodeScope) -> None:
        """The nodes of a graph, or of a function, in their order."""
        for tensor in getattr(graph, "initializer", ()):
            scope.values[tensor.name] = known_tensor(tensor, tensor.name)
        used = {name for node in graph.node for name in node.input} | {getattr(o, "name", o) for o in graph.output}
        for node in graph.node:
            if scope.lost.isdisjoint(node.input):
                operands = [scope.values[name] if name else None for name in node.input]
                made = self._converted(node, operands, scope)
                scope.values.update(zip(node.output, made, strict=False))
                missing = [name for name in node.output[len(made) :] if name in used]
                if made and missing:
                    self.missing.append(f"the result '{missing[0]}' of {_title(node)} at {_place(node)}")
            else:
                made = ()
            scope.lost.update(node.output[len(made) :])

    def _converted(
        self, node: Any, operands: Sequence[OnnxValue | None], scope: _NodeScope
    ) -> tuple[OnnxValue | None, ...]:
        """The results of a node, none if it is not covered; errors say which one it is."""
        place = f"{_title(node)} at {_place(node)}"
        try:
            made = self._made(node, operands, scope)
        except GraphError as e:
            raise GraphError(f"{self.title}: {place}: {e}") from e
        if made is None:
            self.missing.append(place)
            return ()
        results = made if isinstance(made, tuple) else (made,)
        return tuple(
            KnownTensor(value.array, value.dtype, name)
            if isinstance(value, KnownTensor) and value.name == "constant"
            else value
            for name, value in zip(node.output, results, strict=False)
        )

    def _made(self, node: Any, operands: Sequence[OnnxValue | None], scope: _NodeScope) -> OnnxResults | None:
        """The results of a node by what covers it: numbers, sizes, a converter, a function; None if nothing does."""
        attributes = attributes_of(node, scope.attributes)
        if node.op_type == "If":
            return self._branch(operands[0], attributes, scope)
        opset = scope.opsets.get(node.domain, 1)
        used = len([name for name in node.output if name])
        step = OnnxStep(self.b, node.op_type, opset, used, self.facts, self.constants)
        known = [x for x in operands if isinstance(x, KnownTensor)]
        if node.op_type not in KEPT and len(known) == sum(x is not None for x in operands):
            if not any(x.symbolic for x in known):
                arrays = [x.array if isinstance(x, KnownTensor) else None for x in operands]
                made = evaluated(node, arrays, attributes, scope.opsets)
                return tuple(known_array(array, name) for array, name in zip(made, filter(None, node.output)))
            function = SIZE_FUNCTIONS.get(_title(node))
            if function is not None:
                return call_converter(function, step, operands, attributes)
        convert = ONNX_CONVERTERS.get(_title(node))
        if convert is not None:
            return call_converter(convert, step, operands, attributes)
        body = self.functions.get((node.domain, node.op_type)) or function_of(node.op_type, node.domain, opset)
        return None if body is None else self._inlined(body, operands, attributes, scope)

    def _inlined(
        self, body: Any, operands: Sequence[OnnxValue | None], attributes: Mapping[str, Any], scope: _NodeScope
    ) -> OnnxResults:
        """The results of a function, of the model or of ONNX itself, whose nodes are converted one by one."""
        opsets = dict(scope.opsets) | {e.domain.replace("ai.onnx", ""): e.version for e in body.opset_import}
        inner = _NodeScope(dict.fromkeys(body.input), default_attributes(body) | dict(attributes), opsets)
        for name, value in zip(body.input, operands):
            inner.values[name] = value
        self._walk(body, inner)
        return tuple(inner.values[name] for name in body.output)

    def _branch(self, condition: OnnxValue | None, attributes: Mapping[str, Any], scope: _NodeScope) -> OnnxResults:
        """The results of the branch that a known condition chooses."""
        if not isinstance(condition, KnownTensor) or condition.symbolic:
            raise GraphError("its condition depends on data, which graphs do not support")
        graph = attributes["then_branch" if condition.array.all() else "else_branch"]
        inner = _NodeScope(dict(scope.values), scope.attributes, scope.opsets)
        self._walk(graph, inner)
        return tuple(inner.values[info.name] for info in graph.output)


def _title(node: Any) -> str:
    """The name of an operator, with its domain if that is not ONNX's own."""
    return str(node.op_type) if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def _place(node: Any) -> str:
    """Where a node is: its name, else what it makes."""
    return f"node '{node.name}'" if node.name else f"the node that makes '{node.output[0]}'"
