"""`from_torch`: a torch module as a function of a graph, by way of torch.export."""

from __future__ import annotations

from typing import Any

import numpy as np

from searchlab.dtype import BFLOAT16, DTYPES
from searchlab.errors import GraphError
from searchlab.graph.building import GraphBuilder, GraphValue
from searchlab.graph.deduction import same_shape
from searchlab.graph.functions import Constant, GraphModule
from searchlab.graph.symbols import SizeFacts
from searchlab.graph.torch_import.conversion import CONVERTERS, AtenStep
from searchlab.graph.torch_import.exporting import ExportedModule, computes, export, overload_of, place_of
from searchlab.graph.torch_import.torch_sizes import TorchSizes, size_names
from searchlab.ir.bfloat16 import stored


def from_torch(
    module: Any,
    example_inputs: tuple[Any, ...],
    dynamic_shapes: Any = None,
    *,
    name: str = "main",
    into: GraphModule | None = None,
) -> GraphModule:
    """A torch module as the function `name` of a graph; parameters and buffers are constants of it.

    `example_inputs` and `dynamic_shapes` are those of `torch.export.export`: sizes that are not declared are those of
    the examples. Tensors inside tuples and dictionaries become parameters and results one by one, in order. A buffer
    that the module changes comes in as a last parameter, and what is changed goes out as a last result. `into` is a
    module that the function is added to; weights of the same names are shared.
    """
    exported = export(module, example_inputs, dynamic_shapes, CONVERTERS.keys())
    return _Importer(exported, name, into).built()


class _Importer:
    """Walks the nodes of an exported program and writes a function."""

    def __init__(self, exported: ExportedModule, name: str, into: GraphModule | None) -> None:
        self.program, self.title = exported.program, exported.title
        signature = self.program.graph_signature
        self.nodes = {node.name: node for node in self.program.graph.nodes}
        self.inputs = [s for s in signature.input_specs if s.kind.name == "USER_INPUT"]
        self.changed = [s for s in signature.output_specs if s.kind.name.endswith("_MUTATION")]
        self.results = [s for s in signature.output_specs if s.kind.name == "USER_OUTPUT"]
        tensors = [(s.arg.name, self.nodes[s.arg.name].meta["val"]) for s in self.inputs if _is_tensor(s)]
        self.sizes = TorchSizes(size_names(tensors, exported.declared), self.program.range_constraints)
        self.b = GraphBuilder(name, into, self.sizes.ranges)
        self.values: dict[str, Any] = {}

    def built(self) -> GraphModule:
        """The module with the function."""
        self._parameters()
        for node in self.program.graph.nodes:
            if computes(node):
                self.values[node.name] = self._converted(node)
            elif node.op == "call_function" and overload_of(node) == "getitem":
                self.values[node.name] = self._item(node)
        return self.b.build(*self._outputs())

    # --- parameters and results ---------------------------------------------------------------------------------------

    def _parameters(self) -> None:
        for spec in self.inputs:
            if _is_tensor(spec):
                self.values[spec.arg.name] = self._input(spec.arg.name, spec.arg.name)
        taken = {spec.arg.name for spec in self.inputs}
        changed = {spec.target for spec in self.changed if spec.kind.name != "USER_INPUT_MUTATION"}
        for spec in self.program.graph_signature.input_specs:
            if spec.kind.name == "USER_INPUT":
                continue
            if spec.kind.name not in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
                raise GraphError(
                    f"{self.title}: '{spec.target}' is a {spec.kind.name.lower()}, which graphs do not have"
                )
            name = constant_name(spec.target, taken)
            if spec.target in changed:
                self.values[spec.arg.name] = self._input(name, spec.arg.name)
            elif self.nodes[spec.arg.name].users:
                self.values[spec.arg.name] = self.b.constant(name, self._constant(spec.target))

    def _input(self, name: str, node: str) -> GraphValue:
        fake = self.nodes[node].meta["val"]
        return self.b.input(name, self.sizes.shape(fake), self._dtype(fake.dtype, f"the input '{name}'"))

    def _constant(self, target: str) -> Constant:
        held = self.program.state_dict.get(target)
        tensor = (held if held is not None else self.program.constants[target]).detach().cpu()
        dtype = self._dtype(tensor.dtype, f"'{target}'")
        if dtype == BFLOAT16:
            return Constant(stored(tensor.float().numpy(), BFLOAT16), BFLOAT16)
        return Constant(np.array(tensor.numpy()), dtype)  # a copy: the module may train on

    def _outputs(self) -> list[GraphValue]:
        """The results of the module, then what it changed."""
        found = []
        for number, spec in enumerate(self.results):
            if type(spec.arg).__name__ == "TensorArgument":
                found.append(self.values[spec.arg.name])
            elif getattr(spec.arg, "value", 0) is not None:
                what = getattr(spec.arg, "value", "a size")
                raise GraphError(f"{self.title}: result {number} is {what}, not a tensor")
        return [*found, *(self.values[spec.arg.name] for spec in self.changed)]

    def _dtype(self, dtype: Any, what: str) -> str:
        name = dtype_name(dtype)
        if name not in DTYPES:
            raise GraphError(f"{self.title}: {what} has dtype {name}; graphs have {', '.join(DTYPES)}")
        return name

    # --- operators ----------------------------------------------------------------------------------------------------

    def _converted(self, node: Any) -> Any:
        """The calls for one operator; errors say where in the module it is."""
        overload = overload_of(node)
        try:
            fakes = _fakes(node.meta["val"])
            dtypes = tuple(self._dtype(fake.dtype, "a result") for fake in fakes)
            step = AtenStep(self.b, overload, tuple(map(self.sizes.shape, fakes)), dtypes, _common(node))
            args = [self._argument(a) for a in node.args]
            made = CONVERTERS[overload](step, *args, **{k: self._argument(a) for k, a in node.kwargs.items()})
            return self._checked(made, step) if isinstance(made, GraphValue) and len(fakes) == 1 else made
        except GraphError as e:
            raise GraphError(f"{self.title}: {overload} at {place_of(node)}: {e}") from e

    def _checked(self, made: GraphValue, step: AtenStep) -> GraphValue:
        """The value, if torch says the same of it; a shape that is not known to be torch's is checked at run time."""
        if made.dtype != step.dtype or len(made.shape) != len(step.shape):
            raise GraphError(f"the result is {made.annotation}, but torch has {step.dtype}{list(step.shape)}")
        facts = SizeFacts(self.sizes.ranges)
        for ours, theirs in zip(made.shape, step.shape, strict=True):
            if facts.differ(ours, theirs):
                raise GraphError(f"the result is {made.annotation}, but torch has the shape {list(step.shape)}")
        return made if same_shape(facts, made.shape, step.shape) else self.b.match_cast(made, step.shape)

    def _item(self, node: Any) -> Any:
        whole, number = self.values[node.args[0].name], node.args[1]
        found = self.b.item(whole, number) if isinstance(whole, GraphValue) else whole[number]
        if found is None and node.users:
            raise GraphError(f"{self.title}: result {number} of {overload_of(node.args[0])} is not covered")
        return found

    def _argument(self, given: Any) -> Any:
        """An argument as converters take it."""
        if isinstance(given, (list, tuple)):
            return [self._argument(a) for a in given]
        if type(given).__name__ == "dtype":
            return self._dtype(given, "an argument")
        if not hasattr(given, "op"):
            return given
        if given.name in self.values:
            return self.values[given.name]
        value = given.meta.get("val")
        if isinstance(value, (bool, int, float, str)) or value is None:
            return value
        if type(value).__name__ == "SymInt":
            return self.sizes.expression(value)
        raise GraphError(f"its argument '{given.name}' is a {type(value).__name__}")


def constant_name(target: str, taken: set[str]) -> str:
    """The name of a parameter or buffer as an identifier: `layers.0.weight` is `layers_0_weight`."""
    name = "".join(c if c.isalnum() else "_" for c in target)
    name = f"_{name}" if name[:1].isdigit() else name
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def dtype_name(dtype: Any) -> str:
    """The name of a dtype of torch."""
    return str(dtype).removeprefix("torch.")


def _is_tensor(spec: Any) -> bool:
    return type(spec.arg).__name__ == "TensorArgument"


def _fakes(value: Any) -> list[Any]:
    return [fake for fake in (value if isinstance(value, (list, tuple)) else [value]) if fake is not None]


def _common(node: Any) -> str | None:
    """The dtype that torch brings two operands to; None where there are none."""
    import torch

    pair = [a.meta.get("val") if hasattr(a, "op") else a for a in node.args[:2]]
    pair = [0 if type(a).__name__ == "SymInt" else a for a in pair]
    operands = all(hasattr(a, "shape") or isinstance(a, (bool, int, float)) for a in pair)
    if len(pair) < 2 or not operands or not any(hasattr(a, "shape") for a in pair):
        return None
    return dtype_name(torch.result_type(*pair))
